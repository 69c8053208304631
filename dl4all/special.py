"""Special functions under the names of ``torch.special``: those that dl4all has."""

from __future__ import annotations

from dl4all.ops import (
    digamma,
    erf,
    erfc,
    erfinv,
    exp2,
    expm1,
    lgamma,
    log1p,
    log_softmax,
    logit,
    logsumexp,
    round,
    sigmoid,
    sinc,
    softmax,
    xlogy,
)

psi = digamma
gammaln = lgamma
expit = sigmoid

__all__ = [
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammaln",
    "log1p",
    "log_softmax",
    "logit",
    "logsumexp",
    "psi",
    "round",
    "sinc",
    "softmax",
    "xlogy",
]
