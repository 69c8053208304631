"""Sizes that stay open: numbers that differ between recordings are computed in the graph, from the inputs.

A number that changes with sizes is their product times a constant, or a sum of constants times them. Which
one it is shows in recordings with one size changed each; further recordings must agree, so that what only
looks like such a number (half of a size, rounded) is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import GraphError
from dl4all.onnx.exporter.writer import DraftNode, GraphDraft
from dl4all.onnx.graph import NDArray


class OpenSize(NamedTuple):
    """An axis of an input whose size stays open."""

    name: str
    source: str  # the input's name
    axis: int


class Formula(NamedTuple):
    """``constant * product(sizes ** powers)``, or ``constant + sum(factors * sizes)``."""

    constant: Fraction
    powers: tuple[int, ...]
    factors: tuple[Fraction, ...]

    def at(self, sizes: Sequence[int]) -> Fraction:
        if any(self.powers):
            return self.constant * math.prod(s for s, p in zip(sizes, self.powers, strict=True) if p)
        return self.constant + sum((f * s for f, s in zip(self.factors, sizes, strict=True)), Fraction(0))


def formula_of(values: Sequence[int], sizes: Sequence[Sequence[int]]) -> Formula | None:
    """The way in which a number follows from sizes.

    Args:
        values: the number in each recording.
        sizes: those of each recording: in the first ones after the first, one differs from the first's.

    Returns:
        None if neither form gives all values.

    Example:
        >>> formula_of([6, 8, 9, 12], [(2, 3), (3, 3), (2, 4), (3, 4)]) is None
        True
        >>> formula_of([6, 9, 8, 12], [(2, 3), (3, 3), (2, 4), (3, 4)]).powers
        (1, 1)
        >>> formula_of([5, 6, 6, 7], [(2, 3), (3, 3), (2, 4), (3, 4)]).factors
        (Fraction(1, 1), Fraction(1, 1))
    """
    base, count = sizes[0], len(sizes[0])
    alone = range(1, count + 1)
    powers = tuple(
        int(values[k] * base[k - 1] == values[0] * sizes[k][k - 1] and values[k] != values[0]) for k in alone
    )
    scale = math.prod(s**p for s, p in zip(base, powers, strict=True))
    factors = tuple(Fraction(values[k] - values[0], sizes[k][k - 1] - base[k - 1]) for k in alone)
    rest = values[0] - sum((f * s for f, s in zip(factors, base, strict=True)), Fraction(0))
    product = Formula(Fraction(values[0], scale), powers, (Fraction(0),) * count)
    for formula in (product, Formula(Fraction(rest), (0,) * count, factors)):
        if all(formula.at(at) == value for at, value in zip(sizes, values, strict=True)):
            return formula
    return None


class Merger:
    """The drafts of all recordings as one graph."""

    def __init__(
        self, drafts: Sequence[GraphDraft], opens: Sequence[OpenSize], sizes: Sequence[Sequence[int]]
    ) -> None:
        self.drafts, self.sizes = drafts, sizes
        self.opens = list({o.name: o for o in reversed(opens)}.values())[::-1]  # one axis for each name
        self.prelude: list[DraftNode] = []
        self.weights: dict[str, NDArray] = {}
        self.made: dict[Any, str] = {}

    def merged(self) -> tuple[list[DraftNode], dict[str, NDArray]]:
        first = self.drafts[0]
        shapes = [[(n.op_type, n.inputs, n.outputs) for n in draft.nodes] for draft in self.drafts]
        if any(shape != shapes[0] for shape in shapes):
            raise GraphError(
                "[onnx.export] the module does something else at another size; leave fewer sizes open"
            )
        for same in zip(*(draft.nodes for draft in self.drafts), strict=True):
            if any(node.attributes != same[0].attributes for node in same):
                raise GraphError(
                    f"[onnx.export] {same[0].op_type} has other attributes at another size (called at "
                    f"{same[0].line}); give that size a fixed number"
                )
        names = {name: self._numbers(name) for name in first.numbers}
        names |= {name: self._weight(name) for name in first.weights}
        nodes = [
            DraftNode(n.op_type, [names.get(i, i) for i in n.inputs], n.outputs, n.attributes, n.line)
            for n in first.nodes
        ]
        return [*self.prelude, *nodes], self.weights

    def _add(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """A node that depends on sizes of inputs only; the same ones are one."""
        key = op_type, tuple(inputs), tuple(sorted(attributes.items()))
        if key not in self.made:
            self.made[key] = f"open_{op_type.lower()}_{len(self.prelude)}"
            self.prelude.append(DraftNode(op_type, list(inputs), [self.made[key]], attributes, ""))
        return self.made[key]

    def _constant(self, array: NDArray) -> str:
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self.made:
            self.made[key] = f"number_{len(self.made)}"
            self.weights[self.made[key]] = array
        return self.made[key]

    def _vector(self, *numbers: int) -> str:
        return self._constant(np.array(numbers, np.int64))

    def _numbers(self, name: str) -> str:
        """The name of a vector of numbers, of which some may be open."""
        columns = list(zip(*(draft.numbers[name] for draft in self.drafts), strict=True))
        opened = [len(set(column)) > 1 for column in columns]
        if not any(opened):
            return self._vector(*(column[0] for column in columns))
        reader = next(node for node in self.drafts[0].nodes if name in node.inputs)
        if reader.op_type == "Reshape" and sum(opened) == 1 and not {0, -1} & {*self.drafts[0].numbers[name]}:
            return self._vector(*(-1 if o else column[0] for o, column in zip(opened, columns, strict=True)))
        return self._joined(columns, reader)

    def _joined(self, columns: Sequence[Sequence[int]], reader: DraftNode) -> str:
        """A vector of numbers, each by its values in all recordings."""
        parts = [
            self._computed(column, reader) if len(set(column)) > 1 else self._vector(column[0])
            for column in columns
        ]
        return parts[0] if len(parts) == 1 else self._add("Concat", parts, axis=0)

    def _computed(self, values: Sequence[int], reader: DraftNode) -> str:
        """A vector of one number that follows from sizes of the inputs."""
        formula = formula_of(values, self.sizes)
        if formula is None:
            raise GraphError(
                f"[onnx.export] a size follows from open sizes in a way that is not found ({values[0]}, then "
                f"{values[1]}; called at {reader.line}); give that size a number"
            )
        sources = [self._add("Shape", [o.source], start=o.axis, end=o.axis + 1) for o in self.opens]
        if any(formula.powers):
            total = self._product([s for s, p in zip(sources, formula.powers, strict=True) if p])
            return self._scaled(total, formula.constant)
        terms = [self._scaled(s, f) for s, f in zip(sources, formula.factors, strict=True) if f]
        if formula.constant:
            terms.append(self._vector(int(formula.constant)))
        total = terms[0]
        for term in terms[1:]:
            total = self._add("Add", [total, term])
        return total

    def _product(self, names: Sequence[str]) -> str:
        total = names[0]
        for name in names[1:]:
            total = self._add("Mul", [total, name])
        return total

    def _scaled(self, name: str, factor: Fraction) -> str:
        if factor.numerator != 1:
            name = self._add("Mul", [name, self._vector(factor.numerator)])
        return name if factor.denominator == 1 else self._add("Div", [name, self._vector(factor.denominator)])

    def _weight(self, name: str) -> str:
        """A constant; where it counts up to an open size the numbers up to there, or what it repeats."""
        arrays = [draft.weights[name] for draft in self.drafts]
        first = arrays[0]
        if all(a is first or _equal(a, first) for a in arrays):
            self.weights[name] = first
            return name
        reader = next(node for node in self.drafts[0].nodes if name in node.inputs)
        columns = list(zip(*(a.shape for a in arrays), strict=True))
        opened = [len(set(sizes)) > 1 for sizes in columns]
        cut = tuple(slice(1) if o else slice(None) for o in opened)
        if any(opened) and all(_equal(np.broadcast_to(first[cut], a.shape), a) for a in arrays):
            self.weights[name] = first[cut]
            return self._add("Expand", [name, self._joined(columns, reader)])
        counts = [np.array_equal(a.reshape(-1), np.arange(a.size)) for a in arrays]
        if not all(counts) or first.dtype.kind not in "iu":
            raise GraphError(
                f"[onnx.export] a constant is another one at another size (called at {reader.line}); compute "
                "it by ops from the inputs, or give the size a number"
            )
        none = self._constant(np.array(0, np.int64))
        scalar = self._add("Squeeze", [self._computed([a.size for a in arrays], reader)])
        one = self._constant(np.array(1, np.int64))
        numbers = self._add("Range", [none, scalar, one])
        if first.ndim != 1:
            sizes = (-1 if o else n for o, n in zip(opened, first.shape, strict=True))
            numbers = self._add("Reshape", [numbers, self._vector(*sizes)])
        if first.dtype != np.int64:
            numbers = self._add("Cast", [numbers], to=6)  # INT32
        return numbers


def _equal(one: NDArray, other: NDArray) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()
