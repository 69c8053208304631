"""Rules of several statements over named values, written once for GLSL, LLVM, NumPy and op codes.

A rule is a text of assignments, a line each, in the syntax of expressions
(:mod:`dl4all.ops.core.expressions.expression`). Names that are assigned and that nobody has given are the
rule's own. Each statement sees the values of those before.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import ShaderError
from dl4all.ops.core.expressions.expression import Array, Expression, compute, parse, print_glsl


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


def run_statements(text: str, values: Mapping[str, Any]) -> dict[str, Array]:
    """The values after a rule, computed with NumPy.

    Args:
        text: the rule.
        values: arrays of one float dtype that broadcast together, and numbers, which are rounded to it.

    >>> run_statements("g = 2.0 * g", {"g": np.array([1.0, 3.0])})["g"].tolist()
    [2.0, 6.0]
    """
    dtype = next(value.dtype for value in values.values() if isinstance(value, np.ndarray))
    now = {name: np.asarray(value, dtype) for name, value in values.items()}
    for name, value in parse_statements(text):
        now[name] = compute(value, now, dtype)
    return now
