"""The nodes of one recorded call, with its numbers, of which some are open sizes later."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dl4all.errors import GraphError
from dl4all.graph.ir.graph import Operand, Value
from dl4all.onnx.dtypes import protobuf
from dl4all.onnx.exporter.recording import BufferFill, CallRecording, OpCall
from dl4all.onnx.exporter.views import View, view_steps
from dl4all.onnx.graph import NDArray
from dl4all.ops.core.tensor_base import contiguous_strides

Rule = Callable[["GraphWriter", OpCall], str]
WRITTEN: dict[str, Rule] = {}
"""By the name of an op, what writes it; :mod:`dl4all.onnx.exporter.op_forms` fills it."""


def written(*names: str) -> Callable[[Rule], Rule]:
    """Declare a function as what writes the ops of these names."""

    def declare(rule: Rule) -> Rule:
        WRITTEN.update(dict.fromkeys(names, rule))
        return rule

    return declare


@dataclass
class DraftNode:
    """A node of ONNX."""

    op_type: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    line: str


@dataclass
class GraphDraft:
    """A graph of ONNX with the numbers of one call."""

    nodes: list[DraftNode] = field(default_factory=list)
    weights: dict[str, NDArray] = field(default_factory=dict)  # initializers
    numbers: dict[str, tuple[int, ...]] = field(default_factory=dict)  # int64 vectors: sizes, starts
    outputs: list[str] = field(default_factory=list)


@dataclass
class Known:
    """A value of the graph whose elements a buffer holds in row-major order from `first` on."""

    name: str
    shape: tuple[int, ...]
    first: int = 0


class GraphWriter:
    """Writes the calls of a recording."""

    def __init__(
        self, recording: CallRecording, weights: dict[str, NDArray], input_names: Sequence[str], opset: int
    ) -> None:
        self.recording, self.host_weights, self.opset = recording, weights, opset
        self.draft = GraphDraft()
        self.known: dict[int, list[Known]] = {}  # the pieces of a buffer
        self.words: dict[int, int] = {}  # by buffer, what it is filled with
        self.views: dict[Any, str] = {}
        self.parts: dict[int, list[tuple[Operand, str]]] = {}  # copied into buffers
        self.producers: dict[int, OpCall] = {}
        self.line = ""
        for name, operand in zip(input_names, recording.inputs, strict=True):
            self.define(operand, name)

    def write(self, output_names: Sequence[str]) -> GraphDraft:
        for call in self.recording.calls:
            if isinstance(call, BufferFill):
                self._filled(call)
                continue
            self.line = call.line
            rule = WRITTEN.get(call.name)
            if rule is None:
                raise self.refused(f"the op {call.name} has no form here")
            name = rule(self, call)
            if name:
                self.define(call.result, name)
                self.producers[call.result.value.buffer] = call
        for name, operand in zip(output_names, self.recording.outputs, strict=True):
            self.draft.nodes.append(DraftNode("Identity", [self.get(operand)], [name], {}, ""))
            self.draft.outputs.append(name)
        return self.draft

    # Values

    def _filled(self, fill: BufferFill) -> None:
        """A fill of a buffer, or of a part of it."""
        self._check_owner(fill.buffer)
        if fill.first == 0 and 4 * fill.words >= self.recording.nbytes[fill.buffer]:
            self._forget(fill.buffer)
            self.words[fill.buffer] = fill.word
            return
        dtype = self.recording.dtypes.get(fill.buffer)
        if dtype is None:  # nobody reads it
            return
        per_word = Fraction(4, np.dtype(dtype).itemsize)
        shape = (int(fill.words * per_word),)
        part = Operand(Value(fill.buffer, 0), shape, dtype, (1,), int(fill.first * per_word))
        value = self.constant(_number_of(fill.word, dtype))
        self.define(part, self.add("Expand", [value, self.ints(shape)]))

    def _forget(self, buffer: int) -> None:
        self.known.pop(buffer, None)
        self.parts.pop(buffer, None)
        self._forget_views(buffer)

    def _forget_views(self, buffer: int) -> None:
        self.views = {key: view for key, view in self.views.items() if key[0] != buffer}

    def _assemble(self, buffer: int) -> None:
        """Make one value of the parts that were copied into a buffer."""
        parts = self.parts.pop(buffer)
        total = self.recording.nbytes[buffer] // np.dtype(parts[0][0].dtype).itemsize
        whole = self._joined(buffer, parts, _whole_shape(parts[0][0], total))
        if whole is not None:
            self.known[buffer] = [whole]
            return
        everything = Operand(parts[0][0].value, (total,), parts[0][0].dtype, (1,))
        if buffer in self.recording.arrays or buffer in self.words:
            base = self.get(everything)
        else:  # what is not written is not read
            base = self.add("Expand", [self.constant(np.zeros((), everything.dtype)), self.ints([total])])
        self.known[buffer] = [Known(base, (total,))]
        for part, name in parts:
            self._overwrite(part, name)

    def _joined(
        self, buffer: int, parts: Sequence[tuple[Operand, str]], shape: tuple[int, ...]
    ) -> Known | None:
        """One value of parts that lie side by side, or of one part of a buffer that was filled."""
        first, name = parts[0]
        if any(len(part.shape) != len(shape) or not _fits(part, shape) for part, _ in parts):
            return None
        starts = [_coordinates(part.offset, shape) for part, _ in parts]
        if len(parts) == 1 and tuple(first.shape) == shape:
            return Known(name, shape)
        if len(parts) == 1 and buffer in self.words:
            return Known(self._padded(first, name, starts[0], shape), shape)
        axes = [i for i in range(len(shape)) if any(part.shape[i] != shape[i] for part, _ in parts)]
        order = sorted(range(len(parts)), key=lambda i: starts[i])
        if len(axes) != 1:
            return None
        [axis] = axes
        ends = np.cumsum([parts[i][0].shape[axis] for i in order])
        if [starts[i][axis] for i in order] != [0, *ends[:-1]] or ends[-1] != shape[axis]:
            return None
        return Known(self.add("Concat", [parts[i][1] for i in order], axis=axis), shape)

    def _overwrite(self, part: Operand, name: str) -> None:
        """Put a value into a part of a buffer: new elements of its value, by their positions."""
        pieces = self.known[part.value.buffer]
        piece = [piece for piece in pieces if piece.first <= part.offset][-1]
        reach = sum((n - 1) * max(s, 0) for n, s in zip(part.shape, part.strides, strict=True))
        shape = [math.prod(piece.shape)]
        if part.offset + reach >= piece.first + shape[0]:
            raise self.refused("several results of a layer are changed in place at once")
        data = self.add("Reshape", [piece.name, self.ints(shape)])
        places = self.positions(part.shape, part.strides, part.offset - piece.first)
        places, updates = (self.add("Reshape", [one, self.ints([-1])]) for one in (places, name))
        changed = self.add("ScatterElements", [data, places, updates], axis=0)
        new = Known(self.add("Reshape", [changed, self.ints(piece.shape)]), piece.shape, piece.first)
        self.known[part.value.buffer] = [new if one is piece else one for one in pieces]
        self._forget_views(part.value.buffer)

    def positions(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> str:
        """The places of the elements of a view, as int64 of its shape."""
        name = self.ints([offset])
        for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
            if size > 1 and stride:
                name = self.add("Add", [name, self.steps(size, stride, len(shape) - axis - 1)])
        return self.add("Expand", [name, self.ints(shape)]) if shape else self.add("Squeeze", [name])

    def steps(self, size: int, stride: int, behind: int) -> str:
        """0, the stride, twice the stride, ... along an axis with some axes behind it."""
        first, last, step = self.constant(np.array(0)), self.ints([size]), self.constant(np.array(1))
        name = self.add("Range", [first, self.add("Squeeze", [last]), step])
        name = self.add("Mul", [name, self.ints([stride])])
        return self.add("Unsqueeze", [name, self.ints(range(1, behind + 1))]) if behind else name

    def _padded(self, part: Operand, name: str, start: Sequence[int], shape: Sequence[int]) -> str:
        """A part with what the buffer was filled with around it."""
        ends = [n - s - m for n, s, m in zip(shape, start, part.shape, strict=True)]
        fill = self.constant(_number_of(self.words[part.value.buffer], part.dtype))
        return self.add("Pad", [name, self.ints([*start, *ends]), fill])

    def refused(self, what: str) -> GraphError:
        return GraphError(
            f"[onnx.export] {what} (called at {self.line}); ONNX has no such form, or none is written yet"
        )

    def define(self, operand: Operand, name: str) -> None:
        """Say that the elements of an op's result are a value's."""
        buffer, shape = operand.value.buffer, tuple(operand.shape)
        self._check_owner(buffer)
        count, itemsize = math.prod(shape), np.dtype(operand.dtype).itemsize
        if buffer in self.known:
            whole = count >= sum(math.prod(piece.shape) for piece in self.known[buffer])
        else:  # memory comes in words
            whole = count == 0 or 4 * -(-count * itemsize // 4) >= self.recording.nbytes.get(buffer, 0)
        ordered, order = _ordered(operand)
        if whole and _fits(operand, shape):
            self.define_pieces(operand, [(name, shape)])
        elif whole and _fits(ordered, ordered.shape):
            self.define_pieces(operand, [(self.add("Transpose", [name], perm=order), tuple(ordered.shape))])
        elif buffer in self.known:
            self._overwrite(operand, name)
        else:
            self.parts.setdefault(buffer, []).append((operand, name))
            self._forget_views(buffer)

    def _check_owner(self, buffer: int) -> None:
        if buffer in self.recording.names:
            owned = self.recording.names[buffer]
            raise self.refused(f"the module changes its own {owned!r}, and a graph keeps no state")

    def define_pieces(self, operand: Operand, pieces: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Say that a result is made of values, one after the other."""
        buffer, first = operand.value.buffer, operand.offset
        self._forget(buffer)
        self.known[buffer] = []
        for name, shape in pieces:
            self.known[buffer].append(Known(name, shape, first))
            first += math.prod(shape)

    def get(self, operand: Any, like: str = "float32") -> str:
        """The value of an operand; numbers become constants of the dtype `like`."""
        if not isinstance(operand, Operand):
            return self.constant(np.array(operand, like))
        buffer = operand.value.buffer
        if buffer in self.recording.unheard:
            self.line = self.recording.unheard[buffer]
            raise self.refused("the elements of a tensor are made by something that is no op")
        if buffer in self.parts:
            self._assemble(buffer)
        key = buffer, operand.shape, operand.strides, operand.offset
        if key not in self.views:
            self.views[key] = self._view(operand)
        return self.views[key]

    def array(self, operand: Operand) -> NDArray | None:
        """The elements of an operand that does not depend on inputs."""
        buffer = operand.value.buffer
        if buffer in self.known:
            return None
        if buffer in self.recording.names:
            flat = self.host_weights[self.recording.names[buffer]].reshape(-1)
        elif buffer in self.recording.arrays:
            flat = self.recording.arrays[buffer].reshape(-1)
        elif buffer in self.words:
            return np.broadcast_to(_number_of(self.words[buffer], operand.dtype), operand.shape)
        else:
            raise GraphError(f"[onnx.export] a tensor's elements come from nowhere (called at {self.line})")
        flat = flat.view(operand.dtype) if flat.dtype != operand.dtype else flat
        strides = [stride * flat.itemsize for stride in operand.strides]
        view = np.lib.stride_tricks.as_strided(flat[operand.offset :], operand.shape, strides)
        return np.ascontiguousarray(view).reshape(operand.shape)

    def _view(self, operand: Operand) -> str:
        buffer = operand.value.buffer
        array = self.array(operand)
        if array is not None:
            if buffer in self.recording.names:
                viewed = self._weight(self.recording.names[buffer], operand)
                if viewed is not None:
                    return viewed
            if buffer in self.words and math.prod(operand.shape) > 1:
                return self.add("Expand", [self.constant(array.reshape(-1)[0]), self.ints(operand.shape)])
            repeated = [n > 1 and s == 0 for n, s in zip(operand.shape, operand.strides, strict=True)]
            once = self.constant(array[tuple(slice(1) if r else slice(None) for r in repeated)])
            return self.add("Expand", [once, self.ints(operand.shape)]) if any(repeated) else once
        known = [piece for piece in self.known[buffer] if piece.first <= operand.offset][-1]
        view = View(tuple(operand.shape), tuple(operand.strides), operand.offset - known.first)
        steps = view_steps(known.shape, view)
        if steps is None:  # the axes are in no nest: windows that overlap, diagonals
            elements = self.add("Reshape", [known.name, self.ints([-1])])
            return self.add("Gather", [elements, self.positions(*view)], axis=0)
        return self.stepped(known.name, steps)

    def _weight(self, name: str, operand: Operand) -> str | None:
        """A view of a parameter under its own name; None if that has no ONNX form."""
        array = self.host_weights[name]
        view = View(tuple(operand.shape), tuple(operand.strides), operand.offset)
        steps = view_steps(array.shape, view)
        if steps is None:
            return None
        self.draft.weights.setdefault(name, array)
        return self.stepped(name, steps)

    def stepped(self, name: str, steps: list[Any]) -> str:
        for kind, argument in steps:
            if kind == "Transpose":
                name = self.add("Transpose", [name], perm=list(argument))
            elif kind == "Flip":  # from the last element to before the first
                ones, ends = [-1] * len(argument), [-(2**63) + 1] * len(argument)
                name = self.add("Slice", [name, *map(self.ints, (ones, ends, argument, ones))])
            elif kind == "Slice":
                name = self.add("Slice", [name, *map(self.ints, argument)])
            else:
                name = self.add(kind, [name, self.ints(argument)])
        return name

    # Nodes

    def add(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """A node with one result; returns its name."""
        output = f"{op_type.lower()}_{len(self.draft.nodes)}"
        self.draft.nodes.append(DraftNode(op_type, list(inputs), [output], attributes, self.line))
        return output

    def add_many(self, op_type: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """A node with several results; returns their names."""
        first = self.add(op_type, inputs, **attributes)
        more = [f"{first}_{i}" for i in range(1, count)]
        self.draft.nodes[-1].outputs += more
        return [first, *more]

    def element_type(self, dtype: str) -> int:
        """ONNX's number of a dtype."""
        return int(protobuf().helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def constant(self, value: Any) -> str:
        """An initializer."""
        array = np.asarray(value)
        name = f"constant_{len(self.draft.weights)}"
        self.draft.weights[name] = array
        return name

    def ints(self, numbers: Sequence[int]) -> str:
        """A vector of int64, whose numbers may follow sizes of the inputs."""
        name = f"sizes_{len(self.draft.numbers)}"
        self.draft.numbers[name] = tuple(map(int, numbers))
        return name

    def reduced(self, op_type: str, x: str, axes: Sequence[int], *, keep: bool) -> str:
        """A reduction, whose axes are an input from some opset on."""
        first = 13 if op_type == "ReduceSum" else 18
        if self.opset >= first:
            return self.add(op_type, [x, self.ints(axes)], keepdims=int(keep))
        return self.add(op_type, [x], axes=list(axes), keepdims=int(keep))


def _number_of(word: int, dtype: str) -> NDArray:
    """The number whose bytes a buffer was filled with, word by word.

    >>> _number_of(0x3F800000, "float32"), _number_of(7, "int8")
    (array(1., dtype=float32), array(7, dtype=int8))
    """
    size = np.dtype(dtype).itemsize
    found: NDArray = np.tile(np.array([word], np.uint32), 2).view(np.uint8)[:size].view(dtype).reshape(())
    return found


def _ordered(operand: Operand) -> tuple[Operand, list[int]]:
    """An operand with its axes as they lie in memory, and which of its axes these are."""
    order = sorted(range(len(operand.shape)), key=lambda i: (operand.shape[i] == 1, -operand.strides[i]))
    shape, strides = (tuple(of[i] for i in order) for of in (operand.shape, operand.strides))
    return replace(operand, shape=shape, strides=strides), order


def _fits(part: Operand, shape: Sequence[int]) -> bool:
    """Whether a part is a box of a contiguous tensor of a shape."""
    strides = contiguous_strides(tuple(shape))
    return all(n == 1 or s == w for n, s, w in zip(part.shape, part.strides, strides, strict=True))


def _whole_shape(part: Operand, total: int) -> tuple[int, ...]:
    """The shape of a contiguous tensor, of which an operand shows a part along some axes.

    >>> from dl4all.graph.ir.graph import Value
    >>> _whole_shape(Operand(Value(0, 0), (2, 3), "float32", (5, 1)), 20)
    (4, 5)
    """
    if not part.shape:
        return ()
    sizes, previous = [], total
    for stride in part.strides:
        sizes.append(previous // max(stride, 1))
        previous = stride
    return tuple(sizes)


def _coordinates(offset: int, shape: Sequence[int]) -> list[int]:
    """The index of an element on each axis.

    >>> _coordinates(7, (2, 5))
    [1, 2]
    """
    found = []
    for stride in contiguous_strides(tuple(shape)):
        found.append(offset // stride)
        offset %= stride
    return found
