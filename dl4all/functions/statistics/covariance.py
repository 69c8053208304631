"""Covariance and correlation of variables."""

from __future__ import annotations

from dl4all.errors import DTypeError, ShapeError
from dl4all.functions.elementwise.unary import as_float
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import mul, sub, true_divide
from dl4all.ops.elementwise.comparison import clamp
from dl4all.ops.elementwise.transcendental import sqrt
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.parts import diagonal
from dl4all.ops.memory.views import reshape, transpose, unsqueeze
from dl4all.ops.reduce.sums import sum


@export("dl", "Tensor")
def cov(
    input: Array, *, correction: int = 1, fweights: Array | None = None, aweights: Array | None = None
) -> Array:
    """The covariances of variables.

    Args:
        input: numbers of shape (variables, observations), or of one variable's observations.
        correction: subtracted from the number of observations in the divisor.
        fweights: how often each observation was made, ints of shape (observations,).
        aweights: how much each observation counts, of shape (observations,).

    Returns:
        Shape (variables, variables); () for one variable.

    Raises:
        ShapeError: the input has more than two axes, or weights do not fit.
        DTypeError: the input is of bools, or `fweights` are not integers.

    Example:
        >>> import dl4all as dl
        >>> dl.cov(dl.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    if len(input.shape) > 2:
        raise ShapeError(f"[cov] expected (variables, observations), got shape {input.shape}")
    if kind_of(input.dtype) == "b":
        raise DTypeError("[cov] expected numbers, got bool; convert with .float()")
    if fweights is not None and kind_of(fweights.dtype) not in "iu":
        raise DTypeError(f"[cov] fweights must be integers, got {fweights.dtype}")
    x = input if len(input.shape) == 2 else reshape(input, 1, -1)
    x = as_float(x) if aweights is None else x  # floats by the weights' dtype
    count = x.shape[1]
    weights = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None:
            if given.shape != (count,):
                raise ShapeError(f"[cov] {name} must have shape ({count},), got {given.shape}")
            weights = given if weights is None else mul(weights, given)
    total = float(count) if weights is None else sum(weights)
    sums = sum(x if weights is None else mul(x, weights), 1, keepdim=True)
    deviations = sub(x, true_divide(sums, total))
    lost = correction if aweights is None else correction * sum(mul(weights, aweights)) / total
    freedom = total - lost
    freedom = max(freedom, 0.0) if isinstance(freedom, float) else clamp(freedom, min=0)
    scaled = deviations if weights is None else mul(deviations, weights)
    result = true_divide(matmul(scaled, transpose(deviations, 0, 1)), freedom)
    return reshape(result, ()) if result.shape == (1, 1) else result


@export("dl", "Tensor")
def corrcoef(input: Array) -> Array:
    """The correlation coefficients of variables: covariances divided by both standard deviations.

    Args:
        input: numbers of shape (variables, observations), or of one variable's observations.

    Returns:
        Shape (variables, variables), from -1 to 1; () for one variable.

    Raises:
        ShapeError, DTypeError: as for :func:`cov`.

    Example:
        >>> import dl4all as dl
        >>> [[round(r, 4) for r in row] for row in dl.corrcoef(dl.tensor([[0.0, 1, 2], [4, 2, 0]])).tolist()]
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    covariances = cov(input)
    if not covariances.shape:
        return true_divide(covariances, covariances)
    deviations = sqrt(diagonal(covariances))
    scaled = true_divide(true_divide(covariances, unsqueeze(deviations, 1)), unsqueeze(deviations, 0))
    return clamp(scaled, -1.0, 1.0)
