"""Reductions, softmax and sums along an axis."""

from __future__ import annotations

import math

import numpy as np

from dl4all.onnx.exporter.op_forms.elementwise import converted, number, operands_of
from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written

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


@written("zero")
def zero(w: GraphWriter, call: OpCall) -> str:
    return w.add("Expand", [w.constant(np.zeros((), call.result.dtype)), w.ints(call.result.shape)])


@written("atan2")
def atan2(w: GraphWriter, call: OpCall) -> str:
    """The angle of a point: that of its slope, turned by half a circle to the left of the origin."""
    y, x = operands_of(w, call)
    zero, half, whole = (number(w, call, n) for n in (0.0, math.pi / 2, math.pi))
    slope = w.add("Atan", [w.add("Div", [y, x])])
    turn = w.add("Where", [w.add("Less", [y, zero]), w.add("Neg", [whole]), whole])
    angle = w.add("Where", [w.add("Less", [x, zero]), w.add("Add", [slope, turn]), slope])
    above = w.add("Mul", [w.add("Sign", [y]), half])
    return w.add("Where", [w.add("Equal", [x, zero]), above, angle])


@written("cumprod")
def cumprod(w: GraphWriter, call: OpCall) -> str:
    if w.opset < 26:
        raise w.refused("the op cumprod has a form from opset 26 on")
    x = converted(w, call.operands[0], call.result.dtype)
    return w.add("CumProd", [x, w.constant(np.array(call.arguments["dim"], np.int64))])


@written("cumsum")
def cumsum(w: GraphWriter, call: OpCall) -> str:
    x = converted(w, call.operands[0], call.result.dtype)
    return w.add("CumSum", [x, w.constant(np.array(call.arguments["dim"], np.int64))])
