"""The backend by which einops' functions take this library's tensors, defined when einops is imported.

einops looks among the subclasses of its ``AbstractBackend`` for one whose framework is imported and that
knows the tensor. That class is einops' own, so ours can be defined only after it; it is then found with no
further call.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from dl4all import ops
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.ranges import arange
from dl4all.tensor.tensor import Tensor

BACKENDS = "einops._backends"


def define_when_imported() -> None:
    """Define the backend: now if einops is there, else once it has been imported."""
    if BACKENDS in sys.modules:
        define_backend(sys.modules[BACKENDS])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds nothing but einops' backends, by the other finders, to be called after they are loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != BACKENDS:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        loader: Any = spec and spec.loader
        if loader is not None:
            load = loader.exec_module

            def load_and_define(module: ModuleType) -> None:
                load(module)
                define_backend(module)

            loader.exec_module = load_and_define
        return spec


def define_backend(backends: Any) -> None:
    """Define the class of the backend, which einops finds as a subclass of its own.

    Args:
        backends: the module ``einops._backends``.
    """

    class Dl4allBackend(backends.AbstractBackend):  # type: ignore[misc] # a class of the module that came
        framework_name = "dl4all"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, Tensor)

        def from_numpy(self, x: Any) -> Tensor:
            return from_numpy(x)

        def to_numpy(self, x: Tensor) -> Any:
            return x.detach().cpu().numpy()

        def arange(self, start: int, stop: int) -> Tensor:
            return arange(start, stop)

        def reduce(self, x: Tensor, operation: str, reduced_axes: Sequence[int]) -> Tensor:
            name = {"min": "amin", "max": "amax"}.get(operation, operation)
            if name != "prod":
                result: Tensor = getattr(x, name)(dim=tuple(reduced_axes))
                return result
            for axis in sorted(reduced_axes, reverse=True):  # PyTorch's prod takes one axis, and so does ours
                x = x.prod(dim=axis)
            return x

        def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
            return x.permute(*axes)

        def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
            return ops.stack(tensors)

        def add_axis(self, x: Tensor, new_position: int) -> Tensor:
            return x.unsqueeze(new_position)

        def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Tensor:
            lengths = [-1] * n_axes
            for position, length in pos2len.items():
                x = x.unsqueeze(position)
                lengths[position] = length
            return x.expand(*lengths)

        def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
            return x.repeat(*repeats)

        def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
            return ops.cat(list(tensors), dim=axis)

        def is_float_type(self, x: Tensor) -> bool:
            return x.is_floating_point()

        def layers(self) -> ModuleType:
            return import_module("dl4all.einops")

        def einsum(self, pattern: str, *x: Tensor) -> Tensor:
            return ops.einsum(pattern, *x)

    backends.Dl4allBackend = Dl4allBackend  # a class holds its subclasses by weak references only
