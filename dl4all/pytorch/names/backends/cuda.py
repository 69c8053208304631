"""``torch.backends.cuda``: settings of libraries that are not here; they keep what is set, without effect."""

from __future__ import annotations

from types import SimpleNamespace

__all__ = [
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "is_built",
    "math_sdp_enabled",
    "mem_efficient_sdp_enabled",
]

matmul = SimpleNamespace(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=False,
    allow_bf16_reduced_precision_reduction=False,
    fp32_precision="ieee",
)
"""Precision of products: ``dl.set_float32_matmul_precision`` is the switch that has an effect."""


def is_built() -> bool:
    """False.

    Example:
        >>> import dl4all as dl
        >>> dl.backends.cuda.is_built()
        False
    """
    return False


def enable_flash_sdp(enabled: bool) -> None:
    """Nothing: ``scaled_dot_product_attention`` chooses its kernel by itself.

    Example:
        >>> import dl4all as dl
        >>> dl.backends.cuda.enable_flash_sdp(False)
    """


enable_math_sdp = enable_mem_efficient_sdp = enable_flash_sdp


def flash_sdp_enabled() -> bool:
    """False: there are no kernels of CUDA.

    Example:
        >>> import dl4all as dl
        >>> dl.backends.cuda.flash_sdp_enabled()
        False
    """
    return False


mem_efficient_sdp_enabled = flash_sdp_enabled


def math_sdp_enabled() -> bool:
    """True: attention is always computed exactly.

    Example:
        >>> import dl4all as dl
        >>> dl.backends.cuda.math_sdp_enabled()
        True
    """
    return True
