"""The cells of recurrent layers, written once: from the terms of the gates to the next states, and back.

A rule is given ``x0``, ``x1``, ..., the terms of the gates from the input in PyTorch's order, ``h0``, ``h1``,
..., those from the hidden state, and the old states ``hidden`` and ``cell``. It assigns ``next``, the new
hidden state, and ``new_cell``. Its gradient is given ``grad`` and ``grad_cell``, those of the new states,
``hidden`` and what was saved. It assigns ``dx0``, ``dx1``, ..., and turns ``grad_cell`` into that of the old
cell, and ``grad`` into what goes on to the old hidden state directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dl4all.ops.core.expressions.statements import print_glsl_statements, run_statements


class CellRule(NamedTuple):
    """One step of a cell, and its gradient.

    Attributes:
        forward, backward: see the module.
        saved: names of the forward pass that the gradient takes.
        gradients: of the terms from the input, then of those from the hidden state where these differ.
    """

    forward: str
    backward: str
    saved: tuple[str, ...]
    gradients: tuple[tuple[str, ...], ...]

    def glsl(self) -> str:
        """The forward pass, of variables of these names."""
        return print_glsl_statements(self.forward, _own(("hidden", "cell", *_terms(self))))

    def glsl_backward(self) -> str:
        """The gradient, of variables of these names."""
        return print_glsl_statements(self.backward, _own(("grad", "grad_cell", "hidden", *self.saved)))


def _own(names: Iterable[str]) -> dict[str, str]:
    return {name: name for name in names}


def _terms(rule: CellRule) -> list[str]:
    return [f"{term}{gate}" for term in "xh" for gate in range(len(rule.gradients[0]))]


LSTM = CellRule(
    """
    input_gate = sigmoidf(x0 + h0)
    forget_gate = sigmoidf(x1 + h1)
    candidate = tanhf(x2 + h2)
    output_gate = sigmoidf(x3 + h3)
    new_cell = forget_gate * cell + input_gate * candidate
    tanh_cell = tanhf(new_cell)
    next = output_gate * tanh_cell
    """,
    """
    through = grad_cell + grad * output_gate * (1.0 - tanh_cell * tanh_cell)
    dx0 = through * candidate * (input_gate * (1.0 - input_gate))
    dx1 = through * cell * (forget_gate * (1.0 - forget_gate))
    dx2 = through * input_gate * (1.0 - candidate * candidate)
    dx3 = grad * tanh_cell * (output_gate * (1.0 - output_gate))
    grad_cell = through * forget_gate
    """,
    ("input_gate", "forget_gate", "candidate", "output_gate", "cell", "tanh_cell"),
    (("dx0", "dx1", "dx2", "dx3"),),
)
GRU = CellRule(
    """
    reset = sigmoidf(x0 + h0)
    update = sigmoidf(x1 + h1)
    candidate = tanhf(x2 + reset * h2)
    next = (1.0 - update) * candidate + update * hidden
    """,
    """
    dx2 = grad * (1.0 - update) * (1.0 - candidate * candidate)
    dx0 = dx2 * h2 * (reset * (1.0 - reset))
    dx1 = grad * (hidden - candidate) * (update * (1.0 - update))
    dh2 = dx2 * reset
    grad = grad * update
    """,
    ("reset", "update", "candidate", "h2"),
    (("dx0", "dx1", "dx2"), ("dx0", "dx1", "dh2")),
)
TANH = CellRule("next = tanhf(x0 + h0)", "dx0 = grad * (1.0 - next * next)", ("next",), (("dx0",),))
RELU = CellRule(
    """
    total = x0 + h0
    next = total < 0.0 ? 0.0 : total
    """,
    "dx0 = next > 0.0 ? grad : 0.0",
    ("next",),
    (("dx0",),),
)
RULES = {"lstm": LSTM, "gru": GRU, "tanh": TANH, "relu": RELU}


def columns(matrix: Any, names: Sequence[str]) -> dict[str, Any]:
    """Equal blocks of columns of an array, by names; a number for each."""
    if isinstance(matrix, float):
        return dict.fromkeys(names, matrix)
    return dict(zip(names, np.split(matrix, len(names), axis=1), strict=True))


def step(rule: CellRule, terms: Any, products: Any, **states: Any) -> dict[str, Any]:
    """The values of a step, computed with NumPy.

    Args:
        rule: of the cell.
        terms, products: of the gates from input and hidden state, shape (N, gates * size), or a float.
        states: the old ones, shape (N, size).
    """
    names = _terms(rule)
    count = len(names) // 2
    given = columns(terms, names[:count])
    given |= (
        dict.fromkeys(names[count:], products) if np.isscalar(products) else columns(products, names[count:])
    )
    return run_statements(rule.forward, {**given, **states})


def step_backward(rule: CellRule, values: dict[str, Any], **gradients: Any) -> dict[str, Any]:
    """The values of a step's gradient, computed with NumPy from those of the step that it takes."""
    taken = {name: values[name] for name in ("hidden", *rule.saved) if name in values}
    return run_statements(rule.backward, {**taken, **gradients})
