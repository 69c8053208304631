"""Products of vectors, matrices and batches of matrices; distances between vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all import autograd, ops
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.tensor_base import TensorBase, contiguous_strides
from dl4all.pytorch.device.dispatch.registration import declare
from dl4all.pytorch.device.storage.memory import NotNative


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """The product and the sum are one kernel where they are those of a linear layer."""
    _check_dtypes(input, mat1)
    if beta == 1 and alpha == 1 and len(input.shape) == 1 and len(mat1.shape) == len(mat2.shape) == 2:
        weight = ops.transpose(mat2, 0, 1)
        if weight.strides == contiguous_strides(weight.shape) and input.shape == weight.shape[:1]:
            return ops.linear(mat1, weight, input)
    return ops.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def _with_sum(function: Callable[..., Any]) -> Callable[..., Any]:
    """A product that is added to an operand of the same dtype."""

    def product(input: Any, left: Any, right: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        _check_dtypes(input, left)
        return function(input, left, right, beta=beta, alpha=alpha)

    return product


def _check_dtypes(input: TensorBase, factor: TensorBase) -> None:
    """
    Raises:
        NotNative: the dtypes differ, of which PyTorch makes an error, or are none of floats.
    """
    if input.dtype != factor.dtype or kind_of(input.dtype) != "f":
        raise NotNative(f"a sum of {input.dtype} with a product of {factor.dtype}")


def vdot(input: Any, other: Any) -> Any:
    return ops.dot(input, other)


def cross(input: Any, other: Any, *, dim: int = -1) -> Any:
    return ops.cross(input, other, dim)


def cdist(x1: Any, x2: Any, p: float, compute_mode: int | None) -> Any:
    return ops.cdist(x1, x2, p)


def cdist_backward(grad: Any, x1: Any, x2: Any, p: float, distances: Any) -> Any:
    """The gradient of the first operand; PyTorch asks for that of the other with the two swapped."""
    return autograd.vjp(lambda x: ops.cdist(x, x2, p), x1, grad)[1]


def pdist_backward(grad: Any, input: Any, p: float, distances: Any) -> Any:
    return autograd.vjp(lambda x: ops.pdist(x, p), input, grad)[1]


PRODUCTS: dict[str, Callable[..., Any]] = {
    "mm": ops.mm,
    "mv": ops.mv,
    "bmm": ops.bmm,
    "dot": ops.dot,
    "vdot": vdot,
    "addmm": addmm,
    "addmv": _with_sum(ops.addmv),
    "addr": _with_sum(ops.addr),
    "addbmm": _with_sum(ops.addbmm),
    "baddbmm": _with_sum(ops.baddbmm),
    "linalg_cross": cross,
}
DISTANCES: dict[str, Callable[..., Any]] = {
    "_cdist_forward": cdist,
    "_cdist_backward": cdist_backward,
    "_pdist_forward": ops.pdist,
    "_pdist_backward": pdist_backward,
}

for _name, _function in (PRODUCTS | DISTANCES).items():
    declare(_name, _function)
