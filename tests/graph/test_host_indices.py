"""Indices of graphs of the CPU: checked, and counted in bags, whenever a graph runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.runtime.cpu.llvm import provider

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")
ROWS, COLUMNS = 41, 7


def ints(*numbers: int) -> dl.Tensor:
    return dl.tensor(list(numbers), dtype="int64", device="cpu")


def gradient(leaf: Any) -> Any:
    return leaf.grad.numpy()


def bags(rng: np.random.Generator, count: int, rows: int) -> tuple[Any, Any]:
    """Row numbers, and where bags begin, some of them empty."""
    starts = np.sort(np.concatenate(([0], rng.integers(0, rows + 1, count - 1))))
    return rng.integers(0, ROWS, rows), starts


@pytest.mark.parametrize("padding", [None, 3, -1])
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("last", [False, True])
def test_embedding_bags(mode: str, padding: int | None, last: bool) -> None:
    rng = np.random.default_rng(5)
    table, grad = rng.standard_normal((ROWS, COLUMNS)).astype("float32"), rng.standard_normal((11, COLUMNS))

    def step(lib: Any, weight: Any, rows: Any, starts: Any, g: Any) -> Any:
        out = lib.nn.functional.embedding_bag(
            rows, weight, starts, mode=mode, padding_idx=padding, include_last_offset=last
        )
        (out * g).sum().backward()
        return out

    def ours(weight: Any, rows: Any, starts: Any, g: Any) -> Any:
        return step(dl, weight, rows, starts, g)

    calls: list[Any] = [ours, dl.compile(ours)]
    for _ in range(3):
        rows, starts = bags(rng, 11, 60)
        rows[:9] = 3, ROWS - 1, 3, 3, ROWS - 1, 0, 3, 1, 2
        starts = np.append(starts, 60) if last else starts
        weights = [dl.tensor(table, device="cpu").requires_grad_() for _ in range(2)]
        given = [dl.tensor(a, device="cpu") for a in (rows, starts, grad.astype("float32"))]
        eager, graph = (
            call(weight, *given).detach().numpy() for call, weight in zip(calls, weights, strict=True)
        )
        np.testing.assert_array_equal(graph, eager)
        np.testing.assert_array_equal(*map(gradient, weights))
        their_weight = torch.tensor(table).requires_grad_()
        theirs = step(torch, their_weight, *(torch.tensor(t.numpy()) for t in given))
        np.testing.assert_allclose(eager, theirs.detach().numpy(), 1e-5, 1e-5)
        np.testing.assert_allclose(gradient(weights[0]), gradient(their_weight), 1e-5, 1e-5)


def test_wrong_bags_of_a_graph() -> None:
    table = dl.tensor(np.random.default_rng(7).standard_normal((ROWS, COLUMNS)), device="cpu")
    look_up = dl.compile(lambda rows, starts: dl.nn.functional.embedding_bag(rows, table, starts, mode="sum"))
    look_up(ints(1, 2, 40), ints(0, 2))
    with pytest.raises(ArgumentError, match="index 41 is out of range"):
        look_up(ints(1, 41, 0), ints(0, 2))
    with pytest.raises(ArgumentError, match=r"offsets must rise from 0 to 3, got \[0, 4\]"):
        look_up(ints(1, 2, 0), ints(0, 4))
    np.testing.assert_array_equal(look_up(ints(5, 6, 7), ints(0, 0)).numpy()[0], np.zeros(COLUMNS))


def test_offsets_without_bags() -> None:
    table = dl.tensor(np.random.default_rng(7).standard_normal((ROWS, COLUMNS)), device="cpu")
    with pytest.raises(ArgumentError, match=r"offsets must rise from 0 to 2, got \[\]"):
        dl.nn.functional.embedding_bag(ints(1, 2), table, ints(2), include_last_offset=True)


def test_indices_that_the_host_knows() -> None:
    rng = np.random.default_rng(11)
    x, y = (dl.tensor(rng.standard_normal((ROWS, COLUMNS)).astype("float32"), device="cpu") for _ in range(2))
    pick = dl.compile(lambda x: x[[5, 0, 5, -1]] * 2)
    for given in (x, y):
        np.testing.assert_array_equal(pick(given).numpy(), given.numpy()[[5, 0, 5, -1]] * 2)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
def test_scatter_reduce(reduce: Any) -> None:
    rng = np.random.default_rng(13)

    def loss(x: dl.Tensor, index: dl.Tensor, source: dl.Tensor) -> dl.Tensor:
        result = dl.scatter_reduce(x, 0, index, source, reduce)
        (result * result).sum().backward()
        return result

    compiled = dl.compile(loss)
    for _ in range(3):
        arrays = rng.standard_normal((9, 5)), rng.integers(0, 9, (23, 5)), rng.standard_normal((23, 5))
        found = []
        for call in (loss, compiled):
            x, i, s = (dl.tensor(array, device="cpu") for array in arrays)
            x.requires_grad_()
            s.requires_grad_()
            result = call(x, i, s).detach().numpy()
            found.append((result, gradient(x), gradient(s)))
        for eager, graph in zip(*found, strict=True):
            np.testing.assert_array_equal(graph, eager)
    x, i, s = (dl.tensor(array, device="cpu") for array in arrays)
    wrong = i.numpy().copy()
    wrong[4, 2] = 9
    with pytest.raises(ArgumentError, match="index 9 is out of range"):
        compiled(x.requires_grad_(), dl.tensor(wrong, device="cpu"), s.requires_grad_())


def test_indices_that_an_op_computes_are_equal_in_each_trace() -> None:
    x = dl.tensor(np.random.default_rng(3).standard_normal((2, 3, 5, 4)).astype("float32"), device="cpu")

    def enlarged(x: dl.Tensor) -> dl.Tensor:
        return dl.nn.functional.interpolate(x, scale_factor=2, mode="nearest") * 2.0

    compiled = dl.compile(enlarged)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x).numpy(), enlarged(x).numpy())
    assert len(compiled.specializations) == 1


@pytest.mark.parametrize("kind", [list, np.array])
def test_indices_of_the_host_that_are_others_in_a_later_call(kind: Any) -> None:
    x = dl.tensor(np.random.default_rng(4).standard_normal((5, 3)).astype("float32"), device="cpu")
    rows = kind([0, 3])

    def taken(x: dl.Tensor) -> dl.Tensor:
        return x[rows] + 1.0

    compiled = dl.compile(taken)
    for row in (0, 0, 0, 4, 4, 0):
        rows[0] = row
        np.testing.assert_array_equal(compiled(x).numpy(), x.numpy()[[row, 3]] + 1.0)
    assert compiled.specializations
