"""The ONNX forms of ops, by family; importing this module declares them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from dl4all.functions.vision.interpolation import area_taps
from dl4all.graph.ir.graph import Operand
from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written
from dl4all.onnx.operators.elementwise import ARITHMETIC, LOGICAL, UNARY
from dl4all.ops.core.dtypes import KIND_RANKS, kind_of, promoted
from dl4all.ops.core.op import REGISTRY

BESIDE = {
    "true_divide": "Div",
    "pow": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "round_even": "Round",
    "clone": "Identity",
}
"""Ops whose names are not those of the functions that compute the operators."""


def _names() -> dict[str, str]:
    """The operators that take an op's operands as they are."""
    tables = {**UNARY, **ARITHMETIC, **LOGICAL}
    named = {function.__name__: name for name, (function, _) in tables.items()}
    return {op: name for op, name in {**named, **BESIDE}.items() if op in REGISTRY}


OPERATORS = _names()


def like(call: OpCall) -> str:
    """The dtype that an op computes in: its result's, or for comparisons that of the operands together."""
    if call.result.dtype != "bool":
        return call.result.dtype
    dtypes = [np.dtype(o.dtype) for o in call.operands if isinstance(o, Operand)]
    if any(isinstance(o, float) for o in call.operands):
        dtypes.append(np.dtype(np.float32))
    kinds = [KIND_RANKS[dtype] for dtype in dtypes]
    return str(
        reduce(promoted, (d for d, rank in zip(dtypes, kinds, strict=True) if rank == max(kinds))).name
    )


def operands_of(w: GraphWriter, call: OpCall) -> list[str]:
    """The operands in the dtype that the op computes in, as ONNX converts nothing by itself."""
    return [converted(w, o, like(call)) for o in call.operands if o is not None]


def converted(w: GraphWriter, operand: Any, dtype: str) -> str:
    name = w.get(operand, dtype)
    if not isinstance(operand, Operand) or operand.dtype == dtype:
        return name
    return w.add("Cast", [name], to=w.element_type(dtype))


@written(*OPERATORS)
def same(w: GraphWriter, call: OpCall) -> str:
    operator, inputs = OPERATORS[call.name], operands_of(w, call)
    if operator in ("And", "Or", "Xor", "Not"):
        inputs = [converted(w, o, "bool") for o in call.operands]
    elif operator.startswith("Bitwise"):
        if call.result.dtype == "bool":
            operator = {"BitwiseNot": "Not"}.get(operator, operator.removeprefix("Bitwise"))
        elif w.opset < 18:
            raise w.refused(f"the op {call.name} of integers has a form from opset 18 on")
    if operator == "Softplus" and call.arguments.get("beta", 1) != 1:
        beta = number(w, call, call.arguments["beta"])
        return w.add("Div", [w.add("Softplus", [w.add("Mul", [inputs[0], beta])]), beta])
    if call.arguments.get("alpha", 1) != 1:
        inputs[1] = w.add("Mul", [inputs[1], number(w, call, call.arguments["alpha"])])
    return w.add(operator, inputs)


def number(w: GraphWriter, call: OpCall, value: float) -> str:
    return w.constant(np.array(value, like(call)))


@written("ne")
def not_equal(w: GraphWriter, call: OpCall) -> str:
    return w.add("Not", [w.add("Equal", operands_of(w, call))])


@written("cast")
def cast(w: GraphWriter, call: OpCall) -> str:
    return w.add("Cast", [w.get(call.operands[0])], to=w.element_type(call.result.dtype))


@written("clamp_min", "clamp_max", "clamp_unchecked", "hardtanh")
def clip(w: GraphWriter, call: OpCall) -> str:
    x, *limits = call.operands
    if call.name == "hardtanh":
        limits = [call.arguments["min_val"], call.arguments["max_val"]]
    names = [converted(w, limit, like(call)) for limit in limits]
    lower, upper = {"clamp_min": (names, []), "clamp_max": ([], names)}.get(call.name, (names[:1], names[1:]))
    value = converted(w, x, like(call))
    for op_type, bounds in (("Max", lower), ("Min", upper)):
        if bounds:
            value = w.add(op_type, [value, *bounds])
    return value


@written("leaky_relu")
def leaky_relu(w: GraphWriter, call: OpCall) -> str:
    return w.add(
        "LeakyRelu",
        [converted(w, call.operands[0], call.result.dtype)],
        alpha=float(call.arguments["negative_slope"]),
    )


@written("hardsigmoid")
def hard_sigmoid(w: GraphWriter, call: OpCall) -> str:
    return w.add("HardSigmoid", [converted(w, call.operands[0], call.result.dtype)], alpha=1 / 6, beta=0.5)


@written("silu")
def silu(w: GraphWriter, call: OpCall) -> str:
    x = converted(w, call.operands[0], call.result.dtype)
    return w.add("Mul", [x, w.add("Sigmoid", [x])])


@written("logsigmoid")
def log_sigmoid(w: GraphWriter, call: OpCall) -> str:
    x = w.add("Neg", [converted(w, call.operands[0], call.result.dtype)])
    return w.add("Neg", [w.add("Softplus", [x])])


@written("elu")
def elu(w: GraphWriter, call: OpCall) -> str:
    x, alpha = converted(w, call.operands[0], call.result.dtype), float(call.arguments["alpha"])
    scale, inner = float(call.arguments.get("scale", 1)), float(call.arguments.get("input_scale", 1))
    if inner != 1:
        if scale != 1 or alpha * inner != 1:
            raise w.refused(f"elu with the scales {scale} and {inner} has no form")
        return w.add("Celu", [x], alpha=alpha)
    y = w.add("Elu", [x], alpha=alpha)
    return y if scale == 1 else w.add("Mul", [y, number(w, call, scale)])


@written("gelu_exact", "gelu_tanh")
def gelu(w: GraphWriter, call: OpCall) -> str:
    """An operator of its own from opset 20 on."""
    x, exact = converted(w, call.operands[0], call.result.dtype), call.name == "gelu_exact"
    if w.opset >= 20:
        return w.add("Gelu", [x], approximate="none" if exact else "tanh")
    if exact:
        inner = w.add("Erf", [w.add("Mul", [x, number(w, call, math.sqrt(0.5))])])
    else:
        cube = w.add("Mul", [w.add("Mul", [x, w.add("Mul", [x, x])]), number(w, call, 0.044715)])
        inner = w.add(
            "Tanh", [w.add("Mul", [w.add("Add", [x, cube]), number(w, call, math.sqrt(2 / math.pi))])]
        )
    half = w.add("Mul", [x, number(w, call, 0.5)])
    return w.add("Mul", [half, w.add("Add", [inner, number(w, call, 1.0)])])


@written("rsqrt")
def rsqrt(w: GraphWriter, call: OpCall) -> str:
    return w.add("Reciprocal", [w.add("Sqrt", [converted(w, call.operands[0], call.result.dtype)])])


@written("log2", "log10", "log1p", "exp2", "expm1")
def logarithm(w: GraphWriter, call: OpCall) -> str:
    x = converted(w, call.operands[0], call.result.dtype)
    if call.name == "log1p":
        return w.add("Log", [w.add("Add", [x, number(w, call, 1.0)])])
    if call.name == "expm1":
        return w.add("Sub", [w.add("Exp", [x]), number(w, call, 1.0)])
    if call.name == "exp2":
        return w.add("Exp", [w.add("Mul", [x, number(w, call, math.log(2))])])
    return w.add("Mul", [w.add("Log", [x]), number(w, call, 1 / math.log(2 if call.name == "log2" else 10))])


@written("where")
def where(w: GraphWriter, call: OpCall) -> str:
    condition, *rest = call.operands
    return w.add("Where", [converted(w, condition, "bool"), *(converted(w, o, like(call)) for o in rest)])


@written("lerp")
def lerp(w: GraphWriter, call: OpCall) -> str:
    x, end, weight = operands_of(w, call)
    return w.add("Add", [x, w.add("Mul", [weight, w.add("Sub", [end, x])])])


@written("addcmul", "addcdiv")
def add_product(w: GraphWriter, call: OpCall) -> str:
    x, y, z = operands_of(w, call)
    term = w.add("Mul" if call.name == "addcmul" else "Div", [y, z])
    if call.arguments["value"] != 1:
        term = w.add("Mul", [term, number(w, call, call.arguments["value"])])
    return w.add("Add", [x, term])


@written("remainder", "floor_divide")
def floored(w: GraphWriter, call: OpCall) -> str:
    x, y = operands_of(w, call)
    if kind_of(np.dtype(like(call))) != "f":
        if call.name == "remainder":
            return w.add("Mod", [x, y])
        return w.add("Div", [w.add("Sub", [x, w.add("Mod", [x, y])]), y])
    quotient = w.add("Floor", [w.add("Div", [x, y])])
    return quotient if call.name == "floor_divide" else w.add("Sub", [x, w.add("Mul", [quotient, y])])


@written("triu", "tril")
def triangle(w: GraphWriter, call: OpCall) -> str:
    diagonal = w.constant(np.array(call.arguments["diagonal"], np.int64))
    return w.add("Trilu", [w.get(call.operands[0]), diagonal], upper=int(call.name == "triu"))


# Reductions

REDUCTIONS = {
    "sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin", "prod": "ReduceProd",
    "logsumexp": "ReduceLogSumExp",
}  # fmt: skip


def axes_of(call: OpCall) -> list[int]:
    """The axes of a reduction, from 0 on; all where none are named."""
    dim, ndim = call.arguments.get("dim"), len(call.operands[0].shape)
    if dim is None or dim == ():
        return list(range(ndim))
    return [axis % ndim for axis in (dim if isinstance(dim, (tuple, list)) else (dim,))]


@written(*REDUCTIONS)
def reduction(w: GraphWriter, call: OpCall) -> str:
    x = converted(w, call.operands[0], call.result.dtype)
    return w.reduced(REDUCTIONS[call.name], x, axes_of(call), keep=bool(call.arguments.get("keepdim")))


@written("norm")
def norm(w: GraphWriter, call: OpCall) -> str:
    kinds = {1: "ReduceL1", 2: "ReduceL2", "fro": "ReduceL2"}
    if call.arguments["p"] not in kinds:
        raise w.refused(f"the norm of order {call.arguments['p']} has no form here")
    keep = bool(call.arguments.get("keepdim"))
    return w.reduced(kinds[call.arguments["p"]], w.get(call.operands[0]), axes_of(call), keep=keep)


@written("var", "std")
def variance(w: GraphWriter, call: OpCall) -> str:
    x, axes, keep = call.operands[0], axes_of(call), bool(call.arguments.get("keepdim"))
    value = w.get(x)
    away = w.add("Sub", [value, w.reduced("ReduceMean", value, axes, keep=True)])
    mean = w.reduced("ReduceMean", w.add("Mul", [away, away]), axes, keep=keep)
    count, correction = math.prod(x.shape[axis] for axis in axes), call.arguments.get("correction", 1)
    if correction:
        mean = w.add("Mul", [mean, number(w, call, count / (count - correction))])
    return w.add("Sqrt", [mean]) if call.name == "std" else mean


@written("argmax", "argmin")
def arg_extreme(w: GraphWriter, call: OpCall) -> str:
    x, dim = w.get(call.operands[0]), call.arguments["dim"]
    if dim is None:
        x, dim = w.add("Reshape", [x, w.ints([-1])]), 0
    op_type = "ArgMax" if call.name == "argmax" else "ArgMin"
    return w.add(op_type, [x], axis=dim, keepdims=int(bool(call.arguments.get("keepdim"))))


@written("softmax", "log_softmax")
def softmax(w: GraphWriter, call: OpCall) -> str:
    op_type = "Softmax" if call.name == "softmax" else "LogSoftmax"
    return w.add(op_type, [converted(w, call.operands[0], call.result.dtype)], axis=call.arguments["dim"])


@written("cumsum")
def cumsum(w: GraphWriter, call: OpCall) -> str:
    x = converted(w, call.operands[0], call.result.dtype)
    return w.add("CumSum", [x, w.constant(np.array(call.arguments["dim"], np.int64))])


# Products


@written("matmul", "dot")
def matmul(w: GraphWriter, call: OpCall) -> str:
    return w.add("MatMul", [w.get(o) for o in call.operands])


@written("linear")
def linear(w: GraphWriter, call: OpCall) -> str:
    """A Gemm for matrices; products with a transposed weight for more axes."""
    x, weight, bias = call.operands
    if len(x.shape) == 2:
        return w.add("Gemm", [w.get(o) for o in call.operands if o is not None], transB=1)
    y = w.add("MatMul", [w.get(x), w.add("Transpose", [w.get(weight)], perm=[1, 0])])
    return y if bias is None else w.add("Add", [y, w.get(bias)])


# Convolutions and pools


def numbers(value: Any, axes: int) -> list[int]:
    return [int(value)] * axes if isinstance(value, int) else [int(n) for n in value]


def windows(call: OpCall, axes: int) -> dict[str, list[int]]:
    """The attributes of windows."""
    given = call.arguments
    padding = given.get("padding", 0)
    if isinstance(padding, str):  # of a convolution by steps of 1
        kernel, dilation = call.operands[1].shape[2:], numbers(given["dilation"], axes)
        total = [d * (k - 1) * (padding == "same") for k, d in zip(kernel, dilation, strict=True)]
        pads = [n // 2 for n in total] + [n - n // 2 for n in total]
    else:
        pads = numbers(padding, axes) * 2
    strides = numbers(given.get("stride") or given.get("kernel_size"), axes)
    attributes = {"strides": strides, "pads": pads}
    if "dilation" in given:
        attributes["dilations"] = numbers(given["dilation"], axes)
    return attributes


@written("conv1d", "conv2d", "conv3d")
def conv(w: GraphWriter, call: OpCall) -> str:
    axes = len(call.operands[0].shape) - 2
    inputs = [w.get(o) for o in call.operands if o is not None]
    return w.add("Conv", inputs, group=int(call.arguments["groups"]), **windows(call, axes))


@written("conv_input")
def conv_transpose(w: GraphWriter, call: OpCall) -> str:
    x, weight = call.operands
    axes = len(x.shape) - 2
    attributes = windows(call, axes)
    extra = []
    for i in range(axes):
        reach = attributes["dilations"][i] * (weight.shape[2 + i] - 1) + 1
        least = (x.shape[2 + i] - 1) * attributes["strides"][i] - 2 * attributes["pads"][i] + reach
        extra.append(int(call.result.shape[2 + i]) - least)
    if any(extra):
        attributes["output_padding"] = extra
    return w.add(
        "ConvTranspose", [w.get(x), w.get(weight)], group=int(call.arguments["groups"]), **attributes
    )


@written("max_pool2d", "avg_pool2d")
def pool(w: GraphWriter, call: OpCall) -> str:
    given, attributes = call.arguments, windows(call, 2)
    attributes["kernel_shape"] = numbers(given["kernel_size"], 2)
    if given.get("divisor_override"):
        raise w.refused("divisor_override has no form")
    op_type, more = "MaxPool", dict[str, Any]()
    if call.name == "avg_pool2d":
        op_type, more["count_include_pad"] = "AveragePool", int(bool(given["count_include_pad"]))
    if given.get("ceil_mode"):
        attributes["pads"][2:] = _reach(w, call, attributes, counted=bool(more.get("count_include_pad")))
    return w.add(op_type, [w.get(call.operands[0])], **attributes, **more)


def _reach(w: GraphWriter, call: OpCall, attributes: dict[str, list[int]], *, counted: bool) -> list[int]:
    """The padding that the last windows reach, as engines differ in the windows of ceil_mode."""
    found = []
    for i, (old, new) in enumerate(zip(call.operands[0].shape[2:], call.result.shape[2:], strict=True)):
        dilation, low = attributes.get("dilations", [1, 1])[i], attributes["pads"][i]
        extent = (attributes["kernel_shape"][i] - 1) * dilation + 1
        high = (new - 1) * attributes["strides"][i] + extent - old - low
        if counted and high > low:
            raise w.refused("a mean with ceil_mode, over windows beyond a padding that counts, has no form")
        found.append(max(high, 0))
    return found


@written("adaptive_avg_pool2d", "adaptive_max_pool2d")
def adaptive_pool(w: GraphWriter, call: OpCall) -> str:
    """A pool over everything, over even windows, or means as products with a matrix for each axis."""
    x, mean = call.operands[0], call.name == "adaptive_avg_pool2d"
    old, new = x.shape[-2:], call.result.shape[-2:]
    if tuple(new) == (1, 1):
        return w.add("GlobalAveragePool" if mean else "GlobalMaxPool", [w.get(x)])
    uneven = any(n % m for n, m in zip(old, new, strict=True))
    if uneven and mean:
        down, across = (w.constant(_means(n, m).astype(x.dtype)) for n, m in zip(old, new, strict=True))
        rows = w.add("MatMul", [down, w.get(x)])
        return w.add("MatMul", [rows, w.add("Transpose", [across], perm=[1, 0])])
    if uneven:
        raise w.refused(f"adaptive pooling of {tuple(old)} to {tuple(new)} has no form")
    size = [n // m for n, m in zip(old, new, strict=True)]
    return w.add("AveragePool" if mean else "MaxPool", [w.get(x)], kernel_shape=size, strides=size)


def _means(old: int, new: int) -> Any:
    """The matrix that takes means of the parts of an axis.

    >>> _means(3, 2).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    """
    matrix = np.zeros((new, old))
    for indices, weights in area_taps(old, new):
        np.add.at(matrix, (np.arange(new), indices), weights)
    return matrix


# Normalisations


@written("batch_norm_apply")
def batch_norm(w: GraphWriter, call: OpCall) -> str:
    x, mean, var, weight, bias = call.operands
    channels = x.shape[1]
    scale, offset = (
        w.constant(np.full(channels, fill, x.dtype)) if o is None else w.get(o)
        for o, fill in ((weight, 1), (bias, 0))
    )
    inputs = [w.get(x), scale, offset, w.get(mean), w.get(var)]
    return w.add("BatchNormalization", inputs, epsilon=float(call.arguments["eps"]))


@written("grouped_norm")
def grouped_norm(w: GraphWriter, call: OpCall) -> str:
    """Layer, group, instance and RMS norm: rows of (N, groups, the rest) over their statistics."""
    x, weight, bias = call.operands
    groups, eps, center = call.arguments["groups"], float(call.arguments["eps"]), call.arguments["center"]
    if len(x.shape) == 2 and groups == 1 and center:
        scale = w.constant(np.ones(x.shape[1], x.dtype)) if weight is None else w.get(weight)
        inputs = [w.get(x), scale, *([] if bias is None else [w.get(bias)])]
        return w.add("LayerNormalization", inputs, axis=-1, epsilon=eps)
    value = w.get(x)
    split = len(x.shape) > 2 or groups > 1
    rows = w.add("Reshape", [value, w.ints([x.shape[0], groups, -1])]) if split else value
    axis = [2 if split else 1]
    away = w.add("Sub", [rows, w.reduced("ReduceMean", rows, axis, keep=True)]) if center else rows
    square = w.reduced("ReduceMean", w.add("Mul", [away, away]), axis, keep=True)
    y = w.add("Div", [away, w.add("Sqrt", [w.add("Add", [square, number(w, call, eps)])])])
    y = w.add("Reshape", [y, w.ints(x.shape)]) if split else y
    for op_type, factor in (("Mul", weight), ("Add", bias)):
        if factor is not None:
            name = w.get(factor)
            if len(x.shape) > 2:
                name = w.add("Reshape", [name, w.ints([-1, *[1] * (len(x.shape) - 2)])])
            y = w.add(op_type, [y, name])
    return y


# Attention and recurrent layers


@written("flash_attention")
def attention(w: GraphWriter, call: OpCall) -> str:
    """Scores, softmax and sums; the result is followed by sums that no export reads."""
    q, k, v, mask = call.operands
    keys, values, repeats = w.get(k), w.get(v), call.arguments.get("repeats", 1)
    if repeats != 1:
        raise w.refused("attention with fewer heads of keys has no form here")
    scores = w.add("MatMul", [w.get(q), w.add("Transpose", [keys], perm=[0, 2, 1])])
    scores = w.add("Mul", [scores, number(w, call, call.arguments["scale"])])
    if call.arguments["causal"]:
        seen = w.add("Expand", [w.constant(np.array(True)), w.ints([q.shape[1], k.shape[1]])])
        below = w.add("Trilu", [w.add("Cast", [seen], to=w.element_type("float32"))], upper=0)
        below = w.add("Cast", [below], to=w.element_type("bool"))
        scores = w.add("Where", [below, scores, number(w, call, -math.inf)])
    if mask is not None:
        scores = w.add("Add", [scores, w.get(mask)])
    y = w.add("MatMul", [w.add("Softmax", [scores], axis=-1), values])
    w.define_pieces(call.result, [(y, (q.shape[0], q.shape[1], v.shape[2]))])
    return ""


ORDERS = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "tanh": (0,), "relu": (0,)}
"""ONNX's gates among PyTorch's."""


def _ordered(w: GraphWriter, operand: Operand, mode: str) -> str:
    """Rows of gates in ONNX's order."""
    name, order = w.get(operand), ORDERS[mode]
    if len(order) == 1:
        return name
    rows = operand.shape[0] // len(order)
    parts = [w.add("Slice", [name, *(w.ints([n]) for n in (i * rows, (i + 1) * rows, 0))]) for i in order]
    return w.add("Concat", parts, axis=0)


@written("recurrent_sequence")
def recurrent(w: GraphWriter, call: OpCall) -> str:
    """One direction of a layer; the product with its input is part of the operator."""
    gates, hidden, weight, cell, bias, projection = call.operands
    given, mode = call.arguments, call.arguments["mode"]
    sizes, producer = given["sizes"], w.producers.get(gates.value.buffer)
    if projection is not None or len(set(sizes)) != 1 or producer is None or producer.name != "linear":
        raise w.refused(f"this {mode} layer has no form here: rows of unlike lengths, or proj_size")
    steps, batch, size = len(sizes), sizes[0], weight.shape[1]
    x, weight_x, bias_x = producer.operands
    inputs = w.add("Reshape", [w.get(x), w.ints([steps, batch, x.shape[-1]])])

    def leading(name: str, shape: Sequence[int]) -> str:
        return w.add("Reshape", [name, w.ints([1, *shape])])

    rows = weight.shape[0]
    zeros = w.constant(np.zeros(rows, gates.dtype))
    halves = [zeros if b is None else _ordered(w, b, mode) for b in (bias_x, bias)]
    operator = {"lstm": "LSTM", "gru": "GRU"}.get(mode, "RNN")
    more: dict[str, Any] = {"hidden_size": size, "direction": "reverse" if given["reverse"] else "forward"}
    if mode == "gru":
        more["linear_before_reset"] = 1
    if operator == "RNN":
        more["activations"] = ["Tanh" if mode == "tanh" else "Relu"]
    names = [
        inputs, *(leading(_ordered(w, t, mode), t.shape) for t in (weight_x, weight)),
        leading(w.add("Concat", halves, axis=0), (2 * rows,)), "",
        *(leading(w.get(state), (batch, size)) for state in (hidden, cell) if state is not None),
    ]  # fmt: skip
    results = w.add_many(operator, names, 3 if cell is not None else 2, **more)
    pieces = [(results[0], (steps, 1, batch, size)), *((name, (1, batch, size)) for name in results[1:])]
    w.define_pieces(call.result, pieces)
    return ""


def _blocks(w: GraphWriter, operand: Operand, count: int) -> list[str]:
    """The blocks of columns of gates."""
    size, name = operand.shape[1] // count, w.get(operand)
    return [
        w.add("Slice", [name, *(w.ints([n]) for n in (i * size, (i + 1) * size, 1))]) for i in range(count)
    ]


@written("lstm_step")
def lstm_step(w: GraphWriter, call: OpCall) -> str:
    """The hidden state and the cell, one after the other."""
    ours, theirs, cell = call.operands
    pairs = zip(_blocks(w, ours, 4), _blocks(w, theirs, 4), strict=True)
    i, f, new, o = (w.add("Add", list(pair)) for pair in pairs)
    i, f, o = (w.add("Sigmoid", [gate]) for gate in (i, f, o))
    kept = w.add("Mul", [f, w.get(cell)])
    state = w.add("Add", [kept, w.add("Mul", [i, w.add("Tanh", [new])])])
    hidden = w.add("Mul", [o, w.add("Tanh", [state])])
    w.define_pieces(call.result, [(hidden, tuple(cell.shape)), (state, tuple(cell.shape))])
    return ""


@written("gru_step")
def gru_step(w: GraphWriter, call: OpCall) -> str:
    ours, theirs, hidden = call.operands
    (r, z, n), (hr, hz, hn) = _blocks(w, ours, 3), _blocks(w, theirs, 3)
    reset, update = (w.add("Sigmoid", [w.add("Add", list(pair))]) for pair in ((r, hr), (z, hz)))
    new = w.add("Tanh", [w.add("Add", [n, w.add("Mul", [reset, hn])])])
    away = w.add("Sub", [w.get(hidden), new])
    return w.add("Add", [new, w.add("Mul", [update, away])])


# Indexing


@written("check_indices")
def indices(w: GraphWriter, call: OpCall) -> str:
    """Indices as int64: wrapped, scaled, and added to others."""
    source, *onto = call.operands
    name = w.get(source)
    name = name if source.dtype == "int64" else w.add("Cast", [name], to=w.element_type("int64"))
    if call.arguments["wraps"]:
        below = w.add("Less", [name, w.constant(np.array(0))])
        moved = w.add("Add", [name, w.constant(np.array(call.arguments["size"]))])
        name = w.add("Where", [below, moved, name])
    if call.arguments["scale"] != 1:
        name = w.add("Mul", [name, w.constant(np.array(call.arguments["scale"]))])
    grid = call.arguments["grid"]
    for axis, (n, stride) in enumerate(zip(source.shape, grid, strict=True)):
        if stride:  # what an index on this axis adds
            scalars = w.constant(np.array(0)), w.add("Squeeze", [w.ints([n])]), w.constant(np.array(1))
            steps = w.add("Mul", [w.add("Range", scalars), w.ints([stride])])
            if len(grid) - axis > 1:
                steps = w.add("Unsqueeze", [steps, w.ints(range(1, len(grid) - axis))])
            name = w.add("Add", [name, steps])
    return w.add("Add", [name, w.get(onto[0])]) if onto else name


def index_of(w: GraphWriter, call: OpCall) -> str:
    """The index of rows, as a vector."""
    index = call.arguments["index"]
    if not isinstance(index, Operand):
        return w.constant(np.asarray(index, np.int64).reshape(-1))
    name = w.get(index)
    return name if len(index.shape) == 1 else w.add("Reshape", [name, w.ints([index.elements])])


@written("take_rows")
def take_rows(w: GraphWriter, call: OpCall) -> str:
    return w.add("Gather", [w.get(call.operands[0]), index_of(w, call)], axis=1)
