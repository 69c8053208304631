"""The compiled kernels of elementwise ops on the host, from the expressions that give their shaders.

A kernel computes a :class:`ElementwiseProgram`: expressions one after the other, of tensors and numbers, of
which some results are written to memory. An op is a program of one expression, a chain of a compiled graph
has several. The code depends on how each tensor lies along the last axis, and on whether there are more axes;
sizes, strides and numbers are slots.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from dl4all.host_kernels.elementwise.expressions import (
    FLOAT32_FUNCTIONS,
    check_precision,
    expression_type,
    load_element,
    print_llvm,
    store_element,
)
from dl4all.host_kernels.lib.rows import row_passes
from dl4all.host_kernels.lib.transposition import transposed
from dl4all.host_kernels.memory.copies import copy_launch
from dl4all.ops.core.expressions.expression import Expression, functions_of, parse
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue, Operand
from dl4all.runtime.cpu.llvm.ir_types import FLOATS, LLVM_TYPES, vector

GRAIN = 16384
"""Elements of a chunk."""

MANY = 2
"""Axes beside the last one, from which on their number is counted while the kernel runs."""

FIRST_NUMBER = 3
"""Constants of a launch before its numbers."""

CODES = {"i64": "q", "i32": "i4x", "i16": "h6x", "i8": "b7x", "u8": "B7x"}
"""The formats by which numbers are packed into slots, so that those that do not fit are refused."""

NUMBER_TYPES = {"int16": "i16", "int8": "i8", "uint8": "u8"}
"""Of ops that compute in these dtypes; in others, numbers have the type that the expression sees."""

FUNCTION_WORK = 8
"""The number of simple operations that take the time of a function such as exp."""

COPY = parse("x")
"""The expression of clone."""

Step: TypeAlias = Literal["0", "1", "n", "t"]
"""From an element of the last axis to the next one: the same element, its neighbour, any other, or any other
where neighbours lie along the axis before, so that squares are transposed in registers."""


class Assignment(NamedTuple):
    """One expression of a program. Sources count tensors, then numbers, then the assignments before."""

    expression: Expression
    compute: str  # dtype in which it is computed
    operands: tuple[tuple[str, int, str], ...]  # name, source, and the dtype as which the expression sees it
    dtype: str  # of the result


class ElementwiseProgram(NamedTuple):
    """The computation of a kernel at each index."""

    tensors: tuple[str, ...]  # dtypes of those that are read
    numbers: tuple[str, ...]  # types: "float", "double", or one of CODES
    assignments: tuple[Assignment, ...]
    results: tuple[int, ...]  # assignments that are written to memory

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of all tensors in memory, those that are written last."""
        return (*self.tensors, *(self.assignments[result].dtype for result in self.results))


# Preparing


@host_kernel("elementwise")
def prepare_elementwise(
    out: ArrayLayout,
    expression: Expression,
    compute: str,
    operands: Sequence[ArrayLayout | float],
    conditions: Sequence[bool],
    arguments: Sequence[tuple[str, Any, bool]],
) -> HostLaunch:
    """The launch of an op.

    Args:
        out: the result's layout.
        expression: of the op.
        compute: the dtype in which it computes.
        operands: in their order; numbers may be others when the launch runs.
        conditions: which operands are bools whatever the dtype.
        arguments: of the op: name, value, and whether it is an integer whatever the dtype.

    Raises:
        NoKernel: there is none for such dtypes or functions.
    """
    tensors = [operand for operand in operands if isinstance(operand, ArrayLayout)]
    if expression == COPY and tensors[0].dtype == out.dtype and tensors[0].strides != out.strides:
        with contextlib.suppress(NoKernel):  # more axes than it takes
            return copy_launch(out, tensors[0])  # which transposes in registers
    numbers = [operand for operand in operands if not isinstance(operand, ArrayLayout)]
    own_type = number_type(compute)
    types = [own_type] * len(numbers) + ["i32" if whole else own_type for _, _, whole in arguments]
    place, number = itertools.count(), itertools.count(len(tensors))
    names = ("x",) if len(operands) == 1 else ("a", "b", "c")
    named = [
        (name, next(place if isinstance(operand, ArrayLayout) else number), "bool" if condition else compute)
        for name, operand, condition in zip(names, operands, conditions, strict=False)
    ]
    named += [(f"p.{name}", next(number), compute) for name, _, _ in arguments]
    assignment = Assignment(expression, compute, tuple(named), out.dtype.name)
    program = ElementwiseProgram(tuple(t.dtype.name for t in tensors), tuple(types), (assignment,), (0,))
    values = [*numbers, *(value for _, value, _ in arguments)]
    return prepare_program(program, out.shape, tensors, [out], values)


def prepare_program(
    program: ElementwiseProgram,
    shape: Shape,
    reads: Sequence[ArrayLayout],
    writes: Sequence[ArrayLayout],
    numbers: Sequence[Any],
) -> HostLaunch:
    """The launch of a program.

    Args:
        program: what is computed.
        shape: over which, with at least one element.
        reads: tensors that broadcast to the shape.
        writes: the layouts of the results, of this shape.
        numbers: with which it runs; they may be others in each call.

    Raises:
        NoKernel: there is none for its dtypes or functions.
    """
    check_program(program)
    strides = [*(broadcast(layout, shape) for layout in reads), *(layout.strides for layout in writes)]
    # In the order in which the result lies in memory.
    axes = sorted(range(len(shape)), key=lambda axis: -writes[0].strides[axis])
    sizes, merged = merge_axes(
        tuple(shape[axis] for axis in axes), [tuple(own[axis] for axis in axes) for own in strides]
    )
    if not sizes:
        sizes, merged = (1,), [(1,)] * len(strides)
    steps: tuple[Step, ...] = tuple(_step(own[-1]) for own in merged)
    *outer, inner = sizes
    rows = math.prod(outer)
    count, grain = (rows, max(1, GRAIN // inner)) if outer else (inner, GRAIN)
    lanes = provider.processor().lanes()
    if outer and 1 < lanes <= min(inner, outer[-1]):
        steps = tuple(
            "t" if step == "n" and own[-2] == 1 and number < len(reads) else step
            for number, (step, own) in enumerate(zip(steps, merged, strict=True))
        )
    if "t" in steps:  # a unit is as many rows as a vector has lanes
        count, grain = rows // outer[-1] * -(-outer[-1] // lanes), max(1, GRAIN // (lanes * inner))
    many = len(outer) > 1 or "t" in steps
    constants: list[int | float] = [count, grain, inner]
    constants += constants_of(program, numbers)
    places = range(FIRST_NUMBER, len(constants))
    constants += [own[-1] for own in merged]
    if many:
        constants.append(len(outer))
    for axis, size in enumerate(outer):
        constants += [*([size] if many else []), *(own[axis] for own in merged)]
    return HostLaunch(
        elementwise,
        (program, steps, MANY if many else len(outer)),
        len(strides),
        constants,
        work=rows * inner * work_of(program),
        numbers=places,
        codes=codes_of(program, places),
    )


def check_program(program: ElementwiseProgram) -> None:
    """
    Raises:
        NoKernel: there is none for its dtypes or functions.
    """
    for assignment in program.assignments:
        if assignment.compute == "float64":
            check_precision(assignment.expression)
    if "float16" in program.dtypes and not provider.processor().converts_half:
        raise NoKernel("float16 without instructions for it")


def constants_of(program: ElementwiseProgram, numbers: Sequence[Any]) -> list[int | float]:
    """A launch's constants for the numbers of a program."""
    return [float(n) if t in FLOATS else int(n) for n, t in zip(numbers, program.numbers, strict=True)]


def codes_of(program: ElementwiseProgram, places: range) -> dict[int, str]:
    """Formats by which constants at these places, the numbers of a program, are packed."""
    return {place: CODES[t] for place, t in zip(places, program.numbers, strict=True) if t in CODES}


def work_of(program: ElementwiseProgram) -> int:
    """About how many operations an element takes."""
    called = sum(bool(functions_of(a.expression) & FLOAT32_FUNCTIONS.keys()) for a in program.assignments)
    return len(program.assignments) + called * FUNCTION_WORK


def number_type(dtype: str) -> str:
    """The type of numbers of ops that compute in a dtype."""
    return NUMBER_TYPES.get(dtype) or expression_type(dtype)


def broadcast(layout: ArrayLayout, shape: Shape) -> Shape:
    """The strides of a tensor as one of a shape to which it broadcasts."""
    missing = len(shape) - len(layout.shape)
    return (0,) * missing + tuple(
        0 if size == 1 else stride for size, stride in zip(layout.shape, layout.strides, strict=True)
    )


def _step(stride: int) -> Step:
    return "0" if stride == 0 else "1" if stride == 1 else "n"


# Code


def elementwise(program: ElementwiseProgram, steps: tuple[Step, ...], outer: int) -> IrModule:
    """Compute a program at each index.

    Slots: addresses of tensors, those that are written last; rows (elements if there is only one axis, groups
    of rows where squares are transposed), how many are in a chunk, the last axis's size; numbers; the last
    axis's strides; with one axis more, its strides; with many, their number, and for each the size and the
    strides.
    """
    module = IrModule()
    with module.part("range") as part:
        _, begin, end = part.parameters
        writer = _Writer(part, program, steps)
        if outer == 0:
            writer.span(writer.addresses, begin, end)
        elif "t" in steps:
            with part.loop(begin, end) as group:
                writer.squares(group, part.slot(len(steps) + 2))
        else:
            inner = part.slot(len(steps) + 2)
            with part.loop(begin, end) as row:
                writer.span(writer.row(row, many=outer == MANY), part.constant("i64", 0), inner)
    with module.kernel("elementwise") as code:
        code.parallel(part, code.parameters[0], code.slot(len(steps)), code.slot(len(steps) + 1))
    return module


class _Writer:
    """Writes the code of a program into a function."""

    def __init__(self, code: Code, program: ElementwiseProgram, steps: tuple[Step, ...]) -> None:
        self.code = code
        self.program = program
        self.steps = steps
        self.types = [LLVM_TYPES[dtype] for dtype in program.dtypes]
        self.lanes = provider.processor().lanes()
        self.addresses = [code.slot(i, "ptr") for i in range(len(steps))]
        first = len(steps) + FIRST_NUMBER
        self.numbers = [
            number_value(code, first + i, type, self.lanes) for i, type in enumerate(program.numbers)
        ]
        self.first_stride = first + len(program.numbers)
        self.strides = [code.slot(self.first_stride + i) for i in range(len(steps))]

    def row(self, row: IrValue, *, many: bool) -> list[IrValue]:
        """The addresses of all tensors at a row."""
        code, count = self.code, len(self.steps)
        following = self.first_stride + count
        if not many:
            strides = [code.slot(following + i) for i in range(count)]
            offsets = [row * stride for stride in strides]
        else:
            totals = [code.variable("i64", 0) for _ in range(count)]
            rest = code.variable("i64", row)
            axes, slots = code.slot(following), code.parameters[0]
            with code.loop(0, axes) as number:
                first = (axes - 1 - number) * (1 + count) + following + 1
                size = code.load(slots, first, "i64")
                before = rest.value
                rest.value = code.binary("udiv", before, size)
                place = before - rest.value * size
                for i, total in enumerate(totals):
                    total.value = total.value + place * code.load(slots, first + (1 + i), "i64")
            offsets = [total.value for total in totals]
        return [
            code.at(address, offset, type)
            for address, offset, type in zip(self.addresses, offsets, self.types, strict=True)
        ]

    def span(self, addresses: list[IrValue], begin: IrValue, end: IrValue) -> None:
        """Compute neighbours along the last axis."""
        code = self.code
        repeated = {
            i: code.splat(code.load(addresses[i], 0, self.types[i]), self.lanes)
            for i, step in enumerate(self.steps)
            if step == "0"
        }

        row_passes(
            code, end, self.lanes, lambda i, mask: self._vector(addresses, i, mask, end, repeated), begin
        )

    def squares(self, group: IrValue, end: IrValue) -> None:
        """Compute a group of as many rows as a vector has lanes, or of those that are left of an axis."""
        code, count, lanes = self.code, len(self.steps), self.lanes
        following, slots = self.first_stride + count, code.parameters[0]
        axis = (code.slot(following) - 1) * (1 + count) + following + 1
        size = code.load(slots, axis, "i64")
        down = [code.load(slots, axis + (1 + i), "i64") for i in range(count)]
        groups = (size + (lanes - 1)) // lanes
        first = group % groups * lanes
        addresses = self.row(group // groups * size + first, many=True)
        rows = code.intrinsic("smin", size - first, code.as_value("i64", lanes))
        squares = {
            number: code.local(self.types[number], lanes * lanes)
            for number, step in enumerate(self.steps)
            if step == "t"
        }

        def compute(i: IrValue, mask: IrValue | None) -> None:
            for number, square in squares.items():
                self._transpose(number, addresses[number], i, end, rows, square)
            with code.loop(0, rows) as row:
                at = [
                    squares[number] if number in squares else code.at(address, row * stride, type)
                    for number, (address, stride, type) in enumerate(
                        zip(addresses, down, self.types, strict=True)
                    )
                ]
                given = {
                    number: code.load(square, row * lanes, vector(self.types[number], lanes))
                    for number, square in squares.items()
                }
                self._vector(at, i, mask, end, given)

        row_passes(code, end, lanes, compute)

    def _transpose(
        self, number: int, address: IrValue, i: IrValue, end: IrValue, rows: IrValue, square: IrValue
    ) -> None:
        """Write the elements of a tensor from column `i` on into a square, row by row."""
        code, lanes, element = self.code, self.lanes, self.types[number]

        def place(j: Operand) -> IrValue:
            return code.intrinsic("smin", i + j, end - 1) * self.strides[number]

        with code.if_(rows < lanes), code.loop(0, lanes) as column, code.loop(0, rows) as row:
            one = code.load(address, place(column) + row, element)
            code.store(one, square, row * lanes + column)
        with code.if_(code.as_value("i64", lanes - 1) < rows):
            columns = [code.load(address, place(j), vector(element, lanes)) for j in range(lanes)]
            for j, line in enumerate(transposed(code, columns)):
                code.store(line, square, j * lanes)

    def _vector(
        self,
        addresses: Sequence[IrValue],
        i: IrValue,
        mask: IrValue | None,
        end: IrValue,
        given: Mapping[int, IrValue],
    ) -> None:
        """Compute as many elements of a row as a vector has lanes; some tensors' are given."""
        code = self.code
        values = [
            given[number] if number in given else self._load(number, addresses[number], i, mask, end)
            for number in range(len(self.program.tensors))
        ]
        results = program_results(code, self.program, values, self.numbers, self.lanes)
        for number, value in enumerate(results, len(self.program.tensors)):
            self._store(number, value, addresses[number], i, mask, end)

    def _load(self, number: int, address: IrValue, i: IrValue, mask: IrValue | None, end: IrValue) -> IrValue:
        code, element = self.code, self.types[number]
        type = vector(element, self.lanes)
        if self.steps[number] == "1":
            return code.load(address, i, type, mask)
        if self.steps[number] == "0":
            return code.splat(code.load(address, 0, element), self.lanes)
        value = code.constant(type, 0)
        for lane in range(self.lanes):
            place = i + lane if mask is None else code.intrinsic("smin", i + lane, end - 1)
            one = code.load(address, place * self.strides[number], element)
            value = one if self.lanes == 1 else code.insert(value, one, lane)
        return value

    def _store(
        self, number: int, value: IrValue, address: IrValue, i: IrValue, mask: IrValue | None, end: IrValue
    ) -> None:
        code = self.code
        if self.steps[number] == "1":
            code.store(value, address, i, mask)
            return
        for lane in range(self.lanes):
            one = value if self.lanes == 1 else code.extract(value, lane)
            place = (i + lane) * self.strides[number]
            if mask is None:
                code.store(one, address, place)
            else:
                with code.if_(i + lane < end):
                    code.store(one, address, place)


def number_value(code: Code, slot: int, type: str, lanes: int) -> IrValue:
    """A number of a program, from its slot, in all lanes of a vector."""
    number = code.slot(slot, "double" if type in FLOATS else "i64")
    number = code.convert(number, "i32" if type == "u8" else type)
    return code.splat(code.convert(number, "i32") if type in ("i8", "i16") else number, lanes)


def program_results(
    code: Code, program: ElementwiseProgram, values: Sequence[IrValue], numbers: Sequence[IrValue], lanes: int
) -> list[IrValue]:
    """Write a program; returns the vectors of its results, for those of its tensors and numbers."""
    sources: list[tuple[IrValue, str]] = [
        *zip(values, program.tensors, strict=False),
        *((number, "") for number in numbers),
    ]
    results = []
    for assignment in program.assignments:
        named = {}
        for name, source, dtype in assignment.operands:
            value, stored = sources[source]
            named[name] = load_element(code, value, stored, dtype) if stored else value
        printed = print_llvm(code, assignment.expression, named)
        results.append(store_element(code, printed, assignment.dtype, lanes))
        sources.append((results[-1], assignment.dtype))
    return [results[number] for number in program.results]
