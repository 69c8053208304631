"""ONNX files: models of other libraries as modules, and modules as files for other libraries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dl4all.onnx.exporter.export import ExportSummary, export
    from dl4all.onnx.module import OnnxModule, load

__all__ = ["ExportSummary", "OnnxModule", "export", "load"]

_MODULES = {
    "ExportSummary": "exporter.export",
    "OnnxModule": "module",
    "export": "exporter.export",
    "load": "module",
}
"""The module that has a name: loaded when that is used, as most programs use none."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
