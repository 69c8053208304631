"""Products with weights in few bits, as QDQ: integers that are dequantised before a product of floats."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dl4all.graph.ir.graph import Operand
from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written
from dl4all.onnx.graph import NDArray
from dl4all.ops.conv.convolution import ConvArgs
from dl4all.ops.linalg.packed_formats import FORMATS, Q4_0, Q8_0


def held(w: GraphWriter, operand: Operand) -> NDArray:
    """The elements of a weight's buffer."""
    array = w.array(operand)
    if array is None:
        raise w.refused("a weight in few bits is computed from inputs, which has no form")
    return array


@written("int8_product")
def int8_product(w: GraphWriter, call: OpCall) -> str:
    weight, x = call.operands
    matrix = w.add("DequantizeLinear", [w.get(weight["qdata"]), w.get(weight["scale"])], axis=0)
    return w.add("MatMul", [w.get(x), w.add("Transpose", [matrix], perm=[1, 0])])


@written("static_int8_product")
def static_int8_product(w: GraphWriter, call: OpCall) -> str:
    """A linear layer or a convolution whose input has steps, too."""
    weight, x = call.operands
    steps = w.get(weight["input_scale"]), w.constant(held(w, weight["input_zero_point"]).astype(np.uint8))
    value = w.add("DequantizeLinear", [w.add("QuantizeLinear", [w.get(x), *steps]), *steps])
    scale = w.get(weight["scale"])
    if len(weight["qdata"].shape) == 2:
        matrix = w.add("DequantizeLinear", [w.get(weight["qdata"]), scale], axis=0)
        return w.add("MatMul", [value, w.add("Transpose", [matrix], perm=[1, 0])])
    filters = np.ascontiguousarray(np.moveaxis(held(w, weight["qdata"]), -1, 1))
    window = ConvArgs(**call.arguments).window(filters.shape[2:])
    return w.add(
        "Conv",
        [value, w.add("DequantizeLinear", [w.constant(filters), scale], axis=0)],
        strides=[*window.stride],
        pads=[*window.before, *window.behind],
        dilations=[*window.dilation],
    )


@written("packed_product")
def packed_product(w: GraphWriter, call: OpCall) -> str:
    """Blocks of 4 bits and of 8: each an axis' part with a scale from opset 21 on, before that a row."""
    weight, x = call.operands
    if weight["format"] not in (Q4_0.name, Q8_0.name):
        raise w.refused(f"a weight of {weight['format']} has no form; take its dequantized()")
    format, scale = FORMATS[weight["format"]], held(w, weight["scale"]).astype(np.float32)
    blocks = held(w, weight["qdata"]).reshape(-1, format.size)
    rows, groups = scale.shape
    ones = np.ones((len(blocks), format.scales), np.float32)
    integers = format.unpacked(blocks, ones).astype(np.int8).reshape(rows, -1)
    if w.opset >= 21:
        integers = integers.astype(ml_dtypes.int4) if format is Q4_0 else integers
        inputs = [w.constant(integers), w.constant(scale)]
        size = integers.shape[1] // groups
        matrix = w.add("DequantizeLinear", inputs, axis=1, block_size=size)
    else:
        inputs = [w.constant(integers.reshape(rows * groups, -1)), w.constant(scale.reshape(-1))]
        matrix = w.add("DequantizeLinear", inputs, axis=0)
        matrix = w.add("Reshape", [matrix, w.ints(integers.shape)])
    return w.add("MatMul", [w.get(x), w.add("Transpose", [matrix], perm=[1, 0])])


@written("integer_product")
def integer_product(w: GraphWriter, call: OpCall) -> str:
    """Exact sums, of a matrix and another one's rows."""
    x, weight = (w.get(operand) for operand in call.operands)
    return w.add("MatMulInteger", [x, w.add("Transpose", [weight], perm=[1, 0])])
