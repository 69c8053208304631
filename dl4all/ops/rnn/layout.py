"""The computation of a recurrent layer over a sequence, as data: cells, time steps, and places of results."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.tensor_base import Shape, TensorBase

MOST_PROBLEMS = 1024
"""Sizes of sequences whose consequences are kept: cells ask for them in each step."""


class Cell(NamedTuple):
    """The differences of the kinds of recurrent layers."""

    number: int  # CELL in shaders/rnn/sequence.comp and sequence_backward.comp
    gates: int  # blocks of columns that the products have
    saved: int  # numbers of each unit and step that the gradient reads
    has_cell: bool  # besides the hidden state
    separate: bool  # the gradients of both terms of the gates differ


CELLS = {
    "lstm": Cell(0, 4, 6, has_cell=True, separate=False),
    "gru": Cell(1, 3, 4, has_cell=False, separate=True),
    "tanh": Cell(2, 1, 0, has_cell=False, separate=False),
    "relu": Cell(3, 1, 0, has_cell=False, separate=False),
}


class SequenceProblem(NamedTuple):
    """The sizes of a sequence."""

    cell: Cell
    rows: int  # of all time steps
    batch: int  # of the largest time step
    size: int  # units
    outputs: int  # features of the hidden state: units, or fewer after a projection
    projected: bool


class ResultRegion(NamedTuple):
    """A matrix within a flat result."""

    start: int
    rows: int
    columns: int

    def of(self, flat: Any) -> Any:
        """The matrix: of a tensor or of an array with one axis."""
        if isinstance(flat, TensorBase):
            return flat.strided_view((self.rows, self.columns), (self.columns, 1), flat.offset + self.start)
        return flat[self.start : self.start + self.rows * self.columns].reshape(self.rows, self.columns)


Regions = Mapping[str, ResultRegion]


def _regions(*shapes: tuple[str, int, int]) -> Regions:
    starts = itertools.accumulate((rows * columns for _, rows, columns in shapes), initial=0)
    return MappingProxyType(
        {name: ResultRegion(start, *shape) for start, (name, *shape) in zip(starts, shapes, strict=False)}
    )


@functools.lru_cache(MOST_PROBLEMS)
def result_regions(p: SequenceProblem, *, save: bool) -> Regions:
    """The regions of a sequence's result: the outputs, the last states, and what the gradient reads.

    The states are in place of the initial ones. ``before`` has the hidden states that the steps began with.
    """
    shapes = [("outputs", p.rows, p.outputs), ("hidden", p.batch, p.outputs)]
    if p.cell.has_cell:
        shapes.append(("cell", p.batch, p.size))
    if p.projected:
        shapes.append(("units", p.rows, p.size))
    if save:
        shapes += [("before", p.rows, p.outputs), ("saved", p.rows, p.cell.saved * p.size)]
    return _regions(*shapes)


@functools.lru_cache(MOST_PROBLEMS)
def gradient_regions(p: SequenceProblem) -> Regions:
    """The regions of the gradient: of both terms of the gates, the initial states and the outputs."""
    shapes = [("gates", p.rows, p.cell.gates * p.size)]
    if p.cell.separate:
        shapes.append(("gates_h", p.rows, p.cell.gates * p.size))
    shapes.append(("hidden", p.batch, p.outputs))
    if p.cell.has_cell:
        shapes.append(("cell", p.batch, p.size))
    if p.projected:
        shapes.append(("outputs", p.rows, p.outputs))
    return _regions(*shapes)


def length(regions: Regions) -> int:
    """The number of elements of all parts."""
    last = list(regions.values())[-1]
    return last.start + last.rows * last.columns


def time_steps(sizes: Sequence[int], *, reverse: bool) -> list[tuple[int, int]]:
    """The first row and the number of rows of each time step, in the order in which they are computed.

    >>> time_steps((3, 2), reverse=True)
    [(3, 2), (0, 3)]
    """
    steps = list(zip(itertools.accumulate(sizes, initial=0), sizes, strict=False))
    return steps[::-1] if reverse else steps


def cell_of(name: str, mode: str) -> Cell:
    """The cell of that name.

    Raises:
        ArgumentError
    """
    if mode not in CELLS:
        raise ArgumentError(f"[{name}] mode must be one of {', '.join(CELLS)}, got {mode!r}")
    return CELLS[mode]


def check_problem(
    name: str,
    weight: TensorBase,
    projection: TensorBase | None,
    mode: str,
    sizes: Sequence[int],
) -> SequenceProblem:
    """Check the weights and the sizes of time steps.

    Raises:
        ShapeError, ArgumentError
    """
    return _problem(name, weight.shape, None if projection is None else projection.shape, mode, tuple(sizes))


@functools.lru_cache(MOST_PROBLEMS)
def _problem(
    name: str, weight: Shape, projection: Shape | None, mode: str, sizes: tuple[int, ...]
) -> SequenceProblem:
    """The problem with weights of these shapes."""
    cell = cell_of(name, mode)
    if len(weight) != 2 or weight[0] % cell.gates:
        raise ShapeError(
            f"[{name}] expected a weight of shape ({cell.gates} * size, outputs) for mode {mode!r}, "
            f"got {weight}"
        )
    units, outputs = weight[0] // cell.gates, weight[1]
    if projection is not None and mode != "lstm":
        raise ArgumentError(f"[{name}] only mode 'lstm' takes a projection, got {mode!r}")
    expected = (outputs, outputs) if projection is None else (outputs, units)
    if ((outputs, units) if projection is None else projection) != expected:
        raise ShapeError(
            f"[{name}] a weight of shape {weight} goes with "
            + ("as many units as outputs" if projection is None else f"a projection of shape {expected}")
            + f", got {units} units"
            + ("; pass a projection" if projection is None else f" and {projection}")
        )
    if not sizes or min(sizes) < 0 or any(a < b for a, b in itertools.pairwise(sizes)):
        raise ArgumentError(
            f"[{name}] sizes must say how many rows each time step has, none more than the one before, "
            f"got {sizes}"
        )
    return SequenceProblem(cell, sum(sizes), sizes[0], units, outputs, projection is not None)


def check_operands(name: str, expected: dict[str, tuple[TensorBase | None, tuple[int, ...]]]) -> None:
    """Raise unless the operands that are given are floats of one dtype, and of the expected shapes.

    Raises:
        ShapeError, DTypeError
    """
    check_float(name, *(operand for operand, _ in expected.values()))
    for operand_name, (operand, shape) in expected.items():
        if operand is not None and operand.shape != shape:
            raise ShapeError(f"[{name}] {operand_name} must have shape {shape}, got {operand.shape}")
