"""Normalisations."""

from __future__ import annotations

import numpy as np

from dl4all.onnx.exporter.op_forms.elementwise import number
from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written


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
