"""Sorting and searching."""

from __future__ import annotations

import numpy as np

from dl4all.onnx.exporter.op_forms.elementwise import converted
from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written


@written("row_order")
def row_order(w: GraphWriter, call: OpCall) -> str:
    """The indices of TopK, which keeps the order of equal elements, too."""
    x, keep = call.operands
    wide = {"b": "int32", "i": "int64", "u": "int64"}.get(np.dtype(x.dtype).kind, "float32")
    x = w.get(x) if x.dtype == "float64" else converted(w, x, wide)
    descending = int(call.arguments["descending"])
    _, order = w.add_many("TopK", [x, w.ints([keep])], 2, axis=1, largest=descending, sorted=1)
    return w.add("Cast", [order], to=w.element_type("int32"))


@written("wide_indices")
def wide_indices(w: GraphWriter, call: OpCall) -> str:
    return w.add("Cast", [w.get(call.operands[0])], to=w.element_type("int64"))


@written("select_in_rows")
def select_in_rows(w: GraphWriter, call: OpCall) -> str:
    return w.add("GatherElements", [w.get(o) for o in call.operands], axis=1)


@written("insertion_points")
def insertion_points(w: GraphWriter, call: OpCall) -> str:
    """The number of elements of a row before each value."""
    sequence, values = (w.get(o) for o in call.operands)
    ndim = len(call.operands[1].shape)
    values = w.add("Unsqueeze", [values, w.ints([ndim])])
    if len(call.operands[0].shape) > 1:
        sequence = w.add("Unsqueeze", [sequence, w.ints([ndim - 1])])
    behind = w.add("Greater" if call.arguments["right"] else "GreaterOrEqual", [sequence, values])
    before = w.add("Cast", [w.add("Not", [behind])], to=w.element_type("int64"))
    return w.reduced("ReduceSum", before, [ndim], keep=False)
