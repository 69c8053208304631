"""Probability distributions with PyTorch's names: samples, densities, moments, entropies and divergences.

Gradients flow through ``rsample()`` to the parameters, where a distribution has it, and through ``log_prob``,
``entropy`` and :func:`kl_divergence`.
"""

from __future__ import annotations

import sys

from dl4all.distributions import (
    bernoulli,
    categorical,
    constraints,
    counts,
    gamma,
    kl,
    location_scale,
    normal,
    transformed_distribution,
    transforms,
)
from dl4all.distributions.bernoulli import Bernoulli, Geometric
from dl4all.distributions.categorical import (
    Categorical,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from dl4all.distributions.counts import Binomial, Multinomial, NegativeBinomial, Poisson
from dl4all.distributions.distribution import Distribution
from dl4all.distributions.gamma import Beta, Chi2, Dirichlet, Gamma, StudentT
from dl4all.distributions.independent import Independent
from dl4all.distributions.kl import kl_divergence, register_kl
from dl4all.distributions.location_scale import (
    Cauchy,
    Exponential,
    Gumbel,
    HalfCauchy,
    Laplace,
    Uniform,
)
from dl4all.distributions.multivariate_normal import MultivariateNormal
from dl4all.distributions.normal import HalfNormal, Normal
from dl4all.distributions.transformed_distribution import LogNormal, TransformedDistribution
from dl4all.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    TanhTransform,
    Transform,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "Laplace",
    "LogNormal",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Poisson",
    "PowerTransform",
    "SigmoidTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "constraints",
    "kl",
    "kl_divergence",
    "register_kl",
    "transforms",
]

PATHS = {
    "beta": gamma,
    "binomial": counts,
    "cauchy": location_scale,
    "chi2": gamma,
    "dirichlet": gamma,
    "exponential": location_scale,
    "geometric": bernoulli,
    "gumbel": location_scale,
    "half_cauchy": location_scale,
    "half_normal": normal,
    "laplace": location_scale,
    "log_normal": transformed_distribution,
    "multinomial": counts,
    "negative_binomial": counts,
    "one_hot_categorical": categorical,
    "poisson": counts,
    "studentT": gamma,
    "uniform": location_scale,
}
"""PyTorch's names of the modules; each is the one that defines the class."""

for _name, _module in PATHS.items():
    globals()[_name] = _module
    sys.modules[f"{__name__}.{_name}"] = _module
