"""Gradients of leaves that are given away as soon as they are complete."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.autograd.engine import backpropagate
from tests.support.parallel_training import convolutions, images


def leaf(*values: float) -> dl.Tensor:
    return dl.tensor(list(values), device="cpu").requires_grad_()


def given(roots: list[dl.Tensor], seeds: list[dl.Tensor]) -> list[tuple[Any, npt.NDArray[Any]]]:
    """Which leaves got what, in order."""
    result: list[tuple[Any, npt.NDArray[Any]]] = []
    backpropagate(
        roots,
        seeds,
        retain_graph=False,
        create_graph=False,
        leaf_ready=lambda leaf, gradient: result.append((leaf, np.array(gradient.on_host()))),
    )
    return result


def test_each_leaf_comes_once_with_the_whole_sum() -> None:
    """Used twice by one op, by several ops, and as a root itself."""
    a, b = leaf(2.0, 3.0), leaf(5.0, 7.0)
    y = a * a + a * b + (a + b) * b
    result = given([y, a], [dl.tensor([1.0, 1.0], device="cpu"), dl.tensor([100.0, 200.0], device="cpu")])
    assert len(result) == 2
    by_leaf = {id(which): array for which, array in result}
    np.testing.assert_allclose(by_leaf[id(a)], [2 * 2 + 2 * 5 + 100, 2 * 3 + 2 * 7 + 200])
    np.testing.assert_allclose(by_leaf[id(b)], [2 * 2 + 2 * 5, 2 * 3 + 2 * 7])
    assert a.grad is None
    assert b.grad is None


def test_later_layers_come_first_while_others_are_still_computed() -> None:
    model = convolutions()
    alive: list[int] = []
    order: list[int] = []
    parameters = list(model.parameters())
    numbers = {id(p): n for n, p in enumerate(parameters)}
    model(dl.from_numpy(images(5, 0), "cpu")).square().mean().backward()
    expected = [p.grad.numpy().copy() for p in parameters]
    x = dl.from_numpy(images(5, 0), "cpu").requires_grad_()
    hidden = model[:1](x)
    hidden.register_hook(lambda gradient: alive.append(len(order)))
    dl.manual_seed(0)
    y = model[1:](hidden).square().mean()
    got: dict[int, npt.NDArray[Any]] = {}

    def ready(which: Any, gradient: Any) -> None:
        order.append(numbers.get(id(which), -1))
        got[order[-1]] = gradient.on_host()

    backpropagate(
        [y], [dl.tensor(1.0, device="cpu")], retain_graph=False, create_graph=False, leaf_ready=ready
    )
    assert sorted(order) == [-1, *range(len(parameters))]
    assert set(order[:2]) == {4, 5}  # the last layer
    assert set(order[2:4]) == {2, 3}
    assert set(order[4:]) == {-1, 0, 1}
    assert alive == [4]  # when the first layer's turn came, the others' gradients had been given
    assert len(expected) == len(parameters)
    assert all(np.any(array) for number, array in got.items() if number != 1)


def test_the_same_gradients_as_in_grad() -> None:
    model = convolutions()
    x = dl.from_numpy(images(5, 0), "cpu")
    dl.manual_seed(1)
    model(x).square().mean().backward()
    dl.manual_seed(1)
    result = given([model(x).square().mean()], [dl.tensor(1.0, device="cpu")])
    assert len(result) == len(list(model.parameters()))
    for which, array in result:
        np.testing.assert_array_equal(array, which.grad.numpy())


def test_leaves_that_no_gradient_reaches_do_not_come() -> None:
    """Their path ends at an op that passes nothing on."""

    class Stop(dl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: dl.Tensor) -> dl.Tensor:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return None

    a, b, unused = leaf(1.0, 2.0), leaf(3.0, 4.0), leaf(5.0, 6.0)
    y = a * b + Stop.apply(a * unused) + Stop.apply(b)
    result = given([y], [dl.tensor([1.0, 10.0], device="cpu")])
    assert {id(which) for which, _ in result} == {id(a), id(b)}
    by_leaf = {id(which): array for which, array in result}
    np.testing.assert_allclose(by_leaf[id(a)], [3.0, 40.0])
    np.testing.assert_allclose(by_leaf[id(b)], [1.0, 20.0])


@pytest.mark.parametrize("stopped", [False, True])
def test_hooks_change_the_whole_gradient_once(stopped: bool) -> None:
    """Also that of a leaf of which one use is never reached, so that it is complete at the end alone."""

    class Stop(dl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: dl.Tensor) -> dl.Tensor:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return None

    a = leaf(2.0, 3.0)
    calls: list[Any] = []

    def tenfold(gradient: Any) -> Any:
        calls.append(gradient.tolist())
        return gradient * 10

    a.register_hook(tenfold)
    y = a * a + a * 3.0
    if stopped:
        y = y + Stop.apply(a.exp())
    result = given([y], [dl.tensor([1.0, 1.0], device="cpu")])
    assert calls == [[7.0, 9.0]]
    assert len(result) == 1
    np.testing.assert_allclose(result[0][1], [70.0, 90.0])


def test_two_roots_of_one_graph() -> None:
    a, b = leaf(2.0), leaf(3.0)
    shared = a * b
    result = given(
        [shared * 2.0, shared * a], [dl.tensor([1.0], device="cpu"), dl.tensor([1.0], device="cpu")]
    )
    by_leaf = {id(which): array for which, array in result}
    assert len(result) == 2
    np.testing.assert_allclose(by_leaf[id(a)], [2 * 3 + 2 * 2 * 3])
    np.testing.assert_allclose(by_leaf[id(b)], [2 * 2 + 2 * 2])
