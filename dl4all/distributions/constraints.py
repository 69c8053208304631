"""Constraints: which values a parameter or a sample of a distribution may have.

``constraint.check(value)`` gives a tensor of bools of the batch's shape, True where the value is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.autograd import no_grad
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.tensor.tensor import Tensor

SIMPLEX_TOLERANCE = 1e-6


class Constraint:
    """A set of values.

    Args:
        name: is shown in messages.
        check: says of each value whether it is allowed.
        event_dim: how many of the last axes make up one value.
        is_discrete: whether the values are apart from each other.
        takes_arrays: whether `check` takes NumPy's arrays, too.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.positive.check(dl.tensor([1.0, -1.0])).tolist()
        [True, False]
    """

    def __init__(
        self,
        name: str,
        check: Callable[[Tensor], Tensor],
        *,
        event_dim: int = 0,
        is_discrete: bool = False,
        takes_arrays: bool = False,
    ) -> None:
        self.name, self.event_dim, self.is_discrete = name, event_dim, is_discrete
        self.takes_arrays = takes_arrays
        self._check = check

    def check(self, value: Tensor) -> Tensor:
        """Whether each value is allowed."""
        return self._check(value)

    def allows(self, value: Tensor) -> bool:
        """Whether all values are allowed; waits for the device.

        On the CPU the answer is NumPy's, for which a few numbers take a tenth of the time of ops.
        """
        if self.takes_arrays and value.device.is_host and not isinstance(value, BatchedTensorBase):
            with np.errstate(all="ignore"):
                return bool(self._check(value.on_host()).all())  # type: ignore[arg-type]
        with no_grad():
            return bool(self.check(value).all())

    def __repr__(self) -> str:
        return self.name


class Dependent(Constraint):
    """A set that depends on the parameters of the distribution, which are not known yet.

    Example:
        >>> import dl4all as dl
        >>> constraints = dl.distributions.constraints
        >>> constraints.is_dependent(constraints.dependent)
        True
    """

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("[constraints] this support depends on the distribution's parameters; make one")


def greater_than(lower_bound: Any) -> Constraint:
    """Numbers above a bound.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.greater_than(2.0).check(dl.tensor([2.0, 3.0])).tolist()
        [False, True]
    """
    return _bounded(f"GreaterThan(lower_bound={lower_bound})", lambda value: value > lower_bound, lower_bound)


def greater_than_eq(lower_bound: Any) -> Constraint:
    """Numbers from a bound on.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.greater_than_eq(2.0).check(dl.tensor([2.0, 3.0])).tolist()
        [True, True]
    """
    return _bounded(
        f"GreaterThanEq(lower_bound={lower_bound})", lambda value: value >= lower_bound, lower_bound
    )


def less_than(upper_bound: Any) -> Constraint:
    """Numbers below a bound.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.less_than(3.0).check(dl.tensor([2.0, 3.0])).tolist()
        [True, False]
    """
    return _bounded(f"LessThan(upper_bound={upper_bound})", lambda value: value < upper_bound, upper_bound)


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from one bound to another.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.interval(0.0, 3.0).check(dl.tensor([2.0, 3.0])).tolist()
        [True, True]
    """
    name = f"Interval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return _bounded(
        name, lambda value: (value >= lower_bound) & (value <= upper_bound), lower_bound, upper_bound
    )


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from one bound to below another.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.half_open_interval(0.0, 3.0).check(dl.tensor([2.0, 3.0])).tolist()
        [True, False]
    """
    name = f"HalfOpenInterval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return _bounded(
        name, lambda value: (value >= lower_bound) & (value < upper_bound), lower_bound, upper_bound
    )


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Whole numbers from one bound to another.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.integer_interval(0, 3).check(dl.tensor([2.0, 2.5])).tolist()
        [True, False]
    """

    def check(value: Tensor) -> Tensor:
        allowed: Tensor = _is_whole(value) & (value >= lower_bound) & (value <= upper_bound)
        return allowed

    name = f"IntegerInterval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return _bounded(name, check, lower_bound, upper_bound, is_discrete=True)


def multinomial(upper_bound: int) -> Constraint:
    """Vectors of counts with a given sum.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.multinomial(3).check(dl.tensor([[1.0, 2.0], [1.0, 1.0]])).tolist()
        [True, False]
    """

    def check(value: Tensor) -> Tensor:
        allowed: Tensor = ((value >= 0) & _is_whole(value)).all(-1) & (value.sum(-1) == upper_bound)
        return allowed

    name = f"Multinomial(upper_bound={upper_bound})"
    return _bounded(name, check, upper_bound, event_dim=1, is_discrete=True)


def independent(base: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """Values all of whose elements, along some more axes, a constraint allows.

    Example:
        >>> import dl4all as dl
        >>> positive = dl.distributions.constraints.positive
        >>> pairs = dl.distributions.constraints.independent(positive, 1)
        >>> pairs.check(dl.tensor([[1.0, 2.0], [1.0, -1.0]])).tolist()
        [True, False]
    """

    def check(value: Tensor) -> Tensor:
        allowed = base.check(value)
        for _ in range(reinterpreted_batch_ndims):
            allowed = allowed.all(-1)
        return allowed

    event_dim = base.event_dim + reinterpreted_batch_ndims
    return Constraint(
        f"IndependentConstraint({base})", check, event_dim=event_dim, is_discrete=base.is_discrete,
        takes_arrays=base.takes_arrays,
    )  # fmt: skip


def is_dependent(constraint: Any) -> bool:
    """Whether a set depends on parameters that are not known yet.

    Example:
        >>> import dl4all as dl
        >>> constraints = dl.distributions.constraints
        >>> constraints.is_dependent(constraints.positive)
        False
    """
    return isinstance(constraint, Dependent)


def _bounded(
    name: str, check: Callable[[Tensor], Tensor], *bounds: Any, event_dim: int = 0, is_discrete: bool = False
) -> Constraint:
    """The constraint; its check takes arrays unless a bound is a tensor."""
    takes_arrays = not any(isinstance(bound, TensorBase) for bound in bounds)
    return Constraint(name, check, event_dim=event_dim, is_discrete=is_discrete, takes_arrays=takes_arrays)


# Of tensors and of arrays


def _is_whole(value: Any) -> Any:
    return value % 1 == 0  # not so for infinity


def _is_one_hot(value: Tensor) -> Tensor:
    return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


def _is_simplex(value: Tensor) -> Tensor:
    return (value >= 0).all(-1) & (abs(value.sum(-1) - 1) < SIMPLEX_TOLERANCE)


# Of tensors alone


def _is_lower_cholesky(value: Tensor) -> Tensor:
    is_lower = (value.tril() == value).all(-1).all(-1)
    return is_lower & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


def _is_symmetric(value: Tensor) -> Tensor:
    return ((value - value.transpose(-2, -1)).abs() <= 1e-6).all(-1).all(-1)


dependent = Dependent("Dependent()", lambda value: value)
real = _bounded("Real()", lambda value: value == value)
real_vector = independent(real, 1)
boolean = _bounded("Boolean()", lambda value: (value == 0) | (value == 1), is_discrete=True)
one_hot = _bounded("OneHot()", _is_one_hot, event_dim=1, is_discrete=True)
nonnegative_integer = _bounded(
    "NonnegativeInteger()", lambda value: _is_whole(value) & (value >= 0), is_discrete=True
)
positive_integer = _bounded(
    "PositiveInteger()", lambda value: _is_whole(value) & (value >= 1), is_discrete=True
)
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
simplex = _bounded("Simplex()", _is_simplex, event_dim=1)
lower_cholesky = Constraint("LowerCholesky()", _is_lower_cholesky, event_dim=2)
positive_definite = Constraint("PositiveDefinite()", _is_symmetric, event_dim=2)
real_matrix = independent(real, 2)
