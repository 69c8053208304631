"""Runs of a database in processes that may die."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).absolute().parents[2]
PATIENCE = 1800
"""Seconds after which an entry that has said nothing is stopped."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What to check, and how."""

    database: str
    device: str = "cpu"
    dtype: str = "float32"
    mode: str = "native"
    variants: bool = True
    child: str = "lab.torch_databases.child"
    """The module that computes in a process of its own."""

    def request(self, names: list[str] | None) -> str:
        own = {"database": self.database, "dtype": self.dtype, "mode": self.mode, "variants": self.variants}
        return json.dumps(own | {"names": names})


def names(run: Run) -> list[str]:
    """The entries of the database."""
    (line,) = _lines(run, None)
    found: list[str] = line["entries"]
    return found


def check(run: Run, chosen: list[str], seen: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """Check entries; one that ends its process is ``crashed``, and a new process takes the others.

    Args:
        run: how.
        chosen: the entries' names.
        seen: is told of each outcome.
    """
    left, rows = list(chosen), []
    while left:
        begun, died = left[0], ""
        try:
            for line in _lines(run, left):
                begun = line.get("begun", begun)
                if "ended" in line:
                    rows.append(line["ended"])
                    left.remove(begun)
                    seen(rows[-1])
        except ChildDied as error:
            died = str(error)
        if left:
            row = {"name": begun, "status": "crashed", "why": died, "samples": 0, "notes": {}}
            rows.append(row)
            left.remove(begun)
            seen(row)
    return rows


class ChildDied(Exception):
    """A child ended before it had done everything."""


def _lines(run: Run, wanted: list[str] | None) -> Iterator[dict[str, Any]]:
    environment = os.environ | {
        "DL4ALL_DEVICE": run.device,
        "PYTHONPATH": str(ROOT),
        "PYTORCH_TEST_WITH_SLOW": "0",
        "OMP_NUM_THREADS": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", run.child],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    ) as child:
        assert child.stdin is not None
        child.stdin.write(run.request(wanted))
        child.stdin.close()
        said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        errors: list[str] = []

        def listen() -> None:
            for text in child.stdout or ():
                said.put(text)
            said.put(None)

        threading.Thread(target=listen).start()
        threading.Thread(target=lambda: errors.extend(child.stderr or ())).start()
        while True:
            try:
                line = said.get(timeout=PATIENCE)
            except queue.Empty:
                child.kill()
                raise ChildDied(f"nothing for {PATIENCE} s") from None
            if line is None:
                break
            if line.startswith("{"):
                yield json.loads(line)
        code = child.wait()
        if code:
            last = " ".join(errors[-1:]).strip()
            raise ChildDied(f"signal {-code}" if code < 0 else f"exit status {code}: {last}")


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)
