"""Bundles of small parameters on the CPU: a step updates all of them as one array.

NumPy takes longer to start a computation than to do it with a few thousand elements. So gradients and
parameters are gathered, updated and put back. The state lies in one array from the start: the tensors of each
parameter's state are views of it. The results are those of single updates, bit by bit.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.tensor_base import TensorBase, contiguous_strides, from_host
from dl4all.scheduler import capture
from dl4all.tensor.tensor import Tensor

NDArray = npt.NDArray[Any]

SMALL_ELEMENTS = 1 << 13
"""Parameters with more are updated faster where they lie."""
BUNDLE_ELEMENTS = 1 << 16
"""So many elements are in a bundle at most, so that a cache holds them."""


class Bundles(capture.Untracked):
    """The bundles of an optimizer's groups. Copies and pickles start empty.

    >>> import dl4all as dl
    >>> params = [dl.zeros(n, device="cpu") for n in (3, 5)]
    >>> [bundle.positions for bundle in Bundles().find("group", params)]
    [(0, 1)]
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[list[Any], list[Bundle]]] = {}

    def __reduce__(self) -> tuple[type[Bundles], tuple[()]]:
        return Bundles, ()

    def find(self, group: Hashable, params: Sequence[Tensor]) -> list[Bundle]:
        """The bundles of a group's parameters, as they lie in memory now. Others are in none."""
        key = [*params, *[p.storage for p in params]]
        found = self._found.get(group)
        if found is not None and len(found[0]) == len(key) and all(map(operator.is_, found[0], key)):
            return found[1]
        bundles = [Bundle(params, positions) for positions in _bundled(params)]
        self._found[group] = key, bundles
        return bundles


def _bundled(params: Sequence[Tensor]) -> list[tuple[int, ...]]:
    """The positions of the parameters of each bundle."""
    open_bundles: dict[Any, tuple[list[int], int]] = {}  # the last of each dtype, and its elements
    bundles: list[list[int]] = []
    storages: set[int] = set()
    for position, p in enumerate(params):
        elements, storage = p.numel(), id(p.storage)
        if not p.device.is_host or p.device.simulated is not None or not p.is_contiguous():
            continue
        if elements > SMALL_ELEMENTS or storage in storages:  # with common memory one comes after the other
            continue
        storages.add(storage)
        key = p.device, p.dtype
        bundle, filled = open_bundles.get(key, ([], BUNDLE_ELEMENTS))
        if filled + elements > BUNDLE_ELEMENTS:
            bundle, filled = [], 0
            bundles.append(bundle)
        bundle.append(position)
        open_bundles[key] = bundle, filled + elements
    return [tuple(bundle) for bundle in bundles if len(bundle) > 1]


class Bundle:
    """Small parameters of one dtype.

    Args:
        params: the parameters of a group.
        positions: which of them belong to the bundle.
    """

    def __init__(self, params: Sequence[Tensor], positions: tuple[int, ...]) -> None:
        self.positions = positions
        self._params = [params[position] for position in positions]
        ends = np.cumsum([0, *(p.numel() for p in self._params)]).tolist()
        self._starts, dtype = ends[:-1], self._params[0].dtype
        self._memory = [_flat(p) for p in self._params]
        self._values, self._gradients = np.empty((2, ends[-1]), dtype)
        self._parts = [self._values[a:b] for a, b in itertools.pairwise(ends)]
        self._states = np.empty((0, ends[-1]), dtype)
        self._tensors: list[Tensor] = []  # of the state, by parameters

    def own_state(self, states: Sequence[dict[str, Any]], names: Sequence[str], initial: float) -> None:
        """Let the parameters' states lie in the bundle's memory, with the values that they have.

        Args:
            states: of each parameter, the tensors by name.
            names: of the tensors.
            initial: the elements of a tensor that is not there yet.
        """
        tensors = [state.get(name) for state in states for name in names]
        if len(tensors) == len(self._tensors) and all(map(operator.is_, tensors, self._tensors)):
            return
        self._states = np.full((len(names), self._values.size), initial, self._values.dtype)
        device = self._params[0].device
        whole = from_host(Tensor, self._states, device, copy=False)
        self._tensors = []
        for p, start, state in zip(self._params, self._starts, states, strict=True):
            for row, name in enumerate(names):
                offset = row * self._values.size + start
                view = whole.as_strided(p.shape, contiguous_strides(p.shape), offset)
                if state.get(name) is not None:
                    view.on_host()[...] = state[name].to(device).on_host()
                state[name] = view
                self._tensors.append(view)

    def update(
        self, gradients: Sequence[TensorBase], update: Callable[..., None], constants: Sequence[float]
    ) -> None:
        """Update the parameters by ``update(parameter, gradient, states, *constants)``, with flat arrays."""
        np.concatenate(self._memory, out=self._values)
        np.concatenate(list(map(_flat, gradients)), out=self._gradients)
        with np.errstate(all="ignore"):
            update(self._values, self._gradients, list(self._states), *constants)
        for memory, part in zip(self._memory, self._parts, strict=True):
            np.copyto(memory, part)
        for p in self._params:
            p.storage.version += 1
        if self._tensors:
            self._tensors[0].storage.version += 1


def _flat(tensor: TensorBase) -> NDArray:
    """The elements of a tensor on the CPU as one axis: its own memory if they lie in order there."""
    storage = tensor.storage
    if storage.pending is not None:
        storage.settle()
    if not tensor.is_contiguous():
        return tensor.on_host().reshape(-1)
    dtype = tensor.dtype
    return np.ndarray((tensor.numel(),), dtype, storage.buffer.data, tensor.offset * dtype.itemsize)
