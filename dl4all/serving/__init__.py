"""Models behind the Open Inference Protocol (KServe v2), over HTTP and gRPC.

server.py               the two listeners, start and stop
├── protocol/           requests and answers: bytes on one side, arrays on the other
├── served_models.py    the models by name: load, replace, unload, readiness
│   ├── repository.py   the folders that models come from
│   └── served_model.py one model: its queue, its checks, its answers
└── metrics.py          what Prometheus reads
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dl4all.lazy_names import lazy_names
from dl4all.serving.model_config import ModelConfig, TensorSpec

if TYPE_CHECKING:
    from dl4all.serving.server import Server

__all__ = ["ModelConfig", "Server", "TensorSpec"]
__getattr__ = lazy_names(__name__, {"Server": "server"})  # which needs packages of the extra
