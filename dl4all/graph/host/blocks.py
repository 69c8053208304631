"""Several steps on the same elements, block by block: a block stays in the cache from step to step."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.ops.conv.convolution import ConvArgs
from dl4all.ops.conv.on_host import convolution as host
from dl4all.ops.conv.scratch import KeptScratch
from dl4all.ops.core.kernels.host_work import TENSOR, BodyCall
from dl4all.ops.core.tensor_base import Shape

NDArray = npt.NDArray[Any]
BLOCK_ELEMENTS = 2**14
CHUNK_ELEMENTS = 2**18  # results of a convolution until the steps behind it follow


class BlockStep(NamedTuple):
    """A step: ``function(*operands, out)``, or one that returns what belongs into `out`."""

    function: Callable[..., Any]
    places: tuple[int, ...]  # of the operands among the arrays, and of the result
    writes: bool


@dataclass(frozen=True)
class Convolution:
    """A convolution, and the place of its result among the arrays.

    ``operands`` says which of image, filters and bias are given.
    """

    operands: tuple[bool, ...]
    args: ConvArgs
    place: int

    def bound(self, given: Sequence[NDArray], out: NDArray, scratch: KeptScratch) -> Callable[[], object]:
        """The convolution bound to these arrays."""
        arrays = iter(given)
        x, w, bias = (next(arrays) if is_given else None for is_given in self.operands)
        assert x is not None
        assert w is not None
        window = self.args.window(w.shape[2:])
        return functools.partial(host.forward, x, w, bias, window, self.args.groups, out, scratch)


def convolution_of(call: BodyCall, place: int) -> Convolution:
    """The convolution that the body of an op computes."""
    names = inspect.signature(ConvArgs).parameters
    args = ConvArgs(**{name: value for name, value in call.arguments.items() if name in names})
    return Convolution(tuple(operand is TENSOR for operand in call.operands), args, place)


@dataclass(frozen=True)
class Blocks:
    """The function of a group of calls.

    Args:
        shape: of all arrays of the steps, with as few axes as they need, but at least one.
        dtypes: of these arrays.
        outside: which of them are given; the others are needed for a block at a time only.
        parts: the steps in order.
        whole: the shape with all its axes.
        convolution: computes one of the arrays first, a few images at a time, along the first axis.
    """

    shape: Shape
    dtypes: tuple[np.dtype[Any], ...]
    outside: tuple[int, ...]
    parts: tuple[BlockStep, ...]
    whole: Shape
    convolution: Convolution | None = None
    scratch: KeptScratch = field(default_factory=KeptScratch, compare=False)  # of one group after the other

    def __call__(self, *given: NDArray) -> None:
        self.bound(given)()

    def bound(self, given: Sequence[NDArray]) -> Callable[[], None]:
        """The work bound to these arrays."""
        count = len(given) - len(self.outside)
        operands, arrays = given[:count], [None] * len(self.dtypes)
        for place, array in zip(self.outside, given[count:], strict=True):
            arrays[place] = array  # type: ignore[call-overload]
        if self.convolution is None:
            return self._steps(arrays, self.shape)
        return self._chunks(operands, arrays)

    def _chunks(self, operands: Sequence[NDArray], arrays: Sequence[Any]) -> Callable[[], None]:
        """Convolve some images and take the steps with them, and so on."""
        assert self.convolution is not None
        images, place = self.shape[0], self.convolution.place
        chunk = max(1, CHUNK_ELEMENTS // math.prod(self.shape[1:]))
        work: list[Callable[[], object]] = []
        for first in range(0, images, chunk):
            part = slice(first, min(first + chunk, images))
            count = part.stop - first
            pieces = [None if array is None else array[part] for array in arrays]
            if pieces[place] is None:
                shape = (count, *self.shape[1:])
                pieces[place] = self.scratch.take("result", shape, self.dtypes[place])
            x, *rest = operands
            out = pieces[place].reshape(count, *self.whole[1:])  # type: ignore[union-attr]
            work.append(self.convolution.bound((x[part], *rest), out, self.scratch))
            if self.parts:
                work.append(self._steps(pieces, (count, *self.shape[1:])))
        return _Sequence(work)

    def _steps(self, arrays: Sequence[Any], shape: Shape) -> Callable[[], None]:
        """The steps on arrays of that shape, block by block."""
        axis, step = _block_axis(shape)
        block = (step, *shape[axis + 1 :])
        missing = {
            place: self.scratch.take(f"block {place}", block, self.dtypes[place])
            for place, array in enumerate(arrays)
            if array is None
        }
        blocks = [
            [
                (array[index] if array is not None else missing[place][: _length(index)])
                for place, array in enumerate(arrays)
            ]
            for index in _indices(shape, axis, step)
        ]
        if not all(part.writes for part in self.parts):
            return _Returning(self.parts, blocks, tuple(array is None for array in arrays))
        return _BlockCalls(
            [
                (part.function, tuple(block[place] for place in part.places))
                for block in blocks
                for part in self.parts
            ]
        )


def _indices(shape: Shape, axis: int, step: int) -> Iterator[tuple[Any, ...]]:
    """The parts of arrays that are the blocks."""
    for lead in itertools.product(*map(range, shape[:axis])):
        for first in range(0, shape[axis], step):
            yield (*lead, slice(first, min(first + step, shape[axis])))


def _length(index: tuple[Any, ...]) -> int:
    """The size of a block along its first axis."""
    length: int = index[-1].stop - index[-1].start
    return length


@dataclass(frozen=True)
class _BlockCalls:
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]

    def __call__(self) -> None:
        for function, arguments in self.calls:
            function(*arguments)


@dataclass(frozen=True)
class _Returning:
    """Steps of which some return a new array."""

    parts: tuple[BlockStep, ...]
    blocks: list[list[Any]]
    inner: tuple[bool, ...]

    def __call__(self) -> None:
        for block in self.blocks:
            views = list(block)
            for function, places, writes in self.parts:
                *operands, out = places
                if writes:
                    function(*(views[place] for place in operands), views[out])
                elif self.inner[out]:
                    result = function(*(views[place] for place in operands))
                    views[out] = np.broadcast_to(np.asarray(result, views[out].dtype), views[out].shape)
                else:
                    views[out][...] = function(*(views[place] for place in operands))


@dataclass(frozen=True)
class _Sequence:
    work: list[Callable[[], object]]

    def __call__(self) -> None:
        for one in self.work:
            one()


def _block_axis(shape: Shape) -> tuple[int, int]:
    """The axis along which blocks lie, and their size along it.

    >>> _block_axis((8, 64, 1000)), _block_axis((100000,))
    ((1, 16), (0, 16384))
    """
    axis = len(shape) - 1
    while axis > 0 and math.prod(shape[axis:]) <= BLOCK_ELEMENTS:
        axis -= 1
    return axis, max(1, min(shape[axis], BLOCK_ELEMENTS // max(1, math.prod(shape[axis + 1 :]))))
