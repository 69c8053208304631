"""What runs in a process of its own: some entries of a database, a line of JSON when each begins and ends.

The parent learns from these which entry a process died of.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

logging.disable(logging.WARNING)

import torch  # noqa: E402

import dl4all.torch  # noqa: E402
from lab.torch_databases import (  # noqa: E402
    metas,
    modules,
    operators,
    optimizers,
)
from lab.torch_databases.runs import say  # noqa: E402

DATABASES: dict[str, Any] = {
    "ops": operators,
    "modules": modules,
    "optimizers": optimizers,
    "metas": metas,
}


def run(database: str, names: list[str], dtype: str, mode: str, variants: bool) -> None:
    """Check these entries; all where no names are given.

    Args:
        database: one of `DATABASES`, or several with ``+`` between them.
        names: of entries.
        dtype: of samples.
        mode: ``native``, where nothing may run on the CPU, or ``fallback``.
        variants: whether ops are computed in other layouts, in place and with ``out=``, too.
    """
    torch.set_num_threads(1)
    dl4all.torch.set_fallback("error" if mode == "native" else "silent")
    if mode == "native":
        os.environ["DL4ALL_FALLBACK"] = "error"
    kinds = {
        name: (kind, entry)
        for kind in map(DATABASES.__getitem__, database.split("+"))
        for name, entry in kind.entries(getattr(torch, dtype)).items()
    }
    for name in names:
        say(begun=name)
        kind, entry = kinds[name]
        outcome = kind.check(name, entry, getattr(torch, dtype), variants=variants)
        say(ended=outcome.as_row())


if __name__ == "__main__":
    request = json.loads(sys.stdin.read())
    if request["names"] is None:
        say(entries=list(DATABASES[request["database"]].entries(getattr(torch, request["dtype"]))))
    else:
        run(**request)
