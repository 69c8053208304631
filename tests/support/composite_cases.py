"""Small calls of every function composed of ops, for gradient checks by finite differences.

Values come from ``operands.numbers``, from 0.5 to 2 of either sign, unless a call has limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import dl4all as dl
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.tensor_base import Shape

F: Any = dl.ops  # untyped, because the calls are looked up by name
X: Shape = (3, 5)
POSITIVE, FRACTION = (0.5, 2.0), (0.1, 0.9)


class Call(NamedTuple):
    """A function, the shapes of its operands, and the limits of their elements."""

    function: Callable[..., Any]
    shapes: tuple[Shape, ...]
    limits: tuple[float, float] | None = None


def call(function: Callable[..., Any], *shapes: Shape, limits: tuple[float, float] | None = None) -> Call:
    return Call(function, shapes or (X,), limits)


def same_calls(
    names: str, *shapes: Shape, limits: tuple[float, float] | None = None, **arguments: Any
) -> Calls:
    """A call for each of several functions, with the same operands and arguments."""

    def one(name: str) -> Call:
        return call(lambda *o: getattr(F, name)(*o, **arguments), *shapes, limits=limits)

    return {name: (one(name),) for name in names.split()}


def ints(*values: Any) -> Any:
    return dl.tensor(np.array(values, np.int64), device="cpu")


def floats(*values: Any) -> Any:
    return dl.tensor(np.array(values, np.float64), device="cpu")


def seeded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the same random numbers in each call."""

    def run(*operands: Any) -> Any:
        dl.manual_seed(7)
        return function(*operands)

    return run


def in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that changes its first operand in place, applied to a copy and returning it."""

    def run(x: Any, *operands: Any) -> Any:
        copy = x.clone()
        function(copy, *operands)
        return copy

    return run


def floating(results: Any) -> Any:
    """The results with a floating dtype."""
    parts = results if isinstance(results, (tuple, list)) else (results,)
    return tuple(part for part in parts if isinstance(part, dl.Tensor) and kind_of(part.dtype) == "f")


Calls = dict[str, tuple[Call, ...]]
MASK = dl.tensor(np.array([1, 0, 1, 1, 0]) > 0, device="cpu")
SIGNAL = (1, 2, 7)

ELEMENTWISE: Calls = {
    **same_calls("arcsinh asinh celu deg2rad frac hardshrink mish nan_to_num positive rad2deg ravel real"),
    **same_calls("relu6 round selu sinc softshrink softsign square tanhshrink", limits=(-2.0, 2.0)),
    **same_calls("acosh arccosh", limits=(1.2, 2.0)),
    **same_calls("arctanh atanh", limits=(-0.9, 0.9)),
    **same_calls("logit", limits=FRACTION),
    "softmin": (call(lambda x: F.softmin(x, -1), limits=(-2.0, 2.0)),),
    "prelu": (call(F.prelu, X, (5,)), call(F.prelu, X, (1,))),
    "gelu": (call(F.gelu), call(lambda x: F.gelu(x, approximate="tanh"))),
    "glu": (call(F.glu, (3, 4)),),
    "clamp": (call(lambda x: F.clamp(x, -0.8, 0.9)), call(F.clamp, X, X, (5,))),
    "clip": (call(lambda x: F.clip(x, max=0.9)),),
    "threshold": (call(lambda x: F.threshold(x, 0.7, 3.0)),),
    "rrelu": (call(F.rrelu), call(seeded(lambda x: F.rrelu(x, training=True)))),
    **same_calls("copysign fmax fmin hypot logaddexp logaddexp2 rsub", X, (5,)),
    "div": (call(F.div, X, (5,)), call(lambda x, y: F.div(x, y, rounding_mode="trunc"), X, X)),
    "divide": (call(F.divide, X, (5,)), call(lambda x, y: F.divide(x, y, rounding_mode="floor"), X, X)),
    "float_power": (call(F.float_power, X, (5,), limits=POSITIVE), call(lambda x: F.float_power(x, 3))),
    "heaviside": (call(F.heaviside, X, (5,)),),
    "ldexp": (call(F.ldexp, X, (5,)),),
    "xlogy": (call(F.xlogy, X, (5,), limits=POSITIVE),),
    "log_ndtr": (call(F.log_ndtr, X),),
    "nextafter": (call(lambda x, y: F.nextafter(x, y), X, (5,)),),
    "ndtr": (call(lambda x: F.ndtr(x)),),
    "entr": (call(lambda x: F.entr(x), X, limits=POSITIVE),),
    "xlog1py": (call(lambda x, y: F.xlog1py(x, y), X, (5,), limits=POSITIVE),),
    "mvlgamma": (call(lambda x: F.mvlgamma(x + 1, 3), X, limits=POSITIVE),),
    "frexp": (call(lambda x: F.frexp(x).mantissa, X, limits=(0.6, 0.9)),),
    "gradient": (
        call(lambda x: F.gradient(x, spacing=0.5, edge_order=2)),
        call(lambda x: F.gradient(x, dim=1, spacing=[floats(0.0, 1.0, 1.5, 3.0, 7.0)])),
    ),
    "polygamma": (call(lambda x: F.polygamma(1, x), X, limits=POSITIVE),),
    "masked_fill": (call(lambda x: F.masked_fill(x, MASK, 2.0)),),
}

CONTRACTIONS: Calls = {
    "addbmm": (call(lambda *o: F.addbmm(*o, beta=0.5, alpha=2.0), (3, 4), (2, 3, 5), (2, 5, 4)),),
    "addmm": (call(lambda *o: F.addmm(*o, beta=0.5, alpha=2.0), (4,), X, (5, 4)),),
    "addmv": (call(lambda *o: F.addmv(*o, beta=0.5, alpha=2.0), (3,), X, (5,)),),
    "addr": (call(lambda *o: F.addr(*o, beta=0.5, alpha=2.0), X, (3,), (5,)),),
    "baddbmm": (call(lambda *o: F.baddbmm(*o, beta=0.5, alpha=2.0), (2, 3, 4), (2, 3, 5), (2, 5, 4)),),
    "bmm": (call(F.bmm, (2, 3, 5), (2, 5, 1)),),
    "mm": (call(F.mm, X, (5, 2)),),
    "mv": (call(F.mv, X, (5,)),),
    "outer": (call(F.outer, (3,), (5,)),),
    "ger": (call(F.ger, (3,), (5,)),),
    "inner": (call(F.inner, X, (2, 5)),),
    "vdot": (call(F.vdot, (5,), (5,)),),
    "kron": (call(F.kron, (2, 3), (3, 1)),),
    "cross": (call(F.cross, (2, 3), (2, 3)),),
    "tensordot": (call(lambda a, b: F.tensordot(a, b, ([0], [1])), X, (2, 3)),),
    "einsum": (call(lambda a, b: F.einsum("ij,kj->ik", a, b), X, (2, 5)),),
    "bilinear": (call(F.bilinear, (3, 2), (3, 3), (2, 2, 3), (2,)),),
    "chain_matmul": (call(F.chain_matmul, (2, 3), (3, 1), (1, 3)),),
    "matrix_power": (call(lambda x: F.matrix_power(x, 3), (3, 3)),),
    "trace": (call(F.trace),),
    "cdist": (*(call(lambda a, b, p=p: F.cdist(a, b, p), X, (2, 5)) for p in (1.0, 2.0, 3.0, float("inf"))),),
    "pdist": (call(F.pdist), call(lambda x: F.pdist(x, 3.0))),
    "dist": (call(F.dist, X, X), call(lambda a, b: F.dist(a, b, 3.0), X, X)),
    "pairwise_distance": (
        call(F.pairwise_distance, X, X),
        call(lambda a, b: F.pairwise_distance(a, b, 1.0), X, X),
    ),
    "cosine_similarity": (call(F.cosine_similarity, X, X),),
    "normalize": (call(F.normalize), call(lambda x: F.normalize(x, p=3.0, dim=0))),
    "renorm": (call(lambda x: F.renorm(x, 2.0, 0, 1.5)),),
    "scaled_dot_product_attention": (
        call(F.scaled_dot_product_attention, (1, 2, 3), (1, 3, 3), (1, 3, 2)),
        call(lambda *o: F.scaled_dot_product_attention(*o, is_causal=True), (1, 3, 2), (1, 3, 2), (1, 3, 2)),
    ),
}

ALONG_AXES: Calls = {
    "aminmax": (call(lambda x: tuple(F.aminmax(x, dim=1))), call(lambda x: tuple(F.aminmax(x)))),
    **{
        name: (call(getattr(F, name)), call(lambda x, n=name: floating(getattr(F, n)(x, 1))))
        for name in ("max", "min")
    },
    **{
        name: (call(getattr(F, name)), call(lambda x, n=name: floating(getattr(F, n)(x, 1))))
        for name in ("median", "nanmedian")
    },
    "mode": (call(lambda x: floating(F.mode(x))),),
    "kthvalue": (call(lambda x: floating(F.kthvalue(x, 2))),),
    "quantile": (call(lambda x: F.quantile(x, 0.3, 1)), call(lambda x: F.quantile(x, 0.3))),
    "sort": (call(lambda x: floating(F.sort(x))),),
    "msort": (call(F.msort),),
    "topk": (call(lambda x: floating(F.topk(x, 2))),),
    "unique": (call(lambda x: floating(F.unique(x))),),
    "unique_consecutive": (call(lambda x: floating(F.unique_consecutive(x))),),
    **same_calls("nanmean nansum", dim=1),
    **same_calls("std_mean var_mean", dim=1),
    "cummax": (call(lambda x: floating(F.cummax(x, 1))),),
    "cummin": (call(lambda x: floating(F.cummin(x, 1))),),
    "logcumsumexp": (call(lambda x: F.logcumsumexp(x, 1)),),
    "diff": (call(F.diff), call(lambda x: F.diff(x, 2, 0))),
    **same_calls("cumulative_trapezoid trapezoid trapz", X, (5,)),
    "dropout": (call(seeded(lambda x: F.dropout(x, 0.4))),),
    "alpha_dropout": (call(seeded(lambda x: F.alpha_dropout(x, 0.4, True))),),
    "dropout1d": (call(seeded(lambda x: F.dropout1d(x, 0.4)), (2, 3, 2)),),
    "dropout2d": (call(seeded(lambda x: F.dropout2d(x, 0.4)), (2, 3, 2, 1)),),
    "dropout3d": (call(seeded(lambda x: F.dropout3d(x, 0.4)), (2, 3, 2, 1, 1)),),
    "feature_alpha_dropout": (call(seeded(lambda x: F.feature_alpha_dropout(x, 0.4, True)), (2, 3, 2)),),
    "gumbel_softmax": (call(seeded(F.gumbel_softmax)),),
}
