"""``torch.autocast("dlall")``: which ops compute in the lower precision, which in float32.

The lists are those that PyTorch has for its own devices (ATen/autocast_mode.h).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dl4all.pytorch.device.devices import NAME
from dl4all.pytorch.device.dispatch.registration import has_overload, overload

LOWER_PRECISION = (
    "_convolution", "_convolution.deprecated", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm",
    "chain_matmul", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "einsum", "gru_cell",
    "linalg_multi_dot", "linalg_vecdot", "linear", "lstm_cell", "matmul", "mm", "mv", "prelu",
    "rnn_relu_cell", "rnn_tanh_cell", "scaled_dot_product_attention", "_thnn_fused_gru_cell",
    "_thnn_fused_lstm_cell",
)  # fmt: skip
"""Ops whose floating operands become those of the dtype that autocast was asked for."""

FLOAT32 = (
    "acos", "asin", "cdist", "cosh", "cosine_embedding_loss", "cosine_similarity", "dist", "erfinv",
    "exp", "expm1", "frobenius_norm.dim", "group_norm", "hinge_embedding_loss", "huber_loss", "kl_div",
    "l1_loss", "layer_norm", "log", "log10", "log1p", "log2", "logsumexp", "margin_ranking_loss",
    "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "native_layer_norm", "nll_loss",
    "nll_loss2d", "nuclear_norm", "nuclear_norm.dim", "binary_cross_entropy_with_logits", "pdist",
    "poisson_nll_loss", "pow.Scalar", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "reciprocal", "renorm",
    "rms_norm", "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss", "softplus", "tan",
    "triplet_margin_loss", "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_trilinear3d",
    "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "norm.Scalar", "norm.ScalarOpt_dim",
)  # fmt: skip
"""Ops whose floating operands become float32."""

FLOAT32_RESULT = (
    "cumprod", "cumsum", "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "linalg_vector_norm",
    "log_softmax.int", "prod", "prod.dim_int", "softmax.int", "sum", "sum.dim_IntList",
)  # fmt: skip
"""Ops with an argument `dtype`, which is float32 where none is given."""

WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sampler", "index_put", "scatter_add",
    "tensordot", "vdot",
)  # fmt: skip
"""Ops whose floating operands become the widest dtype among them."""

UNSAFE = {
    "binary_cross_entropy": "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
    "autocast: combine them with the sigmoid in front, as torch.nn.BCEWithLogitsLoss"
}
"""Ops that the lower precision makes meaningless, and why."""

KEYS = torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
)
LIBRARY = torch.library.Library("aten", "IMPL")
_OTHERS = torch.library.Library("_", "IMPL")


class _Cache(threading.local):
    """Parameters in the lower precision, until the outermost ``with`` block ends: a weight is cast once."""

    def __init__(self) -> None:
        self.casts: dict[tuple[int, torch.dtype, bool], tuple[torch.Tensor, torch.Tensor]] = {}


_cache = _Cache()


def register() -> None:
    """Register the kernels of PyTorch's key for this."""
    _OTHERS.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    policies: tuple[tuple[tuple[str, ...], Callable[[Any], Callable[..., Any]]], ...] = (
        (LOWER_PRECISION, _in_lower_precision),
        (FLOAT32, _in_float32),
        (FLOAT32_RESULT, _with_float32_result),
        (WIDEST, _in_widest),
        (tuple(UNSAFE), _refused),
    )
    for names, policy in policies:
        for name in filter(has_overload, names):
            LIBRARY.impl(name, policy(overload(name)), "AutocastPrivateUse1")
    own = torch.clear_autocast_cache

    def clear_autocast_cache() -> None:
        _cache.casts.clear()
        own()

    torch.clear_autocast_cache = clear_autocast_cache


def _is_eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.device.type == NAME
        and value.dtype != torch.float64
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(one, dtype) for one in value)
    if not _is_eligible(value) or value.dtype == dtype:
        return value
    kept = (
        dtype != torch.float32
        and value.dtype == torch.float32
        and value.requires_grad
        and value.is_leaf
        and not value._is_view()
        and torch.is_autocast_cache_enabled()
    )
    if not kept:
        return value.to(dtype)
    key = (id(value), dtype, torch.is_grad_enabled())
    if key not in _cache.casts:
        _cache.casts[key] = (value, value.to(dtype))  # the parameter, too: its number must not be used again
    return _cache.casts[key][1]


def _call(op: Any, dtype: torch.dtype, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch._C._ExcludeDispatchKeyGuard(KEYS):
        return op(*_cast(args, dtype), **{name: _cast(value, dtype) for name, value in kwargs.items()})


def _in_lower_precision(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _call(op, torch.get_autocast_dtype(NAME), args, kwargs)

    return kernel


def _in_float32(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _call(op, torch.float32, args, kwargs)

    return kernel


def _with_float32_result(op: Any) -> Callable[..., Any]:
    position = next(at for at, argument in enumerate(op._schema.arguments) if argument.name == "dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = args[position] if len(args) > position else kwargs.get("dtype")
        if given is None and _is_eligible(args[0]):
            args = args[:position]
            kwargs["dtype"] = torch.float32
        with torch._C._ExcludeDispatchKeyGuard(KEYS):
            return op(*args, **kwargs)

    return kernel


def _in_widest(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        found = {value.dtype for value in _flat((*args, *kwargs.values())) if _is_eligible(value)}
        widest = torch.float32 if torch.float32 in found else torch.get_autocast_dtype(NAME)
        return _call(op, widest, args, kwargs)

    return kernel


def _refused(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"[autocast] {UNSAFE[op._schema.name.removeprefix('aten::')]}")

    return kernel


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value
