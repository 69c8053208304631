"""Indexing: rows that are taken, put and added."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.graph.ir.graph import Operand
from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written


@written("check_indices")
def indices(w: GraphWriter, call: OpCall) -> str:
    """Indices as int64: wrapped, scaled, and added to others."""
    source, *onto = call.operands
    if call.arguments["ignores"]:
        raise w.refused("an index that selects nothing has no form")
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
            name = w.add("Add", [name, w.steps(n, stride, len(grid) - axis - 1)])
    return w.add("Add", [name, w.get(onto[0])]) if onto else name


@written("copy_")
def copied(w: GraphWriter, call: OpCall) -> str:
    return w.get(call.operands[0])


@written("last_occurrences")
def last_occurrences(w: GraphWriter, call: OpCall) -> str:
    """The indices: none comes twice in those of ScatterND."""
    return w.get(call.operands[0])


def index_of(w: GraphWriter, index: Any) -> str:
    """The index of rows, as a vector."""
    if not isinstance(index, Operand):
        return w.constant(np.asarray(index, np.int64).reshape(-1))
    name = w.get(index)
    return name if len(index.shape) == 1 else w.add("Reshape", [name, w.ints([index.elements])])


@written("take_rows")
def take_rows(w: GraphWriter, call: OpCall) -> str:
    return w.add("Gather", [w.get(call.operands[0]), index_of(w, call.arguments["index"])], axis=1)


@written("take_rows_backward")
def add_rows(w: GraphWriter, call: OpCall) -> str:
    """Sums of rows by their indices."""
    rows = call.operands[0]
    places = w.add("Reshape", [index_of(w, call.arguments["index"]), w.ints([1, rows.shape[1], 1])])
    places = w.add("Expand", [places, w.ints(rows.shape)])
    zeros = w.add("Expand", [w.constant(np.zeros((), rows.dtype)), w.ints(call.result.shape)])
    return w.add("ScatterElements", [zeros, places, w.get(rows)], axis=1, reduction="add")


@written("put_rows")
def put_rows(w: GraphWriter, call: OpCall) -> str:
    """Rows in the place of others; of those that are known, without those that are not to be put."""
    target, source, *index = call.operands
    [index] = index or [call.arguments["index"]]
    count = index.elements if isinstance(index, Operand) else len(index)
    rows = w.add("Expand", [w.get(source), w.ints([count, target.shape[1]])])
    if not isinstance(index, Operand) and (index < 0).any():
        kept = np.flatnonzero(index >= 0)
        index, rows = index[kept], w.add("Gather", [rows, w.constant(kept)], axis=0)
    places = w.add("Unsqueeze", [index_of(w, index), w.ints([1])])
    return w.add("ScatterND", [w.get(target), places, rows])


@written("one_hot")
def one_hot(w: GraphWriter, call: OpCall) -> str:
    classes, values = w.ints([call.operands[1]]), w.constant(np.array([0, 1]))
    return w.add("OneHot", [w.get(call.operands[0]), classes, values], axis=-1)
