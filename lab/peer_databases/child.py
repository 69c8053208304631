"""What runs in a process of its own: entries of a database, each computed by dl4all and by PyTorch."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from typing import Any

import torch

from lab.torch_databases.runs import say

DATABASES = {"ops": "operators", "modules": "modules", "optimizers": "optimizers", "aliases": "aliases"}
"""Modules with ``entries(dtype)``, which gives entries by name, and ``check(name, entry, dtype, *,
variants)``, which gives an Outcome."""


def database_module(name: str) -> Any:
    return importlib.import_module(f"lab.peer_databases.{DATABASES[name]}")


def run(database: str, names: list[str], dtype: str, mode: str, variants: bool) -> None:
    """Check these entries.

    Args:
        database: one of `DATABASES`.
        names: of entries.
        dtype: of samples.
        mode: has no meaning here.
        variants: whether also methods, other layouts, in place and ``out=``.
    """
    torch.set_num_threads(1)
    kind = database_module(database)
    entries = kind.entries(getattr(torch, dtype))
    for name in names:
        say(begun=name)
        say(ended=kind.check(name, entries[name], getattr(torch, dtype), variants=variants).as_row())


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    request = json.loads(sys.stdin.read())
    if request["names"] is None:
        named = database_module(request["database"]).entries(getattr(torch, request["dtype"]))
        say(entries=list(named))
    else:
        run(**request)
