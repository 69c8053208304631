"""Random functions of many ops, compiled, compute what they compute uncompiled, and so do their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dl4all as dl
from tests.support.subcases import FULL

pytestmark = pytest.mark.vulkan
ROWS, COLUMNS = 5, 7
CALLS = 4  # of which the first two are traced
few = settings(
    max_examples=2000 if FULL else 12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
Function = Callable[..., dl.Tensor]


def _all(x: dl.Tensor) -> dl.Tensor:
    return x.expand(ROWS, COLUMNS)


# All keep numbers small, so that rounding stays small, too.
UNARY: dict[str, Function] = {
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "relu": lambda x: x.relu(),
    "tanh": lambda x: x.tanh(),
    "sigmoid": lambda x: x.sigmoid(),
    "sin": lambda x: x.sin(),
    "halve": lambda x: x * 0.5,
    "one times": lambda x: x * 1.0,
    "clone": lambda x: x.clone(),
    "mean of rows": lambda x: _all(x).mean(1, keepdim=True),
    "mean of columns": lambda x: _all(x).mean(0, keepdim=True),
    "maximum of rows": lambda x: _all(x).amax(1, keepdim=True),
    "softmax": lambda x: _all(x).softmax(1),
    "layer norm": lambda x: dl.nn.functional.layer_norm(_all(x), (COLUMNS,)).tanh(),
    "turned": lambda x: _all(x).t().clone().reshape(ROWS, COLUMNS),
    "shifted": lambda x: dl.cat([_all(x)[1:], _all(x)[:1]]),
    "columns": lambda x: _all(x)[:, 2:3],
    "ones": lambda x: dl.ones_like(x),
}
BINARY: dict[str, Function] = {
    "add": lambda x, y: (x + y) * 0.5,
    "sub": lambda x, y: (x - y) * 0.5,
    "mul": lambda x, y: (x * y).tanh(),
    "maximum": lambda x, y: dl.maximum(x, y),
    "where": lambda x, y: dl.where(x > 0.1, x, y),
    "matmul": lambda x, y: (_all(x) @ _all(y).t() * 0.1).tanh() @ _all(x),
}
IN_PLACE: dict[str, Function] = {
    "add_": lambda x, y: x.add_(y * 0.1),
    "mul_": lambda x, y: x.mul_(0.9),
    "relu_": lambda x, y: x.relu_(),
    "row": lambda x, y: x[:1].add_(0.25),
}
OPS = {**UNARY, **BINARY, **IN_PLACE}


class Step(NamedTuple):
    """An op, and which of the values so far it takes, counted from the last."""

    name: str
    first: int
    second: int


def _steps(names: Sequence[str], most: int) -> st.SearchStrategy[list[Step]]:
    step = st.builds(Step, st.sampled_from(names), st.integers(0, 6), st.integers(0, 6))
    return st.lists(step, min_size=2, max_size=most)


def _run(steps: Sequence[Step], a: dl.Tensor, b: dl.Tensor) -> tuple[dl.Tensor, ...]:
    values = [a.tanh(), b.sigmoid()]
    for name, first, second in steps:
        x, y = values[-1 - first % len(values)], values[-1 - second % len(values)]
        if name not in IN_PLACE:
            values.append(UNARY[name](x) if name in UNARY else BINARY[name](x, y))
        elif x.shape == (ROWS, COLUMNS):
            OPS[name](x, y)
    return tuple(value.clone() for value in values[-3:])


def _arrays() -> list[npt.NDArray[Any]]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal((ROWS, COLUMNS), np.float32) for _ in range(2)]


def _check(function: Callable[..., tuple[dl.Tensor, ...]]) -> None:
    tensors = [dl.tensor(array, device="vulkan:0") for array in _arrays()]
    compiled = dl.compile(function)
    plain = [tensor.numpy() for tensor in function(*tensors)]
    for _ in range(CALLS):
        results = [tensor.numpy() for tensor in compiled(*tensors)]
        for result, expected in zip(results, plain, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=2e-5)
    assert compiled.specializations, "it was not compiled"


@few
@given(_steps([*OPS], 50))
def test_forward(steps: list[Step]) -> None:
    def function(a: dl.Tensor, b: dl.Tensor) -> tuple[dl.Tensor, ...]:
        with dl.no_grad():
            return _run(steps, a, b)

    _check(function)


@few
@given(_steps([*UNARY, *BINARY], 25))
def test_gradients(steps: list[Step]) -> None:
    def function(a: dl.Tensor, b: dl.Tensor) -> tuple[dl.Tensor, ...]:
        leaves = [a.detach().requires_grad_(), b.detach().requires_grad_()]
        *_, result = _run(steps, *leaves)
        found = dl.autograd.grad((result + leaves[0] * leaves[1]).sum(), leaves)
        return tuple(found)

    _check(function)
