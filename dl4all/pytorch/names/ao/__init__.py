"""``torch.ao``: quantisation under its longer name."""

from __future__ import annotations

from dl4all import quantization

__all__ = ["quantization"]
