"""Random functions of tensors, for tests that compare a graph before and after a pass."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

import dl4all as dl
from dl4all.errors import ShapeError
from tests.support.operands import numbers

UNARY = ("relu", "tanh", "sigmoid", "abs", "neg", "exp", "sqrt", "sign")
BINARY = ("add", "sub", "mul", "maximum", "minimum", "true_divide")
SHAPES = ((6, 8), (6, 1), (8,), (), (1, 8))

Program = Callable[..., list[dl.Tensor]]


def random_program(draw: random.Random, device: str, length: int) -> tuple[Program, list[dl.Tensor]]:
    """A function of elementwise ops, in-place ops, reductions, views and comparisons, and its arguments."""
    rng = np.random.default_rng(draw.randrange(2**32))
    inputs = [dl.tensor(numbers(rng, shape), device=device) for shape in (*SHAPES, (6, 8), (8, 6))]
    steps = [(draw.random(), draw.randrange(2**30), draw.randrange(2**30)) for _ in range(length)]

    def program(*inputs: dl.Tensor) -> list[dl.Tensor]:
        values = list(inputs)
        for chance, first, second in steps:
            # Mostly of the newest values, so that there are chains.
            x = values[-1 - first % min(4, len(values))] if first % 3 else values[first % len(values)]
            y = values[second % len(values)]
            values.append(_step(x, y, chance, first, len(inputs), values))
        return [values[-1], values[-3], values[-6]]

    return program, inputs


def _step(
    x: dl.Tensor, y: dl.Tensor, chance: float, number: int, inputs: int, values: list[dl.Tensor]
) -> dl.Tensor:
    """One more value."""
    made = any(x is value for value in values[inputs:])
    if chance < 0.3:
        return getattr(dl, UNARY[number % len(UNARY)])(x)  # type: ignore[no-any-return]
    if chance < 0.4 and made and x.is_contiguous():
        return x.mul_(0.5) if number % 2 else x.relu_()
    if chance < 0.45:
        return x.sum(0, keepdim=True) if x.ndim else x * 2
    if chance < 0.5:
        return x.t() if x.ndim == 2 else x + 1
    if chance < 0.6:
        return dl.where(x > 0, x, 0.25)
    if chance < 0.7:
        return x * 0.75 - number % 5
    try:
        return getattr(dl, BINARY[number % len(BINARY)])(x, y)  # type: ignore[no-any-return]
    except ShapeError:
        return (x + 1).relu()
