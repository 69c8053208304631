"""Expressions that meet special numbers, and the differences from PyTorch that are meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.operands import generator
from tests.support.special_numbers import SMALLEST_NORMAL, VALUES, Case, Deliberate

NDArray = npt.NDArray[Any]
INF, NAN, MOST = np.inf, np.nan, 3.4e38

# Elementwise functions

UNARY_NAMES = (
    "abs", "sign", "sgn", "floor", "ceil", "round", "trunc", "frac", "sqrt", "rsqrt", "reciprocal", "square",
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "relu", "neg", "clone", "deg2rad",
    "rad2deg", "sinc", "logit", "signbit", "isneginf", "isposinf", "isnan", "isinf", "isfinite", "nan_to_num",
    "logical_not",
)  # fmt: skip
ACTIVATIONS = (
    "relu6", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign", "logsigmoid",
    "hardsigmoid",
    "hardswish", "hardtanh", "leaky_relu", "softshrink", "hardshrink", "tanhshrink",
)  # fmt: skip
UNARY = [
    *(Case(f"L.{name}(x)") for name in UNARY_NAMES),
    *(Case(f"F.{name}(x)") for name in ACTIVATIONS),
    *(Case(f"x ** {power}") for power in (2, 3, 0.5, -1, 0, 2.5, -2, -0.5, 3.4e38, -3.4e38, 1e10)),
    *(Case(f"{base} ** x") for base in (2.0, 0.0, -1.0, "inf")),
    Case("F.gelu(x, approximate='tanh')"), Case("F.softplus(x, beta=2.0, threshold=5.0)"),
    Case("F.elu(x, alpha=2.0)"), Case("F.celu(x, alpha=2.0)"), Case("F.threshold(x, 0.1, 20.0)"),
    Case("F.rrelu(x)"), Case("L.logit(x, eps=1e-6)"), Case("L.clamp(x, -1, 1)"), Case("L.clamp(x, min=0.0)"),
    Case("L.clamp(x, max=0.0)"), Case("L.clamp(x, nan, 1.0)"), Case("1 / x"), Case("x / 3"), Case("x % 3"),
    Case("x * 0"), Case("L.round(x, decimals=2)"), Case("L.nan_to_num(x, 1.0, 2.0, 3.0)"),
    Case("L.fmod(x, 3.0)"),
    Case("L.remainder(x, inf)"), Case("L.fmod(x, inf)"), Case("x.masked_fill(x > 0, 2.0)"),
    Case("L.where(x > 0, x, x * 0)"), Case("L.cumsum(x.detach().sign().nan_to_num(), 0) * x"),
]  # fmt: skip

BINARY_NAMES = (
    "add", "sub", "mul", "div", "maximum", "minimum", "remainder", "fmod", "pow", "atan2", "eq", "ne", "lt",
    "le",
    "gt", "ge", "logical_and", "logical_or", "logical_xor", "fmax", "fmin", "copysign", "xlogy", "ldexp",
    "hypot",
    "logaddexp", "logaddexp2", "rsub", "isclose",
)  # fmt: skip
LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss")
BINARY = [
    *(Case(f"L.{name}(x, y)") for name in BINARY_NAMES),
    *(Case(f"F.{name}(x, y, reduction='none')") for name in LOSSES),
    Case("L.floor_divide(x.detach(), y.detach())"), Case("L.heaviside(x.detach(), y.detach())"),
    Case("L.float_power(x.detach(), y.detach())"), Case("F.smooth_l1_loss(x, y, reduction='none', beta=0.5)"),
    Case("F.kl_div(x, y, reduction='none', log_target=True)"),
    Case("F.poisson_nll_loss(x, y, log_input=False, reduction='none')"),
    Case("F.hinge_embedding_loss(x, L.sign(y), reduction='none')"),
    Case("F.margin_ranking_loss(x, y, L.sign(x.detach()), reduction='none')"),
    Case("F.gaussian_nll_loss(x, y, L.ones_like(y.detach()), reduction='none')"),
    Case("L.lerp(x, y, 0.0)"), Case("L.lerp(x, y, 0.5)"), Case("L.lerp(x, y, 1.0)"),
    Case("L.clamp(x, min=y)"),
    Case("L.clamp(x, max=y)"), Case("L.where(x > y, x, y)"), Case("L.isclose(x, y, equal_nan=True)"),
]  # fmt: skip

# Losses of targets from 0 to 1.
TARGETS = np.array([0, 1, 0.5, 1e-8, 0.999], np.float32)
LOGITS = [np.repeat(VALUES, len(TARGETS)), np.tile(TARGETS, len(VALUES))]
ON_LOGITS = [
    Case("F.binary_cross_entropy_with_logits(x, y, reduction='none')"),
    Case(
        "F.binary_cross_entropy_with_logits(x, y, reduction='none', pos_weight=L.full_like(y.detach(), 2.0))"
    ),
    Case("F.soft_margin_loss(x, 2 * (y > 0.4).detach() - 1.0, reduction='none')"),
]
SHARES = np.array([0, 1, 1e-45, 1e-38, 1e-30, 1e-8, 0.3, 0.5, 1 - 6e-8, 0.999], np.float32)
ON_PROBABILITIES = [Case("F.binary_cross_entropy(x, y.detach(), reduction='none')")]
TERNARY = [
    Case("L.addcdiv(x, y, z)"), Case("L.addcmul(x, y, z)"), Case("L.lerp(x, y, z)"), Case("L.clamp(x, y, z)"),
    Case("L.where(x > y, y, z)"), Case("L.addcdiv(x, y, z, value=0.5)"),
]  # fmt: skip

# Functions of rows

SHORT_ROWS = np.array(
    [
        [MOST, MOST, -MOST], [1e30, -1e30, 0], [1e30, 1e30, 1e30], [1e20, 2e20, 3e20], [INF, 1, 2],
        [-INF, 1, 2],
        [INF, -INF, 0], [NAN, 1, 2], [1, NAN, INF], [0, 0, 0], [-0.0, 0, -0.0], [0, -0.0, 0],
        [1e-45, 1e-45, 0],
        [1e-30, 2e-30, 3e-30], [1e-20, 2e-20, 3e-20], [1e-38, 1e-38, 0], [5, 5, 5], [1e30, 1e30, 1],
        [INF, INF, 1],
        [-INF, -INF, -INF], [INF, INF, INF], [NAN, NAN, NAN], [-INF, -INF, 1], [1e7, 1e7 + 1, 1e7 + 2],
        [88.8, 0, -88.8], [104, -104, 0], [1e4, 1e4, 1], [-1e30, -1e30, -1e30], [1, 2, 3], [MOST, 1, -MOST],
        [MOST, 0, 0], [1, 1e30, -1e30], [-INF, 0, 0], [1e19, 1e19, -1e19], [NAN, INF, -INF], [NAN, 2, NAN],
        [MOST, MOST, MOST], [-MOST, -MOST, -MOST], [-3, 0, -0.0],
    ],
    np.float32,
)  # fmt: skip


def long_rows(length: int) -> NDArray:
    """Rows of special numbers, and of random ones of a certain size and offset."""
    rng = generator("rows", length)
    special = [rng.choice(VALUES, length) for _ in range(6)]
    sizes = (
        (1e30, 0),
        (1e-30, 0),
        (1e-20, 0),
        (1e19, 0),
        (1, 1e7),
        (0, 3e38),
        (1e37, 0),
        (1, -1e30),
        (1e-42, 0),
    )
    return np.array([*special, *(rng.normal(size=length) * size + far for size, far in sizes)], np.float32)


SOFTMAX_ERROR = 2e-6  # gradients are differences of numbers of at most 1
ROWS = [
    *(Case(f"L.{name}(x, 1)", by_rows=True) for name in (
        "sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "logsumexp", "cumsum", "cumprod", "nansum",
        "nanmean", "count_nonzero", "var", "std",
    )),
    *(Case(f"L.{name}(x, 1)[{part}]") for name in ("max", "min", "cummax", "cummin") for part in (0, 1)),
    *(Case(f"L.{name}(x, 1, correction=0)", by_rows=True) for name in ("var", "std")),
    *(Case(f"L.norm(x, {p}, 1)", by_rows=True) for p in (2, 1, "inf", "-inf", 0, 3, 0.5, -1)),
    Case("F.softmax(x, 1)", error=SOFTMAX_ERROR),
    Case("F.log_softmax(x, 1)", by_rows=True, error=SOFTMAX_ERROR),
    Case("F.softmin(x, 1)", error=SOFTMAX_ERROR), Case("L.logcumsumexp(x, 1)", by_rows=True),
    Case("L.sort(x.detach(), 1)[0]"), Case("L.sort(x.detach(), 1, descending=True)[0]"),
    Case("L.sort(x, dim=1, stable=True)[1]"), Case("L.sort(x, dim=1, descending=True, stable=True)[1]"),
    Case("L.topk(x.detach(), 2, 1)[0]"), Case("L.topk(x.detach(), 2, 1, largest=False)[0]"),
    Case("L.median(x, 1)[0]"), Case("L.nanmedian(x, 1)[0]"),
    Case("L.quantile(x.detach(), 0.3, 1)", by_rows=True),
    Case("L.kthvalue(x.detach(), 2, 1)[0]"), Case("L.any(x != 0, 1)"), Case("L.all(x != 0, 1)"),
    Case("L.aminmax(x, dim=1)[0]"), Case("L.diff(x)", by_rows=True), Case("L.unique(x[2].detach())"),
    Case("F.normalize(x, dim=1)", by_rows=True, error=SOFTMAX_ERROR), Case("L.isin(x, x[0])"),
    Case("F.layer_norm(x, (x.shape[1],))", by_rows=True, error=1e-4),
    Case("F.rms_norm(x, (x.shape[1],), eps=1e-6)", by_rows=True, error=SOFTMAX_ERROR),
    Case("F.group_norm(x.reshape(-1, 1, x.shape[1]), 1).reshape(x.shape)", by_rows=True, error=1e-4),
    Case("F.batch_norm(x.T, None, None, training=True).T", by_rows=True, error=1e-4),
    Case("F.max_pool1d(x.reshape(1, -1, x.shape[1]), 3, 1)[0]"),
    Case("F.avg_pool1d(x.reshape(1, -1, x.shape[1]), 3, 1)[0]", by_rows=True),
    Case("F.lp_pool1d(x.reshape(1, -1, x.shape[1]), 2, 3, 1)[0]", by_rows=True),
    Case("L.trapezoid(x, dim=1)", by_rows=True), Case("L.renorm(x.detach(), 2, 0, 1.0)", by_rows=True),
    Case("F.nll_loss(x, L.zeros_like(x[:, 0]).detach().to(L.int64), reduction='none')"),
    Case(
        "F.cross_entropy(x, L.zeros_like(x[:, 0]).detach().to(L.int64), reduction='none')",
        error=SOFTMAX_ERROR,
    ),
    Case("F.multi_margin_loss(x, L.zeros_like(x[:, 0]).detach().to(L.int64), reduction='none')"),
]  # fmt: skip
ROW_PAIRS = [
    Case("F.cosine_similarity(x, y)", by_rows=True, error=SOFTMAX_ERROR),
    Case("F.pairwise_distance(x, y)", by_rows=True, error=SOFTMAX_ERROR),
    Case("L.cdist(x[:, None].detach(), y[:, None].detach(), p=3.0)[:, 0, 0]", by_rows=True),
    Case("L.cdist(x[:, None].detach(), y[:, None].detach(), p=inf)[:, 0, 0]"),
    Case("L.matmul(x[:, None], y[:, :, None])[:, 0, 0]", by_rows=True),
    Case("F.cross_entropy(x, F.softmax(y.detach().clip(-3, 3), 1), reduction='none')", error=SOFTMAX_ERROR),
    Case("F.kl_div(F.log_softmax(x, 1), F.softmax(y.detach().clip(-3, 3), 1), reduction='none')", error=1e-5),
]  # fmt: skip


# Deliberate differences. The masks are of elements, or of rows.


def _is_nan(x: NDArray, *others: NDArray) -> NDArray:
    return np.isnan(x)


def _both_zero(x: NDArray, y: NDArray) -> NDArray:
    return np.asarray((np.abs(x) < SMALLEST_NORMAL) & (np.abs(y) < SMALLEST_NORMAL))


def _same_infinity(x: NDArray, y: NDArray) -> NDArray:
    return np.asarray((x == y) & np.isinf(x))


def _nothing_finite(x: NDArray, *others: NDArray) -> NDArray:
    """Rows with nan or an infinity."""
    finite = [np.isfinite(rows).all(1) for rows in (x, *others) if rows.shape == x.shape]
    return np.asarray(~np.all(finite, 0))


def _squares_overflow(x: NDArray, *others: NDArray) -> NDArray:
    """Rows with a number whose square, or the sum of these, is no float32, or with nan."""
    return np.asarray(~np.all([(rows.astype(np.float64) ** 2).sum(1) < 3e38 for rows in (x, *others)], 0))


def _sums_overflow(x: NDArray, *others: NDArray) -> NDArray:
    """Rows whose magnitudes add up to more than a float32, or with nan."""
    return np.asarray(~(np.abs(x.astype(np.float64)).sum(1) < 1e38))


def _fusion_matters(x: NDArray, y: NDArray, z: NDArray) -> NDArray:
    """Where a product or difference overflows on the way, or nearly all digits of a sum cancel."""
    overflows = np.isinf(y * z) | np.isinf(y - x) | np.isinf((y - x) * (1 - z)) | np.isinf((y - x) * z)
    cancels = [np.abs(x + product) < 1e-6 * np.abs(x) for product in (y * z, (y - x) * z)]
    return np.asarray(overflows | cancels[0] | cancels[1])


DELIBERATE = (
    Deliberate(
        ("F.elu(x)", "F.selu(x)", "F.celu(x)", "F.elu(x, alpha=2.0)", "F.celu(x, alpha=2.0)"), "x", _is_nan,
        "the gradient at nan is nan, not that of a positive number",
    ),
    Deliberate(
        ("F.gelu(x, approximate='tanh')",), "x", lambda x: np.abs(x) >= 1e10,
        "the gradient is its limit, 0 or 1, and no nan from 0 * inf",
    ),
    Deliberate(
        ("x ** 0.5", "x ** -0.5"), "value x", np.isneginf,
        "IEEE 754's pow of -inf; PyTorch takes the root instead",
    ),
    Deliberate(
        ("L.copysign(x, y)",), "x", lambda x, y: ~np.isfinite(x),
        "the gradient at an infinity is the sign, at nan 0 as that of abs; PyTorch divides x by itself",
    ),
    Deliberate(("L.xlogy(x, y)",), "y", _both_zero, "0 * log(0) is 0 for every y, and so is its gradient"),
    Deliberate(
        ("L.logaddexp(x, y)", "L.logaddexp2(x, y)"), "x y", _same_infinity,
        "two equal infinities share the gradient, as all equal numbers do; PyTorch subtracts them",
    ),
    Deliberate(
        ("L.logaddexp2(x, y)",), "value", lambda x, y: (x == -1) & (y == -1), "exactly 0; PyTorch gives -1e-8"
    ),
    Deliberate(
        ("L.ldexp(x, y)",), "y", lambda x, y: np.abs(x) < SMALLEST_NORMAL, "the gradient times x is subnormal"
    ),
    Deliberate(
        ("L.hypot(x, y)",), "x y",
        lambda x, y: (np.abs(x) < 1e-37) & (np.abs(y) < 1e-37) | np.isinf(np.hypot(x, y)),
        "x over a length that is subnormal, and so has few digits, or that overflowed",
    ),
    Deliberate(
        ("F.kl_div(x, y, reduction='none')",), "y", lambda x, y: np.abs(y) < SMALLEST_NORMAL,
        "0 * log(0) is 0, and the gradient of that term too; PyTorch's is nan",
    ),
    Deliberate(
        tuple(case.expression for case in ON_LOGITS[:2]), "value", lambda x, y: np.isinf(x),
        "an infinite logit costs nothing where the target agrees, inf where not; PyTorch gives nan for -inf",
    ),
    Deliberate(
        (ON_LOGITS[2].expression,), "x", lambda x, y: np.abs(x) > 88,
        "the slope of the logistic function, where PyTorch divides inf by inf",
    ),
    Deliberate(
        ("L.addcmul(x, y, z)", "L.lerp(x, y, z)"), "value", _fusion_matters,
        "the product is rounded, or overflows, before the sum; PyTorch's processor kernels fuse both",
    ),
    # Functions of rows
    Deliberate(
        ("L.prod(x, 1)", "L.cumprod(x, 1)", "L.var(x, 1)", "L.var(x, 1, correction=0)", "L.std(x, 1)",
         "L.std(x, 1, correction=0)", "L.nanmean(x, 1)", "L.logcumsumexp(x, 1)", "F.normalize(x, dim=1)"),
        "x", _nothing_finite, "the gradient of a row that holds nan or infinities",
    ),
    Deliberate(
        ("L.norm(x, inf, 1)", "L.norm(x, -inf, 1)", "L.norm(x, 3, 1)", "L.norm(x, 0.5, 1)",
         "L.norm(x, -1, 1)"),
        "x", _nothing_finite, "the gradient of a norm of nan is nan, not 0",
    ),
    Deliberate(
        ("L.norm(x, 3, 1)",), "x", lambda x: np.isinf((np.abs(x) ** 3).sum(1)),
        "the norm overflowed to inf, and the gradient x / norm is 0; PyTorch's is nan",
    ),
    Deliberate(
        ("L.prod(x, 1)", "L.cumprod(x, 1)"), "value x",
        lambda x: ~(np.abs(np.log2(np.abs(x) + 1e-45)).sum(1) < 120),
        "products overflow or underflow on the way, in an order that differs; PyTorch multiplies in float64",
    ),
    Deliberate(
        ("L.cumsum(x, 1)",), "value", _sums_overflow,
        "sums overflow on the way, in an order that differs; PyTorch adds in float64",
    ),
    Deliberate(
        ("L.logcumsumexp(x, 1)",), "x", lambda x: np.abs(x).max(1) > 1e6,
        "PyTorch's gradient loses large numbers: three times 1e30 give (1, 1, 1), where (3, 0, 0) is right",
    ),
    Deliberate(
        ("L.var(x, 1)", "L.var(x, 1, correction=0)"), "value", _squares_overflow,
        "inf where the sum of squares is no float32, even if its mean is one; PyTorch adds in float64",
    ),
    Deliberate(
        ("L.var(x, 1)", "L.std(x, 1)", "L.var(x, 1, correction=0)", "L.std(x, 1, correction=0)"), "x",
        _sums_overflow, "differences from the first element, or their sum, overflow",
    ),
    Deliberate(
        ("L.std(x, 1)", "L.std(x, 1, correction=0)"), "x", lambda x: np.ptp(x.astype(np.float64), 1) < 1e-36,
        "deviations that are subnormal have few digits",
    ),
    Deliberate(
        ("F.layer_norm(x, (x.shape[1],))", "F.batch_norm(x.T, None, None, training=True).T",
         "F.group_norm(x.reshape(-1, 1, x.shape[1]), 1).reshape(x.shape)"),
        "value x", lambda x: _squares_overflow(x) | (np.abs(x).max(1) > 1e6),
        "statistics in float32: 0 or nan where the squares overflow, as in PyTorch's layer_norm; elements "
        "that are large in relation to their differences lose these",
    ),
    Deliberate(
        ("F.normalize(x, dim=1)", "F.cosine_similarity(x, y)"), "x y",
        _squares_overflow, "the squares overflow: 0 or nan",
    ),
    Deliberate(
        ("L.trapezoid(x, dim=1)",), "value", _nothing_finite,
        "an infinity stays one; PyTorch adds all, subtracts the ends and gets nan",
    ),
    Deliberate(
        ("F.multi_margin_loss(x, L.zeros_like(x[:, 0]).detach().to(L.int64), reduction='none')",
         "L.cdist(x[:, None].detach(), y[:, None].detach(), p=inf)[:, 0, 0]", "F.cosine_similarity(x, y)"),
        "value x y", _nothing_finite, "nan stays nan; PyTorch drops it in a maximum",
    ),
    Deliberate(
        ("F.multi_margin_loss(x, L.zeros_like(x[:, 0]).detach().to(L.int64), reduction='none')",), "value x",
        lambda x: np.abs(x).max(1) > 1e6,
        "scores are subtracted first; PyTorch's sum with the margin loses that",
    ),
)  # fmt: skip
