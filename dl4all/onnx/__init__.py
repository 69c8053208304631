"""ONNX files: models of other libraries as modules, and modules as files for other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dl4all.lazy_names import lazy_names

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
__getattr__ = lazy_names(__name__, _MODULES)
