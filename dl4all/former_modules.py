"""Modules under the names that they had before: ``import dl4all.graph.compiled`` goes on working."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

FORMER = {
    "dl4all.graph.compiled": "dl4all.graph.run.compiled",
    "dl4all.graph.trace": "dl4all.graph.tracing.trace",
    "dl4all.multi_device.inference_queue": "dl4all.multi_device.serving.inference_queue",
    "dl4all.scheduler.simulation": "dl4all.scheduler.cost.simulation",
    "dl4all.scheduler.statistics": "dl4all.scheduler.monitor.statistics",
}
"""Modules that pages or benchmarks named, and their places now."""


class FormerModules:
    """A finder of ``sys.meta_path`` that has the module itself, not a copy."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, _Loader(FORMER[fullname])) if fullname in FORMER else None


class _Loader(Loader):
    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import has put the former one in its place
