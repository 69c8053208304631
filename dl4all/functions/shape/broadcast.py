"""Broadcasting of shapes and of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Size
from dl4all.ops.elementwise.declare import broadcast_shapes as broadcast_shapes_of
from dl4all.ops.memory.views import expand


@export("dl")
def broadcast_shapes(*shapes: int | Sequence[int]) -> Size:
    """The shape that tensors of some shapes broadcast to.

    Raises:
        ArgumentError: they do not broadcast, or a size is no int.

    Example:
        >>> import dl4all as dl
        >>> dl.broadcast_shapes((2, 1), (3,), ())
        (2, 3)
    """
    given = [strides.sizes("broadcast_shapes", (shape,)) for shape in shapes]
    try:
        return Size(np.broadcast_shapes(*given))
    except ValueError as error:
        raise ArgumentError(f"[broadcast_shapes] {given} do not broadcast: {error}") from None


@export("dl")
def broadcast_tensors(*tensors: Array) -> tuple[Array, ...]:
    """Views of tensors, broadcast to their common shape.

    Raises:
        ShapeError: they do not broadcast.

    Example:
        >>> import dl4all as dl
        >>> [x.shape for x in dl.broadcast_tensors(dl.zeros(3, 1), dl.zeros(2))]
        [(3, 2), (3, 2)]
    """
    shape = broadcast_shapes_of("broadcast_tensors", tensors)
    return tuple(x if x.shape == shape else expand(x, shape) for x in tensors)
