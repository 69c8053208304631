"""Samples of the standard gamma distribution, and how they depend on its parameter.

Samples by rejection: Marsaglia and Tsang, ACM Trans. Math. Softw. 26 (2000). Gradients by implicit
reparameterization (Figurnov et al., arXiv:1805.08498): a sample z of which the probability F(z; a) stays the
same moves with the parameter by ``dz/da = -(dF/da) / p(z; a)``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all import ops
from dl4all.autograd import Function
from dl4all.distributions.distribution import standard_normal, uniform
from dl4all.tensor.creation import as_tensor, zeros_like
from dl4all.tensor.tensor import Tensor

ROUNDS = 8
"""Trials, each of which is accepted with a probability of at least 0.95; one in 10^10 accepts none."""

SERIES_END, TERMS = 1.5, 16
"""The samples from which on the gradient is an integral, and the terms of the series below."""

POINTS, WEIGHTS = np.polynomial.laguerre.laggauss(40)  # type: ignore[no-untyped-call]
EXP_WEIGHTS = WEIGHTS * np.exp(POINTS)


class LogGamma(Function):
    """The logarithm of samples of the gamma distribution with scale 1; small parameters give tiny samples."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor) -> Tensor:
        logarithm = _log_samples(concentration)
        ctx.save_for_backward(concentration, logarithm)
        return logarithm

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        concentration, logarithm = ctx.saved_tensors
        return gradient * _log_derivative(concentration, logarithm)


def log_standard_gamma(concentration: Tensor) -> Tensor:
    """The logarithms of samples, one for each parameter, through which gradients flow."""
    result: Tensor = LogGamma.apply(concentration)
    return result


def _log_samples(concentration: Tensor) -> Tensor:
    """The sample is that of a parameter above 1, times a power of a uniform number where it is below."""
    is_small = concentration < 1
    shape = ops.where(is_small, concentration + 1, concentration)
    d = shape - 1 / 3
    c = (9 * d).rsqrt()
    found = zeros_like(d)
    for _ in range(ROUNDS):
        x = standard_normal(d.shape, d)
        log_v = 3 * (c * x).clamp(min=-0.999999).log1p()
        accepts = uniform(d.shape, d).log() < 0.5 * x * x + d * (1 - log_v.exp() + log_v)
        found = ops.where(accepts & (c * x > -0.999999), log_v, found)
    boost = uniform(d.shape, d).log() / concentration
    return d.log() + found + ops.where(is_small, boost, zeros_like(boost))


def _log_derivative(a: Tensor, log_z: Tensor) -> Tensor:
    """``d log z / da``."""
    z = log_z.exp()
    is_small = z < SERIES_END
    wide_z, log_wide_z = z.clamp(min=SERIES_END), log_z.clamp(min=math.log(SERIES_END))
    found: Tensor = ops.where(
        is_small, _by_series(a, z.clamp(max=SERIES_END), log_z), _by_quadrature(a, wide_z, log_wide_z)
    )
    return found


def _by_series(a: Tensor, z: Tensor, log_z: Tensor) -> Tensor:
    """By the power series of the incomplete gamma function, term by term, for small samples.

    The first term's two parts cancel for small parameters; digamma(a + 1) is their exact sum.
    """
    total = ((a + 1).digamma() - log_z) / a
    factor, term = a.digamma() - log_z, zeros_like(a) + 1
    for n in range(1, TERMS):
        term = term * (-z / n)
        total = total + term * (factor + 1 / (a + n)) / (a + n)
    return total * z.exp()


def _by_quadrature(a: Tensor, z: Tensor, log_z: Tensor) -> Tensor:
    """The integral of p(t) (digamma(a) - log t), up to z or from it on, over z p(z).

    With t = z exp(-s) up to z, and t = z exp(s) from z on, the integrand falls from s = 0 on, as fast as
    the exponent's slope |a - z| and curvature z say; quadrature by Gauss and Laguerre on that scale.
    """
    side = ops.where(z <= a, zeros_like(a) + 1, zeros_like(a) - 1)  # which part of the integral
    scale = 1 / ((a - z).abs() + z.sqrt() * 0.7)
    points, weights = (as_tensor(values.astype(a.dtype), device=a.device) for values in (POINTS, EXP_WEIGHTS))
    s = side.unsqueeze(-1) * scale.unsqueeze(-1) * points
    exponent = -a.unsqueeze(-1) * s - z.unsqueeze(-1) * (-s).expm1()
    value = (a.digamma() - log_z).unsqueeze(-1) + s
    total: Tensor = (exponent.exp() * value * weights).sum(-1) * scale * side
    return total
