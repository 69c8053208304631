"""``tensor[key]`` with every kind of key, read and written.

Ints and slices take part of a tensor's memory; lists, arrays and tensors of ints or bools pick elements.
Where they stand side by side, what they pick comes in their place, otherwise in front, as in PyTorch.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.indexing.indices import Indices, NDArray, joint
from dl4all.ops.indexing.rows import take_rows
from dl4all.ops.memory.views import index, permute, reshape

T = TypeVar("T", bound=TensorBase)


class Picks(NamedTuple):
    """A key that picks: a view of the tensor, and for some of that view's axes the places to take."""

    view: Any  # the key of ints, slices and None
    axes: tuple[int, ...]  # of the view, in rising order
    arrays: tuple[NDArray, ...]


def is_basic(key: Any) -> bool:
    """Whether a key selects a view."""
    if isinstance(key, tuple):
        return all(map(is_basic, key))
    return (
        key is None
        or key is Ellipsis
        or isinstance(key, slice)
        or (isinstance(key, (int, np.integer)) and not isinstance(key, bool))
    )


@export()
def getitem(input: T, key: Any) -> T:
    """The elements that a key selects: a view for ints, slices, None and ``...``, else a copy.

    Raises:
        ArgumentError: the key is of another kind, or out of range.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> x[1, 1].item(), x[[0, 2], [1, 0]].tolist(), x[x[:, 0].numpy() > 2].tolist()
        (4.0, [2.0, 5.0], [[3.0, 4.0], [5.0, 6.0]])
    """
    if is_basic(key):
        return index(input, key)
    return _picked(input, key)


@reads("key")
def _picked(input: T, key: Any) -> T:
    picks = parse(key, input.shape)
    return pick_from(index(input, picks.view), picks)


def pick_from(view: T, picks: Picks) -> T:
    """The elements of a view that arrays name."""
    flat = joint("index", picks.arrays, [view.shape[axis] for axis in picks.axes])
    first, count = picks.axes[0], len(picks.axes)
    if picks.axes != tuple(range(first, first + count)):
        rest = [axis for axis in range(len(view.shape)) if axis not in picks.axes]
        view, first = permute(view, *picks.axes, *rest), 0
    shape = view.shape
    outer, inner = shape[:first], shape[first + count :]
    rows = reshape(view, math.prod(outer), math.prod(shape[first : first + count]), math.prod(inner))
    made: T = reshape(take_rows(rows, Indices(flat)), (*outer, *flat.shape, *inner))
    return made


def parse(key: Any, shape: Shape) -> Picks:
    """What a key with arrays means for a tensor of a shape.

    Raises:
        ArgumentError: it has too many entries, or one of another kind.
    """
    entries = [_entry(k) for k in (key if isinstance(key, tuple) else (key,))]
    taken = [_taken(entry) for entry in entries]
    if _ellipses(entries) > 1:
        raise ArgumentError("[index] ... may come only once in an index")
    if sum(taken) > len(shape):
        raise ArgumentError(f"[index] the index selects more axes than shape {shape} has")
    if not _ellipses(entries):
        entries.append(Ellipsis)
    at = next(i for i, entry in enumerate(entries) if entry is Ellipsis)
    entries[at : at + 1] = [slice(None)] * (len(shape) - sum(taken))
    view: list[Any] = []
    axes: list[int] = []
    arrays: list[NDArray] = []
    axis = result = 0  # of the tensor, and of the view
    for entry in entries:
        if not isinstance(entry, np.ndarray):
            view.append(entry)
            axis += _taken(entry)
            result += 1 if entry is None or isinstance(entry, slice) else 0
            continue
        if entry.dtype != np.bool_:
            found: tuple[NDArray, ...] = (entry,)
            view.append(slice(None))
        elif entry.ndim == 0:  # one more axis, of size 1 or 0
            found = (np.zeros(int(entry), np.int64),)
            view.append(None)
        else:
            there = shape[axis : axis + entry.ndim]
            if entry.shape != there:
                raise ArgumentError(
                    f"[index] a mask of shape {entry.shape} does not fit axes of shape {there}"
                )
            found = np.nonzero(entry)
            view += [slice(None)] * entry.ndim
        axes += range(result, result + len(found))
        arrays += found
        axis += _taken(entry)
        result += len(found)
    return Picks(tuple(view), tuple(axes), tuple(arrays))


def _ellipses(entries: list[Any]) -> int:
    return sum(1 for entry in entries if entry is Ellipsis)


def _taken(entry: Any) -> int:
    """How many axes of the tensor an entry speaks of."""
    if isinstance(entry, np.ndarray):
        return entry.ndim if entry.dtype == np.bool_ else 1
    return 0 if entry is None or entry is Ellipsis else 1


def _entry(entry: Any) -> Any:
    """An entry of a key, arrays of all kinds as NumPy's.

    Raises:
        ArgumentError: it is of no kind that selects.
    """
    if is_basic(entry) and not isinstance(entry, tuple):
        return entry
    if isinstance(entry, TensorBase):
        array = entry.on_host()
    else:
        try:
            array = np.asarray(entry)
        except ValueError:
            array = np.asarray(None)
        if array.size == 0 and isinstance(entry, (list, tuple)):
            array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise ArgumentError(
            f"[index] {entry!r} is not an int, a slice, None, ... or ints or bools in a tensor, array or list"
        )
    return array


def region(target: TensorBase, key: Any) -> Any:
    """The view that a key of ints, slices, None and ... selects, without a history."""
    return target.as_strided(*strides.basic(key, target.shape, target.strides, target.offset))
