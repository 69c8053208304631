"""Other names of modules: those of PyTorch's, as in ``import dl4all.cuda``, and those of earlier versions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

NAMES = (
    "_utils", "accelerator", "ao", "backends", "compiler", "cuda", "einops", "einops_backend", "fx", "hub",
    "jit", "mps", "multiprocessing", "process_settings", "profiler", "random", "special", "utils", "version",
    "xpu",
)  # fmt: skip
"""Modules of PyTorch's at the top level, which lie in ``dl4all.pytorch.names``."""

ALIASES = {
    **{f"dl4all.{name}": f"dl4all.pytorch.names.{name}" for name in NAMES},
    **{f"dl4all.{name}": f"dl4all.functions.{name}" for name in ("func", "linalg", "sparse")},
    "dl4all.torch": "dl4all.pytorch.device",
}
"""The names of modules by those under which people import them; whatever lies in a module goes with it."""

LAYERS = (
    "activation", "container", "conv", "dropout", "embedding", "flatten", "lazy", "linear", "loss",
    "normalization", "padding", "pooling", "rnn", "transformer", "upsampling",
)  # fmt: skip
"""Modules of layers: models that were pickled by earlier versions name their classes there."""

FORMER = {
    **{f"dl4all.nn.{name}": f"dl4all.nn.modules.{name}" for name in LAYERS},
    "dl4all.ao.quantization": "dl4all.quantization",
    "dl4all.graph.compiled": "dl4all.graph.run.compiled",
    "dl4all.graph.trace": "dl4all.graph.tracing.trace",
    "dl4all.multi_device.inference_queue": "dl4all.multi_device.serving.inference_queue",
    "dl4all.ops.core.autotune": "dl4all.ops.core.kernels.autotune",
    "dl4all.scheduler.simulation": "dl4all.scheduler.cost.simulation",
    "dl4all.scheduler.statistics": "dl4all.scheduler.monitor.statistics",
}
"""The names of modules by those that they had in earlier versions, where pages or files name them, and by
longer ones of PyTorch's."""


def module_name(alias: str) -> str | None:
    """The name of the module that has another name; None if it has none.

    >>> module_name("dl4all.utils.data")
    'dl4all.pytorch.names.utils.data'
    """
    begin, rest = alias, ""
    while begin:
        if (name := ALIASES.get(begin) or FORMER.get(begin)) is not None:
            return name + rest
        begin, _, last = begin.rpartition(".")
        rest = f".{last}{rest}"
    return None


def public_name(module: str) -> str:
    """The name under which people import a module.

    >>> public_name("dl4all.pytorch.names.utils.data")
    'dl4all.utils.data'
    """
    for alias, name in ALIASES.items():
        if f"{module}.".startswith(f"{name}."):
            return alias + module.removeprefix(name)
    return module


class AliasFinder:
    """A finder of ``sys.meta_path`` that has the module itself, not a second one of the same file."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = module_name(fullname) if fullname.startswith("dl4all.") else None
        if name is None or find_spec(name) is None:
            return None
        return ModuleSpec(fullname, ExistingModule(name))


class ExistingModule(Loader):
    """The loader of a module that is there under another name, or since it was asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import has put the alias's in its place


def install() -> None:
    """Let modules be imported under their other names."""
    if AliasFinder not in sys.meta_path:  # where dl4all is imported anew
        sys.meta_path.insert(0, AliasFinder)  # before the finder of files
