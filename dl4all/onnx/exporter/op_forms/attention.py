"""Attention."""

from __future__ import annotations

import math

import numpy as np

from dl4all.onnx.exporter.op_forms.elementwise import number
from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written


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
