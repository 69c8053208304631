"""Constraints: which values a parameter or a sample of a distribution may have.

``constraint.check(value)`` gives a tensor of bools of the batch's shape, True where the value is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all.tensor.creation import ones_like
from dl4all.tensor.tensor import Tensor

SIMPLEX_TOLERANCE = 1e-6


class Constraint:
    """A set of values.

    Args:
        name: is shown in messages.
        check: says of each value whether it is allowed.
        event_dim: how many of the last axes make up one value.
        is_discrete: whether the values are apart from each other.

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
    ) -> None:
        self.name, self.event_dim, self.is_discrete = name, event_dim, is_discrete
        self._check = check

    def check(self, value: Tensor) -> Tensor:
        """Whether each value is allowed."""
        return self._check(value)

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
    return Constraint(f"GreaterThan(lower_bound={lower_bound})", lambda value: value > lower_bound)


def greater_than_eq(lower_bound: Any) -> Constraint:
    """Numbers from a bound on.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.greater_than_eq(2.0).check(dl.tensor([2.0, 3.0])).tolist()
        [True, True]
    """
    return Constraint(f"GreaterThanEq(lower_bound={lower_bound})", lambda value: value >= lower_bound)


def less_than(upper_bound: Any) -> Constraint:
    """Numbers below a bound.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.less_than(3.0).check(dl.tensor([2.0, 3.0])).tolist()
        [True, False]
    """
    return Constraint(f"LessThan(upper_bound={upper_bound})", lambda value: value < upper_bound)


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from one bound to another.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.interval(0.0, 3.0).check(dl.tensor([2.0, 3.0])).tolist()
        [True, True]
    """
    name = f"Interval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return Constraint(name, lambda value: (value >= lower_bound) & (value <= upper_bound))


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from one bound to below another.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.half_open_interval(0.0, 3.0).check(dl.tensor([2.0, 3.0])).tolist()
        [True, False]
    """
    name = f"HalfOpenInterval(lower_bound={lower_bound}, upper_bound={upper_bound})"
    return Constraint(name, lambda value: (value >= lower_bound) & (value < upper_bound))


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
    return Constraint(name, check, is_discrete=True)


def multinomial(upper_bound: int) -> Constraint:
    """Vectors of counts with a given sum.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.constraints.multinomial(3).check(dl.tensor([[1.0, 2.0], [1.0, 1.0]])).tolist()
        [True, False]
    """

    def check(value: Tensor) -> Tensor:
        return ((value >= 0) & _is_whole(value)).all(-1) & (value.sum(-1) == upper_bound)

    return Constraint(f"Multinomial(upper_bound={upper_bound})", check, event_dim=1, is_discrete=True)


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
        f"IndependentConstraint({base})", check, event_dim=event_dim, is_discrete=base.is_discrete
    )


def is_dependent(constraint: Any) -> bool:
    """Whether a set depends on parameters that are not known yet.

    Example:
        >>> import dl4all as dl
        >>> constraints = dl.distributions.constraints
        >>> constraints.is_dependent(constraints.positive)
        False
    """
    return isinstance(constraint, Dependent)


def _is_whole(value: Tensor) -> Tensor:
    return value == value.floor() if value.dtype.kind == "f" else ones_like(value).to("bool")


def _is_one_hot(value: Tensor) -> Tensor:
    return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


def _is_simplex(value: Tensor) -> Tensor:
    return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < SIMPLEX_TOLERANCE)


def _is_lower_cholesky(value: Tensor) -> Tensor:
    is_lower = (value.tril() == value).all(-1).all(-1)
    return is_lower & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


def _is_symmetric(value: Tensor) -> Tensor:
    return ((value - value.transpose(-2, -1)).abs() <= 1e-6).all(-1).all(-1)


dependent = Dependent("Dependent()", lambda value: value)
real = Constraint("Real()", lambda value: value == value)
real_vector = independent(real, 1)
boolean = Constraint("Boolean()", lambda value: (value == 0) | (value == 1), is_discrete=True)
one_hot = Constraint("OneHot()", _is_one_hot, event_dim=1, is_discrete=True)
nonnegative_integer = Constraint(
    "NonnegativeInteger()", lambda value: _is_whole(value) & (value >= 0), is_discrete=True
)
positive_integer = Constraint(
    "PositiveInteger()", lambda value: _is_whole(value) & (value >= 1), is_discrete=True
)
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
simplex = Constraint("Simplex()", _is_simplex, event_dim=1)
lower_cholesky = Constraint("LowerCholesky()", _is_lower_cholesky, event_dim=2)
positive_definite = Constraint("PositiveDefinite()", _is_symmetric, event_dim=2)
real_matrix = independent(real, 2)
