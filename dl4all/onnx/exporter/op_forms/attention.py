"""Attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dl4all.graph.ir.graph import Operand
from dl4all.onnx.exporter.op_forms.elementwise import number
from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written


@written("flash_attention")
def attention(w: GraphWriter, call: OpCall) -> str:
    """Scores, softmax and sums; the result is followed by sums that no export reads."""
    q, k, v, mask = call.operands
    keys, values = w.get(k), w.get(v)
    scores = w.add("MatMul", [w.get(q), w.add("Transpose", [keys], perm=[0, 2, 1])])
    scores = w.add("Mul", [scores, number(w, call, call.arguments["scale"])])
    if call.arguments["causal"]:
        seen = w.add("Expand", [w.constant(np.array(True)), w.ints([q.shape[1], k.shape[1]])])
        below = w.add("Trilu", [w.add("Cast", [seen], to=w.element_type("float32"))], upper=0)
        below = w.add("Cast", [below], to=w.element_type("bool"))
        scores = w.add("Where", [below, scores, number(w, call, -math.inf)])
    if mask is not None:
        scores = masked(w, scores, (q.shape[0], q.shape[1], k.shape[1]), mask, call.arguments["repeats"])
    y = w.add("MatMul", [w.add("Softmax", [scores], axis=-1), values])
    w.define_pieces(call.result, [(y, (q.shape[0], q.shape[1], v.shape[2]))])
    return ""


def masked(w: GraphWriter, scores: str, shape: Sequence[int], mask: Operand, repeats: int) -> str:
    """Scores with a mask, each of which is that of so many heads, one after the other, again and again."""
    count, rows, columns = mask.shape
    if count == 1 or (repeats == 1 and count == shape[0]):
        return w.add("Add", [scores, w.get(mask)])
    apart = w.ints([shape[0] // (count * repeats), count, repeats, *shape[1:]])
    given = w.add("Reshape", [w.get(mask), w.ints([count, 1, rows, columns])])
    total = w.add("Add", [w.add("Reshape", [scores, apart]), given])
    return w.add("Reshape", [total, w.ints(shape)])
