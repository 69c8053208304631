"""Several tensors as one of one axis and back, under the names of ``torch._utils``."""

from __future__ import annotations

from collections.abc import Sequence

from dl4all import ops
from dl4all.errors import ShapeError
from dl4all.tensor.tensor import Tensor

__all__ = ["_flatten_dense_tensors", "_unflatten_dense_tensors"]


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of tensors of one dtype, one after the other.

    Example:
        >>> import dl4all as dl
        >>> _flatten_dense_tensors([dl.tensor([[1, 2]]), dl.tensor(3)]).tolist()
        [1, 2, 3]
    """
    return ops.cat([ops.reshape(tensor, -1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of the parts of a tensor of one axis, with the shapes of others.

    Raises:
        ShapeError: there are more or fewer elements.

    Example:
        >>> import dl4all as dl
        >>> [part.tolist() for part in _unflatten_dense_tensors(dl.arange(3), [dl.ones(1, 2), dl.tensor(3)])]
        [[[0, 1]], 2]
    """
    sizes = [tensor.numel() for tensor in tensors]
    if flat.ndim != 1 or sum(sizes) != flat.numel():
        raise ShapeError(
            f"[_unflatten_dense_tensors] expected {sum(sizes)} elements along one axis, got {flat.shape}"
        )
    parts = ops.split(flat, sizes)
    return tuple(ops.reshape(part, tensor.shape) for part, tensor in zip(parts, tensors, strict=True))
