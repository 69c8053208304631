"""ONNX files: models of other libraries as modules."""

from __future__ import annotations

from dl4all.onnx.export import export
from dl4all.onnx.module import OnnxModule, load

__all__ = ["OnnxModule", "export", "load"]
