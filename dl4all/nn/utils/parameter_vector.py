"""All parameters of a network as one vector."""

from __future__ import annotations

from collections.abc import Iterable

from dl4all import ops
from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, ShapeError
from dl4all.tensor.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters one after the other, with a gradient.

    Args:
        parameters: tensors on one device.

    Raises:
        ArgumentError: there is none.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.utils.parameters_to_vector([dl.ones(2, 2), dl.zeros(1)]).tolist()
        [1.0, 1.0, 1.0, 1.0, 0.0]
    """
    flat = [parameter.reshape(-1) for parameter in parameters]
    if not flat:
        raise ArgumentError("[parameters_to_vector] expected tensors, got none")
    result: Tensor = ops.cat(flat)
    return result


@no_grad()
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the elements of a vector into parameters, in the order of :func:`parameters_to_vector`.

    Args:
        vec: as many elements as all parameters together.
        parameters: tensors, whose elements change in place.

    Raises:
        ShapeError: there are fewer elements.

    Example:
        >>> import dl4all as dl
        >>> w = dl.nn.Parameter(dl.zeros(2))
        >>> dl.nn.utils.vector_to_parameters(dl.tensor([1.0, 2.0]), [w])
        >>> w.tolist()
        [1.0, 2.0]
    """
    targets = list(parameters)
    needed = sum(target.numel() for target in targets)
    if vec.ndim != 1 or vec.shape[0] < needed:
        raise ShapeError(f"[vector_to_parameters] expected a vector of {needed} elements, got {vec.shape}")
    start = 0
    for target in targets:
        target.copy_(vec[start : start + target.numel()].reshape(target.shape))
        start += target.numel()
