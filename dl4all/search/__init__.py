"""Search for networks: spaces, algorithms, and trials on every device (extra ``search``).

study.py                    the search: which trial comes next, and what came of it
├── space.py, choices.py    the networks that a function makes, and the hyperparameters it asks for
├── limits.py               costs that are known before training, and limits of them
├── spaces.py               ready-made ones
├── supernet.py, darts.py   weights that networks share, and gradients that choose between operations
├── proxies.py              scores of untrained networks
├── samplers/               algorithms beside Optuna's
├── storage.py              where trials are kept
├── plots.py                pictures of a study
├── trial_outcome.py        one trial
└── worker_processes.py     trials side by side; worker.py is what runs there
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dl4all.lazy_names import lazy_names

if TYPE_CHECKING:
    from dl4all.search import plots, proxies, samplers, spaces
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
    "plots": "plots",
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
    "plots",
    "proxies",
    "run",
    "samplers",
    "spaces",
]


__getattr__ = lazy_names(__name__, MODULES, extra="search")
