"""Compiled graphs of the CPU run by compiled kernels: which calls, chains, numbers that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.host.calls import calls_of
from dl4all.graph.host.fusion import fused
from dl4all.graph.host.launches import MOST_CALLS, MOST_TENSORS, KernelCall, launched
from dl4all.graph.tracing.trace import trace
from dl4all.nn import functional as F
from dl4all.runtime.cpu.llvm import provider
from tests.support.operands import generator

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")


def draw(name: str, *shape: int, dtype: str = "float32") -> dl.Tensor:
    rng = generator(name, shape)
    values = rng.normal(size=shape) * 3 if dtype == "float32" else rng.integers(0, 9, shape)
    return dl.tensor(values.astype(dtype), device="cpu")


def kernels_of(function: Callable[..., Any], *arguments: Any) -> list[tuple[str, bool]]:
    """The calls of a function's graph, and whether compiled kernels do them."""
    with dl.no_grad():
        graph = trace(function, *arguments)
    calls = [launched(call) for call in fused(graph, calls_of(graph))[1]]
    return [(call.name, isinstance(call.function, KernelCall)) for call in calls]


def kernels(function: Callable[..., Any], *arguments: Any) -> dict[str, bool]:
    """Those that have different names."""
    return dict(kernels_of(function, *arguments))


def check(function: Callable[..., Any], *arguments: Any) -> None:
    """Compiled, each bit is as it is without."""
    compiled = dl.compile(function)
    with dl.no_grad():
        for factor in (1.0, 1.0, 2.5, -1.0):
            given = [a * factor if a.dtype == np.float32 else a.clone() for a in arguments]
            expected, found = function(*given), compiled(*given)
            for one, other in zip(_each(found), _each(expected), strict=True):
                np.testing.assert_array_equal(one.numpy(), other.numpy(), strict=True)
    assert compiled.specializations


def _each(result: Any) -> Any:
    return result if isinstance(result, tuple) else (result,)


def test_a_chain_is_one_kernel() -> None:
    def call(x: dl.Tensor, y: dl.Tensor, row: dl.Tensor) -> Any:
        z = F.gelu(x * 2.0 + row) - y
        return dl.where(z > 0.5, z, dl.tanh(y)), z

    arguments = draw("chain", 5, 13), draw("other", 5, 13), draw("row", 13)
    assert list(kernels(call, *arguments).values()) == [True]
    check(call, *arguments)
    check(call, draw("chain", 13, 5).T, draw("other", 5, 13), draw("row", 1, 13))
    check(call, draw("chain", 3, 2, 7), draw("other", 3, 2, 7), draw("row", 2, 1))


def test_dtypes_within_a_chain() -> None:
    def call(x: dl.Tensor, i: dl.Tensor) -> Any:
        positive = (x > 0) & (i > 3)
        number = i * 2 - 7
        return dl.where(positive, number, i), positive, x.sqrt() * i, number.abs() // 3

    arguments = draw("x", 4, 9), draw("i", 4, 9, dtype="int64")
    assert all(kernels(call, *arguments).values())
    check(call, *arguments)
    check(call, draw("x", 4, 9), draw("i", 4, 9, dtype="int32"))


def test_changes_in_place_within_a_chain() -> None:
    def call(x: dl.Tensor, y: dl.Tensor) -> Any:
        z = x * 3.0
        z.add_(y, alpha=0.5).clamp_(-1.0, 2.0)
        z[1:].mul_(2.0)
        return z, z.exp()

    check(call, draw("x", 6, 5), draw("y", 6, 5))


def test_long_chains_are_cut() -> None:
    def call(x: dl.Tensor) -> dl.Tensor:
        for step in range(2 * MOST_CALLS):
            x = x * 0.5 + float(step)
        return x

    calls = kernels_of(call, draw("long", 7, 3))
    assert len(calls) > 1
    assert all(is_kernel for _, is_kernel in calls)
    check(call, draw("long", 7, 3))


def test_chains_of_many_tensors_are_cut() -> None:
    def call(*tensors: dl.Tensor) -> Any:
        return tuple(one * 2.0 for one in tensors)

    arguments = [draw(f"tensor {number}", 5, 3) for number in range(MOST_TENSORS + 3)]
    calls = kernels_of(call, *arguments)
    assert 1 < len(calls) < len(arguments)
    assert all(is_kernel for _, is_kernel in calls)
    check(call, *arguments)


def test_dropout_draws_anew_in_each_call() -> None:
    def call(x: dl.Tensor) -> dl.Tensor:
        return F.dropout(x * 2.0, 0.3)

    x = draw("dropout", 13, 7)
    assert all(kernels(call, x).values())
    runs = []
    for function in (call, dl.compile(call)):
        dl.manual_seed(11)
        runs.append([function(x).numpy() for _ in range(5)])
    for one, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
    assert not np.array_equal(runs[1][3], runs[1][4])


def test_ops_have_their_kernels() -> None:
    def call(x: dl.Tensor) -> Any:
        return F.softmax(x, 1), x.T.contiguous(), F.softmax(x * 2.0, 1).log()

    found = kernels(call, draw("ops", 9, 21))
    assert all(found.values()), found
    check(call, draw("ops", 9, 21))


def test_learning_rates_of_each_call() -> None:
    """A step of training that is compiled once, with rates that a scheduler changes."""
    losses = []
    for compiled in (False, True):
        dl.manual_seed(3)
        model = dl.nn.Sequential(dl.nn.Linear(7, 11), dl.nn.GELU(), dl.nn.Linear(11, 3)).to("cpu")
        optimizer = dl.optim.AdamW(model.parameters(), lr=0.05)
        scheduler = dl.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)

        def step(x: dl.Tensor, y: dl.Tensor, model: Any = model, optimizer: Any = optimizer) -> dl.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = dl.compile(step) if compiled else step
        x, y = draw("x", 5, 7), draw("y", 5, 3)
        for _ in range(6):
            losses.append(run(x, y).item())
            scheduler.step()
    np.testing.assert_allclose(losses[6:], losses[:6], 1e-6)
