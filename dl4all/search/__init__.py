"""Search for networks: spaces, algorithms, and trials on every device (extra ``search``).

study.py                    the search: which trial comes next, and what came of it
├── space.py, choices.py    the networks that a function makes, and the hyperparameters it asks for
├── limits.py               costs that are known before training, and limits of them
├── spaces.py               ready-made ones
├── supernet.py, darts.py   weights that networks share, and gradients that choose between operations
├── proxies.py              scores of untrained networks
├── samplers/               algorithms beside Optuna's
├── storage.py              where trials are kept
├── trial_outcome.py        one trial
└── worker_processes.py     trials side by side; worker.py is what runs there
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dl4all.errors import BackendMissingError

if TYPE_CHECKING:
    from dl4all.search import proxies, samplers, spaces
    from dl4all.search.choices import Choices
    from dl4all.search.darts import DARTS, MixedOp
    from dl4all.search.limits import costs, latency
    from dl4all.search.space import Space
    from dl4all.search.study import run
    from dl4all.search.supernet import Supernet

MODULES = {
    "DARTS": "darts",
    "MixedOp": "darts",
    "Supernet": "supernet",
    "spaces": "spaces",
    "Choices": "choices",
    "Space": "space",
    "costs": "limits",
    "latency": "limits",
    "proxies": "proxies",
    "run": "study",
    "samplers": "samplers",
}
__all__ = [
    "DARTS",
    "Choices",
    "MixedOp",
    "Space",
    "Supernet",
    "costs",
    "latency",
    "proxies",
    "run",
    "samplers",
    "spaces",
]


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{MODULES[name]}")
    except ImportError as error:
        if str(error.name).startswith("dl4all"):
            raise
        raise BackendMissingError(
            f"[search] {error.name} is not installed: pip install 'dl4all[search]'"
        ) from None
    found = module if name == MODULES[name] else getattr(module, name)
    globals()[name] = found
    return found
