"""Functions with gradients of the user's own, and recomputation."""

from __future__ import annotations

from typing import Any

import pytest

import dl4all as dl
from dl4all.errors import GradientError


class Cube(dl.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * x * x * (3 * ctx.scale), None


class Split(dl.autograd.Function):
    """Two outputs, of which one may go unused."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2, x * 5

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        total = None if first is None else first * 2
        if second is not None:
            total = second * 5 if total is None else total + second * 5
        return total


class Through(dl.autograd.Function):
    """Its output is its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 7


class TooFew(Cube):
    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


class Misshapen(Cube):
    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g.reshape(1, 1), None


def leaf(values: Any, device: str = "cpu") -> dl.Tensor:
    return dl.tensor(values, dtype="float64", device=device).requires_grad_()


def ones(count: int, device: str = "cpu") -> dl.Tensor:
    return dl.ones(count, dtype="float64", device=device)


def test_a_function(device: str) -> None:
    x = leaf([2.0], device)
    Cube.apply(x, 10.0).backward()
    assert x.grad.tolist() == [120.0]


def test_it_differentiates_again() -> None:
    assert dl.autograd.gradcheck(lambda x: Cube.apply(x, 0.5), leaf([2.0, -1.0]))
    assert dl.autograd.gradgradcheck(lambda x: Cube.apply(x, 0.5), leaf([2.0, -1.0]))


class CubeOnce(dl.autograd.Function):
    """Its gradient is computed where nothing is recorded."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        with dl.no_grad():
            return g * 3 * x * x


def test_a_gradient_that_was_not_recorded_is_no_constant() -> None:
    assert dl.autograd.gradcheck(CubeOnce.apply, leaf([2.0, -1.0]))
    with pytest.raises(
        GradientError, match=r"^\[gradcheck\] the derivative of output 0, element 0, .* is 0;"
    ):
        dl.autograd.gradgradcheck(CubeOnce.apply, leaf([2.0, -1.0]))


def test_several_outputs() -> None:
    x = leaf([1.0])
    a, b = Split.apply(x)
    (a * b).backward()
    assert x.grad.tolist() == [2 * 5.0 + 5 * 2.0]
    y = leaf([1.0])
    Split.apply(y)[1].backward()
    assert y.grad.tolist() == [5.0]


def test_an_input_that_comes_out_again() -> None:
    x = leaf([1.0])
    Through.apply(x).backward()
    assert x.grad.tolist() == [7.0]
    assert x.is_leaf


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (TooFew, r"^\[TooFew\] backward must return a gradient for each of 2 inputs, got 1"),
        (
            Misshapen,
            r"^\[Misshapen\] the gradient of an input of shape \(1,\) and dtype float64 has shape \(1, 1",
        ),
    ],
)
def test_wrong_gradients_are_refused(function: Any, message: str) -> None:
    with pytest.raises(GradientError, match=message):
        function.apply(leaf([1.0]), 1.0).backward()


def work(x: Any, w: Any) -> Any:
    y = x
    for _ in range(4):
        y = (y * w).relu() + x
    return y


@pytest.mark.parametrize("nested", [False, True])
def test_recomputation_changes_nothing(device: str, nested: bool) -> None:
    inner = (lambda x, w: dl.autograd.checkpoint(work, x, w)) if nested else work
    found = []
    for function in (work, lambda x, w: dl.autograd.checkpoint(inner, x, w)):
        x, w = leaf([1.0, -2.0, 3.0], device), leaf([0.5, 2.0, 0.25], device)
        result = function(x, w)
        (result * result).backward(ones(3, device))
        found.append((result.tolist(), x.grad.tolist(), w.grad.tolist()))
    assert found[0] == found[1]


def test_recomputation_reaches_tensors_that_are_not_arguments() -> None:
    x, w, expected = dl.tensor([1.0, 2.0], dtype="float64", device="cpu"), leaf([0.5, 2.0]), leaf([0.5, 2.0])
    dl.autograd.checkpoint(lambda x: work(x, w), x).backward(ones(2))
    work(x, expected).backward(ones(2))
    assert w.grad.tolist() == expected.grad.tolist()


def test_recomputation_differentiates_again() -> None:
    operands = [leaf([1.0, -2.0]), leaf([0.5, 2.0])]
    assert dl.autograd.gradcheck(lambda *o: dl.autograd.checkpoint(work, *o), operands)
    assert dl.autograd.gradgradcheck(lambda *o: dl.autograd.checkpoint(work, *o), operands)


def test_recomputation_runs_when_it_is_needed() -> None:
    runs: list[int] = []

    def counted(x: Any) -> Any:
        runs.append(1)
        return (x * x).relu() * x

    x = leaf([2.0])
    y = dl.autograd.checkpoint(counted, x)
    assert len(runs) == 1
    assert not any(isinstance(saved.tensor, dl.Tensor) and saved.edge.node for saved in y.grad_fn._saved)
    y.backward(retain_graph=True)
    assert len(runs) == 2
    y.backward()
    assert len(runs) == 3
    assert x.grad.tolist() == [24.0]


def test_recomputation_of_a_function_that_changes_is_refused() -> None:
    runs: list[int] = []

    def changing(x: Any) -> Any:
        runs.append(1)
        return x * x * x if len(runs) == 1 else x + x

    with pytest.raises(GradientError, match=r"^\[checkpoint\] the function did not do the same"):
        dl.autograd.checkpoint(changing, leaf([2.0])).backward()
