"""Invertible functions of samples, with the logarithms of the determinants of their derivatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dl4all.distributions import constraints
from dl4all.distributions.constraints import Constraint
from dl4all.distributions.distribution import finfo_of, sum_rightmost
from dl4all.errors import ArgumentError
from dl4all.tensor.creation import zeros_like
from dl4all.tensor.tensor import Tensor


class Transform:
    """Base class: a subclass computes :meth:`_call`, :meth:`_inverse` and the logarithm of the derivative.

    Args:
        cache_size: is accepted as in PyTorch; nothing is cached.

    Example:
        >>> import dl4all as dl
        >>> double = dl.distributions.AffineTransform(0.0, 2.0)
        >>> double(dl.tensor(3.0)).item(), double.inv(dl.tensor(6.0)).item()
        (6.0, 3.0)
    """

    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    bijective = True
    event_dim = 0

    def __init__(self, cache_size: int = 0) -> None:
        self.cache_size = cache_size

    def __call__(self, x: Tensor) -> Tensor:
        return self._call(x)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the derivative's absolute determinant at `x`, whose function value is `y`."""
        raise NotImplementedError

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the result."""
        return shape

    @property
    def inv(self) -> Transform:
        """The inverse function."""
        return _Inverse(self)

    @property
    def sign(self) -> int:
        """1 if the function rises, -1 if it falls."""
        return 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self.transform, self.event_dim = transform, transform.event_dim
        self.domain, self.codomain = transform.codomain, transform.domain
        self.bijective = transform.bijective

    def _call(self, x: Tensor) -> Tensor:
        return self.transform._inverse(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.transform._call(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self.transform.log_abs_det_jacobian(y, x)

    @property
    def inv(self) -> Transform:
        return self.transform

    @property
    def sign(self) -> int:
        return self.transform.sign


class ExpTransform(Transform):
    """The exponential function.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.transforms.ExpTransform()(dl.tensor(0.0)).item()
        1.0
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class AffineTransform(Transform):
    """``loc + scale * x``.

    Args:
        loc, scale: numbers or tensors.
        event_dim: how many of the last axes make up one sample.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.transforms.AffineTransform(1.0, 2.0)(dl.tensor(3.0)).item()
        7.0
    """

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim
        if event_dim:
            self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    def _call(self, x: Tensor) -> Tensor:
        result: Tensor = self.loc + self.scale * x
        return result

    def _inverse(self, y: Tensor) -> Tensor:
        result: Tensor = (y - self.loc) / self.scale
        return result

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            logarithm = self.scale.abs().log() + zeros_like(x)
        else:
            logarithm = zeros_like(x) + math.log(abs(self.scale))
        return sum_rightmost(logarithm, self.event_dim)

    @property
    def sign(self) -> int:
        if isinstance(self.scale, Tensor):
            return 1 if bool((self.scale > 0).all()) else -1
        return 1 if self.scale > 0 else -1


class SigmoidTransform(Transform):
    """The logistic function.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.transforms.SigmoidTransform()(dl.tensor(0.0)).item()
        0.5
    """

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        info = finfo_of(x)
        return x.sigmoid().clamp(min=float(info.tiny), max=1.0 - float(info.eps))

    def _inverse(self, y: Tensor) -> Tensor:
        info = finfo_of(y)
        safe = y.clamp(min=float(info.tiny), max=1.0 - float(info.eps))
        return safe.log() - (-safe).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -x.abs() - 2 * (-x.abs()).exp().log1p()


class TanhTransform(Transform):
    """The hyperbolic tangent.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.transforms.TanhTransform()(dl.tensor(0.0)).item()
        0.0
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh(x)^2) without cancellation
        result: Tensor = 2.0 * (math.log(2.0) - x.abs() - (-2.0 * x.abs()).exp().log1p())
        return result


class PowerTransform(Transform):
    """``x ** exponent`` of positive numbers.

    Args:
        exponent: a number or a tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.transforms.PowerTransform(2.0)(dl.tensor(3.0)).item()
        9.0
    """

    domain = codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    def _call(self, x: Tensor) -> Tensor:
        result: Tensor = x**self.exponent
        return result

    def _inverse(self, y: Tensor) -> Tensor:
        result: Tensor = y ** (1 / self.exponent)
        return result

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        derivative: Tensor = self.exponent * y / x
        return derivative.abs().log()


class AbsTransform(Transform):
    """The absolute value, which has no inverse.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.transforms.AbsTransform()(dl.tensor(-2.0)).item()
        2.0
    """

    codomain = constraints.nonnegative
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class ComposeTransform(Transform):
    """Several functions, one after another.

    Args:
        parts: the functions, the first one first.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.distributions.transforms import AffineTransform, ComposeTransform, ExpTransform
        >>> ComposeTransform([AffineTransform(1.0, 2.0), ExpTransform()])(dl.tensor(-0.5)).item()
        1.0
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.event_dim = max((part.event_dim for part in self.parts), default=0)
        self.bijective = all(part.bijective for part in self.parts)
        if self.parts:
            self.domain, self.codomain = self.parts[0].domain, self.parts[-1].codomain

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inverse(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total: Any = 0.0
        for part in self.parts:
            result = part(x)
            total = total + sum_rightmost(
                part.log_abs_det_jacobian(x, result), self.event_dim - part.event_dim
            )
            x = result
        return total if self.parts else zeros_like(x)

    @property
    def sign(self) -> int:
        return math.prod(part.sign for part in self.parts)


def composed(transforms: Transform | Sequence[Transform]) -> list[Transform]:
    """One function or several as a list.

    Raises:
        ArgumentError: one is no transform.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.distributions import transforms
        >>> len(transforms.composed([transforms.ExpTransform(), transforms.AffineTransform(0.0, 2.0)]))
        2
    """
    parts = [transforms] if isinstance(transforms, Transform) else list(transforms)
    if not all(isinstance(part, Transform) for part in parts):
        raise ArgumentError(f"[TransformedDistribution] expected transforms, got {transforms!r}")
    return parts
