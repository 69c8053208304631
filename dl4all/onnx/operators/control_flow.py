"""Branches and loops: Python's own, over numbers of the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.functions import names as functions
from dl4all.onnx.call import Call, is_array
from dl4all.onnx.registry import operator


@operator("If", reads=(0,))
def branch(call: Call, condition: Any) -> Any:
    chosen = "then_branch" if bool(call.number(condition)) else "else_branch"
    return tuple(call.evaluate(call.get(chosen), ()))


def _stacked(call: Call, rows: list[Any], axis: int = 0) -> Any:
    if rows and all(map(is_array, rows)):
        return np.stack(rows, axis)
    return functions.stack(list(call.tensors(*rows)), axis)


@operator("Loop", reads=(0, 1))
def loop(call: Call, trips: Any = None, condition: Any = None, *carried: Any) -> Any:
    """Values that go from one turn to the next, and stacks of what each turn gives besides."""
    body = call.get("body")
    count = None if trips is None else int(call.number(trips))
    goes_on, turn, state = True if condition is None else bool(call.number(condition)), 0, list(carried)
    gathered: list[list[Any]] = [[] for _ in range(len(body.outputs) - 1 - len(carried))]
    while goes_on and (count is None or turn < count):
        if turn >= call.context.max_iterations:
            raise ArgumentError(
                f"the loop has not ended after {turn} turns; load the model with a larger max_iterations "
                "if it will"
            )
        # A condition that nobody gave is true in each turn, and the body may hand it on.
        go, *results = call.evaluate(body, [np.array(turn, np.int64), np.array(goes_on), *state])
        state = results[: len(carried)]
        for rows, row in zip(gathered, results[len(carried) :], strict=True):
            rows.append(row)
        goes_on, turn = bool(call.number(go)), turn + 1
    stacks = [
        _stacked(call, rows) if rows else _no_rows(info)
        for rows, info in zip(gathered, body.outputs[1 + len(carried) :], strict=True)
    ]
    return (*state, *stacks)


def _no_rows(info: Any) -> Any:
    """A stack of nothing."""
    sizes = [size if isinstance(size, int) else 0 for size in info.shape or ()]
    return np.empty((0, *sizes), info.dtype or np.float32)


@operator("Scan", since=9)
def scan(call: Call, *inputs: Any) -> Any:
    """A body over the slices of tensors."""
    body, scanned = call.get("body"), call.get("num_scan_inputs")
    kept = len(inputs) - scanned
    state, sources = list(inputs[:kept]), inputs[kept:]
    outputs = len(body.outputs) - kept
    axes, backwards = (call.get(f"scan_input_{name}") or [0] * scanned for name in ("axes", "directions"))
    out_axes, out_backwards = (
        call.get(f"scan_output_{name}") or [0] * outputs for name in ("axes", "directions")
    )
    length = sources[0].shape[axes[0]]
    gathered: list[list[Any]] = [[] for _ in range(outputs)]
    for turn in range(length):
        slices = [
            _slice(source, axis, length - 1 - turn if back else turn)
            for source, axis, back in zip(sources, axes, backwards, strict=True)
        ]
        results = call.evaluate(body, [*state, *slices])
        state = results[:kept]
        for rows, row in zip(gathered, results[kept:], strict=True):
            rows.append(row)
    stacks = [
        _stacked(call, rows[::-1] if back else rows, axis) if rows else _no_rows(info)
        for rows, axis, back, info in zip(gathered, out_axes, out_backwards, body.outputs[kept:], strict=True)
    ]
    return (*state, *stacks)


def _slice(x: Any, axis: int, position: int) -> Any:
    index = (slice(None),) * (axis % len(x.shape)) + (position,)
    return np.asarray(x[index]) if is_array(x) else x[index]
