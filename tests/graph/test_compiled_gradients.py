"""Gradients of compiled functions, and within them, are those of immediate mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dl4all as dl
from dl4all import optim
from dl4all.errors import Dl4allError
from dl4all.graph.run.compiled import CompileWarning
from tests.support.compiled_stories import CALLS, Story, Wrap, on_each_device, play


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What cannot be replayed warns; tests of warnings say so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompileWarning)
        yield


def _accumulating(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    p = tensor(3).requires_grad_()

    def step(x: dl.Tensor) -> dl.Tensor:
        (x * p * p).sum().backward()
        return x * 1

    called, results = wrap(step), []
    for number in range(12):
        if number == 7:
            p.grad = None
        called(tensor(3))
        results.append(p.grad)
    return results


def _of_an_argument(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    def step(x: dl.Tensor) -> dl.Tensor:
        (x * x).sum().backward()
        return x.detach() * 1

    called, results = wrap(step), []
    for _ in range(CALLS):
        x = tensor(3).requires_grad_()
        for _ in range(3):
            called(x)
            results.append(x.grad)
    return results


def _read(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    p = tensor(3).requires_grad_()
    called, results = wrap(lambda x: x * p.grad), []
    for number in range(10):
        if number % 5 == 0:
            p.grad = tensor(3)
        elif number == 4:
            p.grad.mul_(3)
        results.append(called(tensor(3)))
    p.grad = tensor(1).expand(3)
    return [*results, called(tensor(3))]


def _taken_away(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    p = tensor(3).requires_grad_()
    optimizer = optim.SGD([p], lr=0.1)

    def step(x: dl.Tensor) -> dl.Tensor:
        optimizer.step()
        optimizer.zero_grad()
        return x * p

    called, results = wrap(step), []
    for _ in range(6):
        (p * p).sum().backward()
        results += [called(tensor(3)), p.grad]
    return results


def _given(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    p = tensor(3).requires_grad_()

    def step(x: dl.Tensor) -> dl.Tensor:
        p.grad = x * 2
        return x * p

    called, results = wrap(step), []
    for _ in range(6):
        results += [called(tensor(3)), p.grad]
    return results


def _hooked(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    p = tensor(3).requires_grad_()

    def step(x: dl.Tensor) -> dl.Tensor:
        p.grad = None
        (x * p).sum().backward()
        return x * 1

    called, results = wrap(step), []
    for number in range(9):
        if number == 5:
            p.register_hook(lambda gradient: gradient * 10)
        called(tensor(3))
        results.append(p.grad)
    return results


def _partial(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    p = tensor(3).requires_grad_()
    called, results = wrap(lambda x, y: x * y * p), []
    for _ in range(6):
        p.grad = None
        x = p * 3.0
        called(x, x * x).sum().backward()
        results.append(p.grad)
    return results


def _none_for_unused_results(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    a, b = tensor(3).requires_grad_(), tensor(3).requires_grad_()
    called, results = wrap(lambda x: (x * a, x * b)), []
    for _ in range(5):
        a.grad = b.grad = None
        called(tensor(3))[0].sum().backward()
        results += [a.grad, b.grad]
    return results


def _of_views(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    p = tensor(3, 4).requires_grad_()
    called, results = wrap(lambda x: (p.t(), p.detach(), p, x, x.t(), x + p)), []
    for _ in range(6):
        p.grad = None
        x = tensor(3, 4).requires_grad_()
        found = called(x)
        loss = found[0].sum() * 2 + (found[2] * found[3]).sum() + (found[4] * 3).sum() + found[5].sum()
        loss.backward()
        results += [p.grad, x.grad, *found]
    return results


def _twice(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    p = tensor(3).requires_grad_()
    called, results = wrap(lambda x: (x * p).exp()), []
    for _ in range(5):
        p.grad = None
        loss = called(tensor(3)).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        results.append(p.grad)
        with pytest.raises(Dl4allError, match="freed"):
            loss.backward()
    return results


def _kept_by_an_argument(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    p = tensor(3).requires_grad_()
    called, results = wrap(lambda x: (x * 2).exp()), []
    for _ in range(5):
        p.grad = None
        x = p * 2
        x.retain_grad()
        called(x).sum().backward()
        results += [p.grad, x.grad]
    return results


GRADIENTS: tuple[Story, ...] = (
    _accumulating, _of_an_argument, _read, _taken_away, _given, _hooked, _partial, _none_for_unused_results,
    _of_views, _twice, _kept_by_an_argument,
)  # fmt: skip


@on_each_device
@pytest.mark.parametrize("story", GRADIENTS)
def test_gradients(story: Story, device: str) -> None:
    play(story, device)


def _through_an_older_history(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    p = tensor(3).requires_grad_()
    called = wrap(lambda x: dl.grad((x * 2).sum(), [p])[0])
    return [called(p * float(number)) for number in (3, 3, 3, 5, 5)]


def _kept_within(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    p = tensor(3).requires_grad_()

    def call(x: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor]:
        hidden = x * p
        hidden.retain_grad()
        return hidden, hidden.exp()

    called, results = wrap(call), []
    for _ in range(5):
        p.grad = None
        hidden, result = called(tensor(3))
        result.sum().backward()
        results += [p.grad, hidden.grad]
    return results


def _in_place(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
    called, results = wrap(lambda x: x.mul_(2)), []
    for _ in range(5):
        p = tensor(6).requires_grad_()
        x = p * 1.0
        called(x[1:4])
        (x * x).sum().backward()
        results.append(p.grad)
    return results


@on_each_device
@pytest.mark.parametrize("story", [_through_an_older_history, _kept_within, _in_place])
def test_gradients_that_cannot_be_replayed(story: Story, device: str) -> None:
    play(story, device, compiles=False)


def test_slices_that_share_one_element(device: str) -> None:
    x = dl.arange(7.0, device=device).requires_grad_()

    def function(x: dl.Tensor) -> dl.Tensor:
        return x[:4].square().sum() + (x[3:] * 1.5).sum()

    run = dl.compile(function)
    for _ in range(4):
        x.grad = None
        run(x).backward()
        assert x.grad is not None
        assert x.grad.tolist() == [0.0, 2.0, 4.0, 7.5, 1.5, 1.5, 1.5]


def test_a_returned_argument_keeps_its_history_beside_one_of_the_same_memory(device: str) -> None:
    """As the first turn of a loop gives the same tensor twice, and later ones do not."""

    def step(x: Any, a: Any) -> tuple[Any, Any]:
        return (x + a / x) / 2, a

    compiled = dl.compile(step)
    for number in range(CALLS):
        start = dl.tensor([2.0 + number, 5.0], device=device)
        gradients = []
        for run in (step, compiled):
            x, a = first, second = [start.detach().requires_grad_() for _ in range(2)]
            for _ in range(4):
                x, a = run(x, a)
            gradients.append([v for g in dl.autograd.grad(x.sum(), [first, second]) for v in g.tolist()])
        assert gradients[0] == pytest.approx(gradients[1], rel=1e-5)


def test_the_only_slice_along_an_axis(device: str) -> None:
    """Its gradient is a copy of a whole tensor, which is fused with what is around it."""
    x = dl.arange(6.0, device=device).reshape(1, 6).detach().requires_grad_()

    def function(x: dl.Tensor) -> dl.Tensor:
        y = x[0]
        return (y * y.sin() + y).sum()

    run, gradients = dl.compile(function), []
    for call in (function, run, run, run, run):
        x.grad = None
        call(x).backward()
        gradients.append(x.grad.tolist())
    for gradient in gradients[1:]:
        assert gradient[0] == pytest.approx(gradients[0][0], rel=1e-5)
