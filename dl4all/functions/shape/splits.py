"""tensor_split, hsplit, vsplit and dsplit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import PARTS, integer
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.indexing.indices import integer_indices
from dl4all.ops.memory.parts import narrow


@export("dl", "Tensor")
def tensor_split(
    input: Array,
    indices_or_sections: int | Sequence[int] | Array | None = None,
    dim: int = 0,
    *,
    sections: int | None = None,
    indices: Sequence[int] | None = None,
) -> tuple[Array, ...]:
    """Views of the parts of a tensor along an axis.

    Args:
        input: a tensor.
        indices_or_sections: the number of parts, the first of which may be larger by one; or the indices
            at which all parts but the first begin.
        dim: the axis.
        sections, indices: one of them, in place of `indices_or_sections`.

    Raises:
        ArgumentError: there is no such axis, no part, or more than a list can hold.

    Example:
        >>> import dl4all as dl
        >>> [part.tolist() for part in dl.tensor_split(dl.arange(5), 2)]
        [[0, 1, 2], [3, 4]]
        >>> [part.tolist() for part in dl.tensor_split(dl.arange(5), (1, 3))]
        [[0], [1, 2], [3, 4]]
    """
    given = [part for part in (indices_or_sections, sections, indices) if part is not None]
    if len(given) != 1:
        raise ArgumentError(f"[tensor_split] expected the indices or the number of parts once, got {given}")
    (indices_or_sections,) = given
    axis = strides.axis("tensor_split", dim, len(input.shape))
    size = input.shape[axis]
    if isinstance(indices_or_sections, int):
        integer("tensor_split", "the number of parts", indices_or_sections, least=1, most=PARTS)
    array = integer_indices("tensor_split", indices_or_sections)
    if array.ndim:
        boundaries = [slice(None, int(index)).indices(size)[1] for index in array]
    else:
        parts = int(array)
        if parts < 1:
            raise ArgumentError(f"[tensor_split] expected at least one part, got {parts}")
        boundaries = np.cumsum([size // parts + (i < size % parts) for i in range(parts - 1)]).tolist()
    starts, ends = [0, *boundaries], [*boundaries, size]
    return tuple(
        narrow(input, axis, start, max(end - start, 0)) for start, end in zip(starts, ends, strict=True)
    )


def _equal_split(
    name: str, input: Array, indices_or_sections: int | Sequence[int] | Array, axis: int, min_axes: int
) -> tuple[Array, ...]:
    """Parts of equal size, or parts that begin at given indices.

    Raises:
        ArgumentError: there are too few axes, or the axis is no multiple of the number of parts.
    """
    if len(input.shape) < min_axes:
        raise ArgumentError(f"[{name}] expected at least {min_axes} axes, got shape {input.shape}")
    parts = indices_or_sections
    if isinstance(parts, int) and (parts < 1 or input.shape[axis] % parts):
        raise ArgumentError(
            f"[{name}] axis {axis} of shape {input.shape} does not split into {parts} equal parts; "
            "see tensor_split"
        )
    return tensor_split(input, parts, axis)


@export("dl", "Tensor")
def hsplit(input: Array, indices_or_sections: int | Sequence[int] | Array) -> tuple[Array, ...]:
    """:func:`tensor_split` in equal parts along the second axis, or along the only axis of a 1-d tensor.

    Raises:
        ArgumentError: there is no axis, or it does not split evenly.

    Example:
        >>> import dl4all as dl
        >>> [part.shape for part in dl.hsplit(dl.zeros(2, 4), 2)]
        [(2, 2), (2, 2)]
    """
    return _equal_split("hsplit", input, indices_or_sections, 0 if len(input.shape) == 1 else 1, 1)


@export("dl", "Tensor")
def vsplit(input: Array, indices_or_sections: int | Sequence[int] | Array) -> tuple[Array, ...]:
    """:func:`tensor_split` in equal parts along the first of at least two axes.

    Raises:
        ArgumentError: there are too few axes, or the axis does not split evenly.

    Example:
        >>> import dl4all as dl
        >>> [part.shape for part in dl.vsplit(dl.zeros(4, 2), 2)]
        [(2, 2), (2, 2)]
    """
    return _equal_split("vsplit", input, indices_or_sections, 0, 2)


@export("dl", "Tensor")
def dsplit(input: Array, indices_or_sections: int | Sequence[int] | Array) -> tuple[Array, ...]:
    """:func:`tensor_split` in equal parts along the third axis.

    Raises:
        ArgumentError: there are too few axes, or the axis does not split evenly.

    Example:
        >>> import dl4all as dl
        >>> [part.shape for part in dl.dsplit(dl.zeros(1, 2, 4), 2)]
        [(1, 2, 2), (1, 2, 2)]
    """
    return _equal_split("dsplit", input, indices_or_sections, 2, 3)
