"""Rules of several statements over named values, written once for GLSL, LLVM, NumPy and op codes.

A rule is a text of assignments, a line each, in the syntax of expressions
(:mod:`dl4all.ops.core.expressions.expression`). Names that are assigned and that nobody has given are the
rule's own. Each statement sees the values of those before.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import ShaderError
from dl4all.ops.core.expressions.expression import (
    BINARY_FUNCTIONS,
    FUNCTIONS,
    UNARY_FUNCTIONS,
    Array,
    Conditional,
    Constant,
    Expression,
    FunctionCall,
    Name,
    Unary,
    children,
    compute,
    parse,
    print_glsl,
)


class Statement(NamedTuple):
    """An assignment."""

    name: str
    value: Expression


@functools.cache
def parse_statements(text: str) -> tuple[Statement, ...]:
    """The statements of a rule.

    >>> [statement.name for statement in parse_statements("mean = mean + w * (g - mean)\\np = p - mean")]
    ['mean', 'p']

    Raises:
        ShaderError: a line is no assignment of an expression.
    """
    statements = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition(" = ")
        if not equals or not name.isidentifier():
            raise ShaderError(f"[statements] expected 'name = expression', got {line!r}")
        statements.append(Statement(name, parse(value)))
    return tuple(statements)


def print_glsl_statements(text: str, names: Mapping[str, str]) -> str:
    """A rule as GLSL, on one line.

    Args:
        text: the rule.
        names: what those that are given are called; others are declared as floats.

    >>> print_glsl_statements("step = lr * g\\np = p - step", {"p": "e.p", "g": "e.g", "lr": "c.lr"})
    'float step = c.lr * e.g; e.p = e.p - step;'
    """
    known, lines = dict(names), []
    for name, value in parse_statements(text):
        printed = print_glsl(value, known)
        lines.append(f"{known[name]} = {printed};" if name in known else f"float {name} = {printed};")
        known.setdefault(name, name)
    return " ".join(lines)


def run_statements(text: str, values: Mapping[str, Any], changed: Collection[str] = ()) -> dict[str, Array]:
    """The values after a rule, computed with NumPy.

    Args:
        text: the rule.
        values: arrays of one shape and float dtype, and numbers, which are rounded to it.
        changed: names whose arrays get the values that are assigned to them.

    >>> run_statements("g = 2.0 * g", {"g": np.array([1.0, 3.0])})["g"].tolist()
    [2.0, 6.0]
    """
    dtype = next(value.dtype for value in values.values() if isinstance(value, np.ndarray))
    now = {name: np.asarray(value, dtype) for name, value in values.items()}
    places = {name: now[name] for name in changed}
    for name, tree in parse_statements(text):
        value, place = _computed(tree, now, dtype, places.get(name))[0], places.get(name)
        if place is not None and value is not place:
            place[...] = value
            value = place
        now[name] = value
    return now


def _computed(
    tree: Expression, now: Mapping[str, Array], dtype: np.dtype[Any], place: Array | None = None
) -> tuple[Array, bool]:
    """The elements of an expression, in an array that is there if possible, and whether it is a new one."""
    if isinstance(tree, (Name, Constant)):
        return compute(tree, now, dtype), False
    if isinstance(tree, Conditional):
        condition = _computed(tree.condition, now, dtype)[0]
        if not condition.ndim:  # one for all elements
            return _computed(tree.accepted if condition else tree.rejected, now, dtype, place)
        accepted, rejected = (_computed(part, now, dtype)[0] for part in (tree.accepted, tree.rejected))
        return np.where(condition, accepted, rejected), True
    parts = [_computed(part, now, dtype) for part in children(tree)]
    if isinstance(tree, FunctionCall):
        function = FUNCTIONS[tree.function]
    else:
        functions = UNARY_FUNCTIONS if isinstance(tree, Unary) else BINARY_FUNCTIONS
        function = functions[tree.operator]
    arrays = [array for array, _ in parts]
    if function is np.multiply and not all(array.ndim for array in arrays):
        factor, product = sorted(parts, key=lambda part: part[0].ndim)
        if factor[0] == 1:  # the same bits
            return product
    if isinstance(function, np.ufunc) and function.types[-1][-1] != "?" and any(a.ndim for a in arrays):
        out = next((array for array, is_new in parts if is_new and array.ndim), None)
        out = out if place is None else place
        return function(*arrays, out=out), out is not place or place is None
    return np.asarray(function(*arrays)), True
