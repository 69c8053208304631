"""Special functions under the names of ``torch.special``: those that dl4all has."""

from __future__ import annotations

from dl4all.ops import (
    digamma,
    entr,
    erf,
    erfc,
    erfcx,
    erfinv,
    exp2,
    expm1,
    lgamma,
    log1p,
    log_ndtr,
    log_softmax,
    logit,
    logsumexp,
    mvlgamma,
    ndtr,
    ndtri,
    polygamma,
    round,
    sigmoid,
    sinc,
    softmax,
    xlog1py,
    xlogy,
    zeta,
)

psi = digamma
gammaln = lgamma
expit = sigmoid
multigammaln = mvlgamma

__all__ = [
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammaln",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
    "zeta",
]
