"""Run one script in this process and write down the losses that it trains with.

    python lab/scripts/child.py FRAMEWORK NUMBERS STEPS REPORT SCRIPT [ARGUMENT ...]

FRAMEWORK is ``torch`` or ``dl4all``. NUMBERS, for PyTorch, is ``own``, ``dl4all`` (its random functions give
the numbers of dl4all's generator) or a seed (the same, each float moved to one of its neighbours). The script
ends by itself or after STEPS calls of ``backward``. REPORT is a JSON file: each step's loss and
processor time, how many kernels dl4all's default device has run, and the numbers that the script took out of
tensors by ``item``.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import runpy
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

MOST_ITEMS = 600
"""Further calls of ``item`` are not written down."""


class Enough(BaseException):
    """The script has taken all its steps. No ``except Exception`` of a script catches this."""


class Record:
    """What a script computed."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.items: list[float] = []
        self.main = os.getpid()

    def watch(self, tensor: Any) -> None:
        """Look at every loss on which ``backward`` is called, and at every number that is taken out."""
        original_backward, original_item = tensor.backward, tensor.item
        record = self

        def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
            if len(record.losses) == record.steps:
                raise Enough
            record.losses.append(float(original_item(self.detach())) if self.numel() == 1 else float("nan"))
            record.seconds.append(time.process_time())
            return original_backward(self, *args, **kwargs)

        def item(self: Any) -> Any:
            value = original_item(self)
            if len(record.items) < MOST_ITEMS:
                record.items.append(float(value))
            return value

        tensor.backward, tensor.item = backward, item


def main(framework: str, numbers: str, steps: str, report: str, script: str, *arguments: str) -> None:
    """Run the script; the report also says how it ended."""
    sys.path[0] = str(Path(script).resolve().parent)
    sys.argv = [script, *arguments]
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002 - what scripts draw from
    module = importlib.import_module(framework)
    if framework == "torch":
        module.set_num_threads(1)
        if numbers != "own":
            from lab.scripts.torch_numbers import draw_from_dl4all

            draw_from_dl4all(None if numbers == "dl4all" else int(numbers))
    module.manual_seed(5)
    record = Record(int(steps))
    record.watch(module.Tensor)
    end = "finished"
    began = time.process_time()
    try:
        runpy.run_path(script, run_name="__main__")
    except Enough:
        end = "stopped"
    except SystemExit as exit:
        end = "finished" if not exit.code else f"exit {exit.code}"
    except Exception:  # noqa: BLE001 - whatever the script raises is reported
        end = traceback.format_exc()
    if os.getpid() != record.main:  # a worker process of the script
        return
    Path(report).write_text(
        json.dumps(
            {
                "end": end,
                "losses": record.losses,
                "seconds": record.seconds,
                "items": record.items,
                "total": time.process_time() - began,
                "launches": module.get_default_device().counters.launches if framework == "dl4all" else 0,
            }
        )
    )
    if end not in ("finished", "stopped"):
        sys.exit(end)


if __name__ == "__main__":
    main(*sys.argv[1:])
