"""Scaled dot-product attention."""

from __future__ import annotations

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.attention.flash import flash_attention as flash_attention
from dl4all.ops.attention.flash import flash_attention_backward as flash_attention_backward
from dl4all.ops.attention.multi_head import multi_head_attention_forward as multi_head_attention_forward
from dl4all.ops.attention.scaled_dot_product import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)

__all__ = [
    "flash_attention",
    "flash_attention_backward",
    "multi_head_attention_forward",
    "scaled_dot_product_attention",
]
