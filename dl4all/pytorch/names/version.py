"""The version, as ``torch.version`` has it: of this library; there is neither CUDA nor HIP."""

from __future__ import annotations

__version__ = "0.1.0"

cuda: str | None = None
hip: str | None = None
xpu: str | None = None
debug = False
