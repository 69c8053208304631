"""Integers in the place of floats, and products of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.onnx.call import Call, is_array
from dl4all.onnx.dtypes import element_dtype, held, limits
from dl4all.onnx.operators.elementwise import as_float8
from dl4all.onnx.operators.windows import windows_of
from dl4all.onnx.registry import operator
from dl4all.ops.conv.integer_convolution import integer_convolution
from dl4all.ops.core.dtypes import FLOAT8, HALVES
from dl4all.ops.linalg.integer_product import integer_product
from dl4all.tensor.creation import ones_like

BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


def _spread(call: Call, factor: Any, x: Any) -> Any:
    """A scale or a zero point that broadcasts to the input: one, one a slice of an axis, or one a block."""
    if factor is None or factor.ndim == 0 or factor.size == 1:
        return None if factor is None else factor.reshape(())
    axis, block = call.get("axis", 1) % x.ndim, call.get("block_size", 0)
    if block:
        wide = functions.repeat_interleave(call.tensor(factor), block, dim=axis)
        return wide[(slice(None),) * axis + (slice(0, x.shape[axis]),)]
    return factor.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def _rounded(call: Call, x: Any, zero: Any, dtype: np.dtype[Any]) -> Any:
    """Floats as float8, or as the nearest even integers, moved by the zero point, within their range."""
    if dtype in FLOAT8:  # whose zero point is 0
        return as_float8(call, x, dtype)
    y = functions.round(x)
    if zero is not None:
        y = y + call.tensor(zero).to(y.dtype)
    low, high = limits(dtype)
    return functions.clamp(y, low, high).to(held(dtype))


@operator("QuantizeLinear")
def quantize(call: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    x = call.tensor(x)
    number = call.get("output_dtype", 0)
    dtype = zero.dtype if zero is not None else element_dtype(number) if number else np.dtype(np.uint8)
    wide = x.float() if x.dtype in HALVES or x.dtype.kind == "i" else x
    step = call.tensor(_spread(call, scale, x)).to(wide.dtype)
    return _rounded(call, wide / step, _spread(call, zero, x), dtype)


@operator("DequantizeLinear")
def dequantize(call: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    x = call.tensor(x)
    if x.dtype not in FLOAT8:
        limits(x.dtype)
    number = call.get("output_dtype", 0)
    dtype = element_dtype(number) if number else scale.dtype
    step = call.tensor(_spread(call, scale, x)).float()
    y = x.float()  # as float32 holds all integers of 16 bits; of int32 there is no zero point
    if zero is not None:
        y = y - call.tensor(_spread(call, zero, x)).float()
    return (y * step).to(dtype)


def _signed(x: Any) -> tuple[Any, int]:
    """An operand as int8, and by how much its elements fell."""
    return (x, 0) if x.dtype == np.int8 else ((x.to("int32") - 128).to("int8"), 128)


def _unsigned(x: Any) -> tuple[Any, int]:
    """An operand as uint8, and by how much its elements rose."""
    return (x, 0) if x.dtype == np.uint8 else ((x.to("int32") + 128).to("uint8"), 128)


def _zero(call: Call, zero: Any) -> Any:
    """A zero point as int32; 0 where there is none."""
    if zero is None:
        return 0
    if is_array(zero):
        zero = zero.astype(np.int32)
        return int(zero.reshape(())) if zero.size == 1 else call.tensor(zero)
    return zero.to("int32")


def _product(call: Call, x: Any, y: Any, zero_x: Any, zero_y: Any) -> Any:
    """``(x - zero_x) @ (y - zero_y)`` in int32, by products of bytes.

    A zero point of x is one, or one a row; of y one, or one a column.
    """
    x, y = call.tensors(x, y)
    if x.dtype not in BYTES or y.dtype not in BYTES:
        raise TypeError(f"expected int8 or uint8, got {x.dtype} and {y.dtype}")
    if y.ndim > 2:
        lead = np.broadcast_shapes(tuple(x.shape[:-2]), tuple(y.shape[:-2]))
        xs = functions.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(-1, *x.shape[-2:])
        ys = functions.broadcast_to(y, (*lead, *y.shape[-2:])).reshape(-1, *y.shape[-2:])
        rows = [_product(call, xs[i], ys[i], zero_x, zero_y) for i in range(len(xs))]
        return functions.stack(rows).reshape(*lead, x.shape[-2], y.shape[-1])
    shape, count = tuple(x.shape[:-1]), x.shape[-1]
    matrix, columns = x.reshape(-1, count), y if y.ndim == 2 else y.unsqueeze(1)
    small, fall = _signed(columns)
    a, b = _zero(call, zero_x), _zero(call, zero_y)
    if not isinstance(a, int) and a.ndim:  # one a row
        a = a.reshape(-1, 1)
    result = integer_product(matrix, small.T.contiguous())
    b = b - fall if isinstance(b, int) else b.reshape(1, -1) - fall
    sums_y = small.to("int32").sum(0, keepdim=True).to("int32")
    sums_x = matrix.to("int32").sum(1, keepdim=True).to("int32")
    result = result - sums_x * b - a * sums_y + a * b * count
    result = result.to("int32")
    return result.reshape(*shape, y.shape[1]) if y.ndim == 2 else result.reshape(shape)


@operator("MatMulInteger")
def matmul_integer(call: Call, x: Any, y: Any, zero_x: Any = None, zero_y: Any = None) -> Any:
    return _product(call, x, y, zero_x, zero_y)


def _requantized(call: Call, sums: Any, factor: Any, zero: Any) -> Any:
    return _rounded(call, sums.float() * factor, zero, zero.dtype)


@operator("QLinearMatMul")
def qlinear_matmul(
    call: Call, x: Any, scale_x: Any, zero_x: Any, y: Any, scale_y: Any, zero_y: Any, scale: Any, zero: Any
) -> Any:
    sums = _product(call, x, y, zero_x, zero_y)
    scales = call.tensor(scale_x).float() * call.tensor(scale_y).float()
    return _requantized(call, sums, scales / call.tensor(scale).float(), zero)


def _convolved(call: Call, x: Any, weight: Any, zero_x: Any, zero_w: Any) -> Any:
    """The sums of a convolution of integers, each less its zero point, in int32."""
    x, weight = call.tensors(x, weight)
    windows = windows_of(call, tuple(x.shape[2:]), tuple(weight.shape[2:]))
    bytes_x, rise = _unsigned(x)
    small, fall = _signed(weight)
    a = _zero(call, zero_x)
    if not isinstance(a, int):
        a = a.reshape(())
    a = a + rise
    b = _zero(call, zero_w)
    b = b - fall if isinstance(b, int) else (b - fall).reshape(-1)
    padded = _padded(bytes_x, a, windows.reach)
    last = functions.movedim(padded, 1, -1)
    kernels = functions.movedim(small, 1, -1)
    group, results = call.get("group", 1), []
    size, width = small.shape[0] // group, small.shape[1]
    for i in range(group):
        part = last[..., i * width : (i + 1) * width].contiguous()
        own = kernels[i * size : (i + 1) * size].contiguous()
        sums = integer_convolution(part, own, windows.stride, windows.dilation)
        # sum((x - a)(w - b)) = sum(xw) - a sum(w) - b sum(x) + n a b
        ones = ones_like(own[:1])
        of_x = integer_convolution(part, ones, windows.stride, windows.dilation)
        of_w = own.to("int32").reshape(size, -1).sum(1).to("int32")
        mine = b if isinstance(b, int) or b.numel() == 1 else b[i * size : (i + 1) * size]
        results.append(sums - of_w * a - of_x * mine + own[0].numel() * a * mine)
    y = functions.cat(results, -1) if group > 1 else results[0]
    return functions.movedim(y.to("int32"), -1, 1)


def _padded(x: Any, zero: Any, reach: Any) -> Any:
    """An image of bytes with its zero point around it."""
    for axis, (low, high) in enumerate(reach, 2):
        parts = [x]
        for at, width in ((0, low), (1, high)):
            if width > 0:
                edge = x.new_zeros((*x.shape[:axis], width, *x.shape[axis + 1 :]))
                edge = (edge.to("int32") + zero).to("uint8")
                parts.insert(at * len(parts), edge)
        x = functions.cat(parts, axis) if len(parts) > 1 else x
        if low < 0 or high < 0:
            x = x[(slice(None),) * axis + (slice(max(-low, 0), x.shape[axis] - max(-high, 0)),)]
    return x


@operator("ConvInteger")
def conv_integer(call: Call, x: Any, weight: Any, zero_x: Any = None, zero_w: Any = None) -> Any:
    return _convolved(call, x, weight, zero_x, zero_w)


@operator("QLinearConv")
def qlinear_conv(
    call: Call,
    x: Any,
    scale_x: Any,
    zero_x: Any,
    weight: Any,
    scale_w: Any,
    zero_w: Any,
    scale: Any,
    zero: Any,
    bias: Any = None,
) -> Any:
    sums = _convolved(call, x, weight, zero_x, zero_w)
    shape = (1, -1, *[1] * (sums.ndim - 2))
    if bias is not None:
        sums = sums + call.tensor(bias).to("int32").reshape(shape)
    scales = call.tensor(scale_x).float() * call.tensor(scale_w).float() / call.tensor(scale).float()
    return _requantized(call, sums, scales.reshape(shape) if scales.numel() > 1 else scales.reshape(()), zero)
