"""Convolution and transposed convolution."""

from __future__ import annotations

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.conv.conv_transpose import conv_transpose1d as conv_transpose1d
from dl4all.ops.conv.conv_transpose import conv_transpose2d as conv_transpose2d
from dl4all.ops.conv.conv_transpose import conv_transpose3d as conv_transpose3d
from dl4all.ops.conv.convolution import conv1d as conv1d
from dl4all.ops.conv.convolution import conv2d as conv2d
from dl4all.ops.conv.convolution import conv3d as conv3d
from dl4all.ops.conv.convolution import conv_input as conv_input
from dl4all.ops.conv.convolution import conv_weight as conv_weight

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_input",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_weight",
]
