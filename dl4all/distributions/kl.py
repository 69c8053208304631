"""The Kullback-Leibler divergence between distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from dl4all import ops
from dl4all.distributions.bernoulli import Bernoulli, Geometric, log_normalizer
from dl4all.distributions.categorical import Categorical, OneHotCategorical
from dl4all.distributions.counts import Binomial, Poisson
from dl4all.distributions.distribution import Distribution, sum_rightmost
from dl4all.distributions.gamma import Beta, Dirichlet, Gamma
from dl4all.distributions.independent import Independent
from dl4all.distributions.location_scale import EULER, Cauchy, Exponential, Gumbel, Laplace, Uniform
from dl4all.distributions.multivariate_normal import MultivariateNormal
from dl4all.distributions.normal import HalfNormal, Normal
from dl4all.distributions.transformed_distribution import LogNormal
from dl4all.errors import ArgumentError
from dl4all.tensor.creation import zeros_like
from dl4all.tensor.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])
DIVERGENCES: dict[tuple[type[Any], type[Any]], Callable[..., Tensor]] = {}


def register_kl(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[F], F]:
    """Register a function of two distributions of these classes that computes their divergence.

    Args:
        type_p, type_q: classes; subclasses without a function of their own take this one.

    Raises:
        ArgumentError: one is no class of distributions.

    Example:
        >>> import dl4all as dl
        >>> class Fixed(dl.distributions.Normal):
        ...     pass
        >>> @dl.distributions.register_kl(Fixed, Fixed)
        ... def divergence(p, q):
        ...     return dl.zeros(p.batch_shape)
        >>> dl.distributions.kl_divergence(Fixed(0.0, 1.0), Fixed(5.0, 1.0)).item()
        0.0
    """
    for kind in (type_p, type_q):
        if not isinstance(kind, type) or not issubclass(kind, Distribution):
            raise ArgumentError(f"[register_kl] expected classes of distributions, got {kind!r}")

    def register(function: F) -> F:
        DIVERGENCES[type_p, type_q] = function
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The divergence of `p` from `q`: the mean of ``p.log_prob(x) - q.log_prob(x)`` for samples x of `p`.

    Args:
        p, q: distributions of the same event shape.

    Returns:
        Of the batch shape.

    Raises:
        NotImplementedError: there is no function for their classes.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.distributions import Normal, kl_divergence
        >>> kl_divergence(Normal(dl.tensor([0.0, 1.0]), 1.0), Normal(0.0, 1.0)).tolist()
        [0.0, 0.5]
    """
    for kind_p in type(p).__mro__:
        for kind_q in type(q).__mro__:
            if (kind_p, kind_q) in DIVERGENCES:
                return DIVERGENCES[kind_p, kind_q](p, q)
    raise NotImplementedError(
        f"[kl_divergence] no function is registered for {type(p).__name__} and {type(q).__name__}; "
        "see register_kl"
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(LogNormal, LogNormal)
def _log_normal(p: LogNormal, q: LogNormal) -> Tensor:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio - 1 - ratio.log())


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    square = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return square.log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, shift = p.scale / q.scale, q.loc / q.scale
    moved = p.loc / q.scale - shift
    return -ratio.log() + moved + ratio * EULER + (-moved + (1 + ratio).lgamma()).exp() - (1 + EULER)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return result.where((q.low <= p.low) & (q.high >= p.high), math.inf)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    shape = b.lgamma() - a.lgamma() + (a - b) * a.digamma()
    return b * (p.rate / q.rate).log() + shape + (q.rate - p.rate) * (a / p.rate)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    normalizer = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return normalizer + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    success = p.probs * (log_normalizer(-q.logits) - log_normalizer(-p.logits))
    failure = (1 - p.probs) * (log_normalizer(q.logits) - log_normalizer(p.logits))
    success = success.where(p.probs != 0, 0.0).where((q.probs != 0) | (p.probs == 0), math.inf)
    result: Tensor = success + failure.where(p.probs != 1, 0.0).where(
        (q.probs != 1) | (p.probs == 1), math.inf
    )
    return result


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("[kl_divergence] binomials where q has more trials have no closed form")
    divergence = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return (p.total_count * divergence).where(p.total_count <= q.total_count, math.inf)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = ops.where(q.probs == 0, zeros_like(terms) + math.inf, terms)
    return ops.where(p.probs == 0, zeros_like(terms), terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("[kl_divergence] they take different numbers of axes as events")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    half_logs = (_log_diagonal(q) - _log_diagonal(p)).sum(-1)
    n = p.event_shape[0]
    trace = q._solved(p.scale_tril).square().sum((-2, -1))
    distance = q._solved((q.loc - p.loc).unsqueeze(-1)).square().sum((-2, -1))
    return half_logs + 0.5 * (trace + distance - n)


def _log_diagonal(normal: MultivariateNormal) -> Tensor:
    return normal.scale_tril.diagonal(dim1=-2, dim2=-1).log()
