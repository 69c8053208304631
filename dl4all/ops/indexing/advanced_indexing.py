"""``tensor[key]``: parsing of keys, and reading.

Basic keys (ints, slices, None and ``...``) select a view. Advanced keys also contain lists, arrays or tensors
of ints or bools and select a copy. The axes of an advanced result stand where the index arrays stand if these
are adjacent, and otherwise in front, as in NumPy and PyTorch.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple, TypeGuard, TypeVar

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.indexing.host_selection import select
from dl4all.ops.indexing.indices import Indices, NDArray, flat_indices, indices_into, out_of_range
from dl4all.ops.indexing.rows import each_once, steps_of, take_rows, take_rows_backward
from dl4all.ops.memory.parts import BasicIndex, index
from dl4all.ops.memory.views import permute, reshape

T = TypeVar("T", bound=TensorBase)


class AdvancedIndex(NamedTuple):
    """A parsed key: a basic key that selects a view, and index arrays for some axes of this view."""

    view_key: Any  # of ints, slices and None
    axes: tuple[int, ...]  # of the view, ascending
    arrays: tuple[NDArray | TensorBase, ...]  # tensors of ints stay where they are

    def adjacent(self) -> bool:
        """Whether the indexed axes are neighbours."""
        return self.axes == tuple(range(self.axes[0], self.axes[0] + len(self.axes)))


def is_basic(key: Any) -> TypeGuard[BasicIndex]:
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
def getitem(input: T, key: object) -> T:
    """Select elements by a key: a view for ints, slices, None and ``...``, otherwise a copy.

    Raises:
        ArgumentError: the key is of another type, or out of range.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> x[1, 1].item(), x[[0, 2], [1, 0]].tolist(), x[x[:, 0].numpy() > 2].tolist()
        (4.0, [2.0, 5.0], [[3.0, 4.0], [5.0, 6.0]])
    """
    if key.__class__ is int or is_basic(key):  # the quicker question first
        return index(input, key)
    return _advanced_getitem(input, key)


@reads("key")
def _advanced_getitem(input: T, key: Any) -> T:
    if isinstance(key, TensorBase) and kind_of(key.dtype) in "iu" and input.shape:
        error = partial(out_of_range, "index", input.shape[0])
        whole: T | None = select("index", input, key, 0, error, negative=True)
        if whole is not None:
            return whole
        flat, selected = indices_into("index", key, input.shape[0], input, negative=True)
        return _rows_of(input, flat, selected)
    parsed = parse_key(key, input.shape)
    view = index(input, parsed.view_key)
    sizes = tuple([view.shape[axis] for axis in parsed.axes])
    view = each_once(view, parsed.axes)
    once = tuple([view.shape[axis] for axis in parsed.axes])
    flat, selected = flat_indices("index", parsed.arrays, sizes, input, steps_of(once, sizes))
    first, count = parsed.axes[0], len(parsed.axes)
    if not parsed.adjacent():
        others = [axis for axis in range(len(view.shape)) if axis not in parsed.axes]
        view, first = permute(view, *parsed.axes, *others), 0
    shape = view.shape
    outer, inner = shape[:first], shape[first + count :]
    rows = reshape(view, math.prod(outer), math.prod(shape[first : first + count]), math.prod(inner))
    result: T = reshape(take_rows(rows, flat), (*outer, *selected, *inner))
    return result


def _rows_of(input: T, rows: Indices, shape: Shape) -> T:
    """The elements along the first axis that indices of a shape name."""
    size, rest = input.shape[0], input.shape[1:]
    inner = math.prod(rest)
    table = reshape(tape.alias(input), 1, size, inner)
    result: T = reshape(take_rows(table, rows), (*shape, *rest))

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        g = reshape(grads[0], 1, len(rows), inner)
        return [reshape(take_rows_backward(g, rows, size), (size, *rest))]

    tape.add_node("index", [input], [result], backward, single_use=True)
    return result


def parse_key(key: Any, shape: Shape) -> AdvancedIndex:
    """Parse an advanced key for a tensor of a shape.

    Raises:
        ArgumentError: the key has too many entries, or one of an unknown type.
    """
    entries = [_array_or_basic(entry) for entry in (key if isinstance(key, tuple) else (key,))]
    indexed = sum(map(_indexed_axes, entries))
    if _ellipses(entries) > 1:
        raise ArgumentError("[index] ... may come only once in an index")
    if indexed > len(shape):
        raise ArgumentError(f"[index] the index selects more axes than shape {shape} has")
    if not _ellipses(entries):
        entries.append(Ellipsis)
    position = next(i for i, entry in enumerate(entries) if entry is Ellipsis)
    entries[position : position + 1] = [slice(None)] * (len(shape) - indexed)
    view_key: list[Any] = []
    axes: list[int] = []
    arrays: list[NDArray | TensorBase] = []
    axis = view_axis = 0  # the next axis of the tensor, and of the view
    for entry in entries:
        if not isinstance(entry, (np.ndarray, TensorBase)):
            view_key.append(entry)
            axis += _indexed_axes(entry)
            view_axis += 1 if entry is None or isinstance(entry, slice) else 0
            continue
        integers: tuple[NDArray | TensorBase, ...]
        if isinstance(entry, TensorBase) or entry.dtype != np.bool_:
            integers = (entry,)
            view_key.append(slice(None))
        elif entry.ndim == 0:  # a single bool adds an axis of size 1 or 0
            integers = (np.zeros(int(entry), np.int64),)
            view_key.append(None)
        else:
            masked = shape[axis : axis + entry.ndim]
            if entry.shape != masked:
                raise ArgumentError(
                    f"[index] a mask of shape {entry.shape} does not fit axes of shape {masked}"
                )
            integers = np.nonzero(entry)
            view_key += [slice(None)] * entry.ndim
        axes += range(view_axis, view_axis + len(integers))
        arrays += integers
        axis += _indexed_axes(entry)
        view_axis += len(integers)
    return AdvancedIndex(tuple(view_key), tuple(axes), tuple(arrays))


def _ellipses(entries: list[Any]) -> int:
    return sum(1 for entry in entries if entry is Ellipsis)


def _indexed_axes(entry: Any) -> int:
    """The number of axes of the tensor that an entry of a key indexes."""
    if isinstance(entry, (np.ndarray, TensorBase)):
        return len(entry.shape) if entry.dtype == np.bool_ else 1
    return 0 if entry is None or entry is Ellipsis else 1


def _array_or_basic(entry: Any) -> Any:
    """A basic entry of a key and a tensor of ints as they are, any other as a NumPy array.

    Raises:
        ArgumentError: the entry is of an unknown type.
    """
    if is_basic(entry) and not isinstance(entry, tuple):
        return entry
    if isinstance(entry, TensorBase):
        if kind_of(entry.dtype) in "iu":
            return entry
        array = entry.on_host()
    else:
        try:
            array = np.asarray(entry)
        except ValueError:
            array = np.asarray(None)
        if array.size == 0 and isinstance(entry, (list, tuple)):
            array = array.astype(np.int64)
    if kind_of(array.dtype) not in "biu":
        raise ArgumentError(
            f"[index] {entry!r} is not an int, a slice, None, ... or ints or bools in a tensor, array or list"
        )
    return array
