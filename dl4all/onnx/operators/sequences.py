"""Sequences, which are lists, and optionals, which are None or what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.onnx.call import Call, is_array
from dl4all.onnx.operators.shape import reshaped, split_along, split_sizes
from dl4all.onnx.registry import SAME, operator


@operator("SequenceConstruct")
def sequence_construct(call: Call, *values: Any) -> Any:
    return list(values)


@operator("SequenceEmpty")
def sequence_empty(call: Call) -> Any:
    return list[Any]()


@operator("SequenceAt", reads=(1,))
def sequence_at(call: Call, sequence: Any, index: Any) -> Any:
    return sequence[int(call.number(index))]


@operator("SequenceInsert", reads=(2,))
def sequence_insert(call: Call, sequence: Any, value: Any, index: Any = None) -> Any:
    at = len(sequence) if index is None else int(call.number(index))
    at = at + len(sequence) if at < 0 else at
    return [*sequence[:at], value, *sequence[at:]]


@operator("SequenceErase", reads=(1,))
def sequence_erase(call: Call, sequence: Any, index: Any = None) -> Any:
    at = -1 if index is None else int(call.number(index))
    at %= len(sequence)
    return [*sequence[:at], *sequence[at + 1 :]]


@operator("SequenceLength")
def sequence_length(call: Call, sequence: Any) -> Any:
    return np.array(len(sequence), np.int64)


@operator("SplitToSequence", on_host=SAME, reads=(1,))
def split_to_sequence(call: Call, x: Any, sizes: Any = None) -> Any:
    """Parts of given sizes, or of one size; without any, slices without the axis unless it is kept."""
    axis = call.get("axis", 0)
    length = x.shape[axis]
    if sizes is not None and len(sizes.shape):
        return [*split_along(x, axis, call.ints(sizes))]
    size = 1 if sizes is None else int(call.number(sizes))
    parts = split_along(
        x,
        axis,
        split_sizes(call, length, np.array([min(size, length - i) for i in range(0, length, size)]), 0),
    )
    if sizes is not None or call.flag("keepdims", True):
        return [*parts]
    return [
        reshaped(part, tuple(n for i, n in enumerate(part.shape) if i != axis % len(part.shape)))
        for part in parts
    ]


@operator("ConcatFromSequence")
def concat_from_sequence(call: Call, sequence: Any) -> Any:
    axis = call.get("axis")
    if sequence and all(map(is_array, sequence)):
        return (np.stack if call.flag("new_axis") else np.concatenate)(sequence, axis)
    return (functions.stack if call.flag("new_axis") else functions.cat)(list(call.tensors(*sequence)), axis)


@operator("SequenceMap")
def sequence_map(call: Call, *inputs: Any) -> Any:
    """A body over the elements of sequences, beside tensors that stay the same."""
    length = len(inputs[0])
    rows = [
        call.evaluate(call.get("body"), [value[i] if isinstance(value, list) else value for value in inputs])
        for i in range(length)
    ]
    return tuple([row[i] for row in rows] for i in range(len(call.node.outputs)))


@operator("Optional", on_host=SAME)
def optional(call: Call, value: Any = None) -> Any:
    return value


@operator("OptionalGetElement", on_host=SAME)
def optional_get_element(call: Call, value: Any) -> Any:
    return value


@operator("OptionalHasElement")
def optional_has_element(call: Call, value: Any = None) -> Any:
    return np.array(value is not None)
