"""Layers that merge axes or split one."""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.nn.module import Module
from dl4all.ops.core.strides import sizes
from dl4all.tensor.tensor import Tensor


class Flatten(Module):
    """Merge axes `start_dim` to `end_dim` into one; by default all axes but the first.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Flatten()(dl.rand(2, 3, 4)).shape
        (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split one axis into several: :meth:`dl4all.Tensor.unflatten` as a layer.

    Args:
        dim: the axis.
        unflattened_size: the sizes of the new axes; one may be -1.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Unflatten(1, (2, 3))(dl.zeros(5, 6)).shape
        (5, 2, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, sizes("Unflatten", (unflattened_size,))

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
