"""Models behind the Open Inference Protocol (KServe v2), over HTTP and gRPC.

server.py               the two listeners, start and stop
├── protocol/           requests and answers: bytes on one side, arrays on the other
├── served_models.py    the models by name: load, replace, unload, readiness
│   ├── repository.py   the folders that models come from
│   └── served_model.py one model: its queue, its checks, its answers
└── metrics.py          what Prometheus reads
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dl4all.serving.model_config import ModelConfig, TensorSpec

if TYPE_CHECKING:
    from dl4all.serving.server import Server

__all__ = ["ModelConfig", "Server", "TensorSpec"]


def __getattr__(name: str) -> Any:
    if name != "Server":  # which needs packages of the extra
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    server = import_module(f"{__name__}.server").Server
    globals()[name] = server
    return server
