"""Compiled kernels of softmax and of losses by class beside NumPy's bodies and PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from dl4all.runtime.cpu.llvm import provider
from tests.support.host_launches import HostLaunches, poison_memory

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

F: Any = dl.nn.functional
T: Any = torch.nn.functional
LINES = [
    ((3, 1000), -1), ((5, 12), 1), ((2, 5, 7), 1), ((2, 67, 131), 1), ((3001, 5), 1), ((13,), 0), ((4, 1), 1),
    ((), 0), ((17, 16), -1), ((17, 33), 0), ((2, 3, 4099), -1), ((7, 3, 2), 0), ((2, 50021), 1),
]  # fmt: skip
SCORES = [(5, 10), (129, 7), (3, 1009), (1, 1), (2, 21, 5, 7), (3, 5, 2), (4, 3, 40), (13,)]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> HostLaunches:
    return HostLaunches(monkeypatch)


def draw(*shape: int, seed: int = 0) -> Any:
    return np.asarray(3 * np.random.default_rng((seed, *shape)).standard_normal(shape), np.float32)


def on_cpu(array: Any) -> Any:
    return dl.tensor(array, device="cpu")


def in_torch(array: Any) -> Any:
    return torch.tensor(array, requires_grad=True)


def close(found: Any, expected: Any, tolerance: float = 3e-6) -> None:
    np.testing.assert_allclose(found, expected, tolerance, tolerance)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize(("shape", "dim"), LINES, ids=str)
def test_along_every_axis(name: str, shape: Any, dim: int, launches: HostLaunches) -> None:
    x, g = draw(*shape), draw(*shape, seed=1)
    a, b = on_cpu(x).requires_grad_(), in_torch(x)
    poison_memory(x.nbytes, x.nbytes)
    compiled, by_numpy = launches.both(lambda: getattr(F, name)(a, dim).detach())
    close(compiled, by_numpy)
    result, expected = getattr(F, name)(a, dim), getattr(T, name)(b, dim)
    close(compiled, expected.detach().numpy())
    result.backward(on_cpu(g))
    expected.backward(torch.tensor(g))
    close(a.grad.numpy(), b.grad.numpy(), 2e-5)


@pytest.mark.parametrize(
    ("shape", "dim"), [*LINES, ((3, 5, 7), (0, 1)), ((3, 5, 7), (1, 2)), ((3, 5), None)], ids=str
)
def test_logsumexp(shape: Any, dim: Any, launches: HostLaunches) -> None:
    x = on_cpu(draw(*shape))
    for keepdim in (False, True):
        compiled, by_numpy = launches.both(partial(dl.logsumexp, x, dim, keepdim))
        close(compiled, by_numpy)


def test_special_values(launches: HostLaunches) -> None:
    x = draw(9, 37)
    x[0, 3], x[1, 4], x[2, 5], x[3, :] = np.nan, np.inf, -np.inf, -np.inf
    x[4], x[5, 0] = 1e30, -1e30
    x[6, 36] = -200.0
    for operand in (on_cpu(x), on_cpu(np.ascontiguousarray(x.T))):
        dim = 1 if operand.shape[1] == 37 else 0
        for f in (F.softmax, F.log_softmax, dl.logsumexp):
            compiled, by_numpy = launches.both(partial(f, operand, dim))
            close(compiled, by_numpy)
    short = on_cpu(x[:, :7].copy())
    for f in (F.softmax, F.log_softmax):
        compiled, by_numpy = launches.both(partial(f, short, 1))
        close(compiled, by_numpy)


def test_operands_that_are_not_contiguous(launches: HostLaunches) -> None:
    x = on_cpu(draw(33, 5, 7)).permute(2, 0, 1)
    for f in (F.softmax, F.log_softmax):
        for dim in range(3):
            before = launches.count
            np.testing.assert_array_equal(f(x, dim).numpy(), f(x.contiguous(), dim).numpy())
            assert launches.count >= before + 2


# Losses by class


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(
    dtype: str, reduction: str, smoothing: float, weighted: bool, launches: HostLaunches
) -> None:
    for shape in SCORES:
        axis = 1 if len(shape) > 1 else 0
        classes, rows = shape[axis], shape[:axis] + shape[axis + 1 :]
        rng = np.random.default_rng((3, *shape))
        target = np.asarray(rng.integers(0, classes, rows))
        if target.size > 2:
            target[rng.random(rows) < 0.3] = -100
        weight = rng.random(classes).astype(np.float32) if weighted else None
        if weight is not None and classes > 2:
            weight[1] = 0
        x = draw(*shape)
        a, b = on_cpu(x).requires_grad_(), in_torch(x)
        options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
        poison_memory(x.nbytes, 4, 8)
        before = launches.count
        loss = F.cross_entropy(
            a, on_cpu(target.astype(dtype)), None if weight is None else on_cpu(weight), **options
        )
        expected = T.cross_entropy(
            b, torch.tensor(target), None if weight is None else torch.tensor(weight), **options
        )
        close(loss.detach().numpy(), expected.detach().numpy(), 1e-5)
        loss.sum().backward()
        expected.sum().backward()
        close(a.grad.numpy(), b.grad.numpy(), 1e-5)
        assert launches.count >= before + 2


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SCORES, ids=str)
def test_negative_log_likelihood(shape: Any, weighted: bool, launches: HostLaunches) -> None:
    axis = 1 if len(shape) > 1 else 0
    rng = np.random.default_rng((5, *shape))
    target = np.asarray(rng.integers(0, shape[axis], shape[:axis] + shape[axis + 1 :]))
    weight = rng.random(shape[axis]).astype(np.float32) if weighted else None
    x = draw(*shape)
    a, b = on_cpu(x).requires_grad_(), in_torch(x)
    poison_memory(x.nbytes)
    loss = F.nll_loss(a, on_cpu(target), None if weight is None else on_cpu(weight))
    expected = T.nll_loss(b, torch.tensor(target), None if weight is None else torch.tensor(weight))
    close(loss.detach().numpy(), expected.detach().numpy())
    loss.backward()
    expected.backward()
    close(a.grad.numpy(), b.grad.numpy())
    assert launches.count >= 2


def test_infinite_scores(launches: HostLaunches) -> None:
    x = draw(6, 5)
    x[0, 1], x[1, 2], x[2, 3], x[3] = -np.inf, np.inf, np.nan, -np.inf
    scores, target = on_cpu(x), on_cpu(np.array([1, 2, 0, 1, 4, -100]))
    for smoothing in (0.0, 0.2):
        loss = partial(F.cross_entropy, scores, target, reduction="none", label_smoothing=smoothing)
        compiled, by_numpy = launches.both(loss)
        close(compiled, by_numpy)


@pytest.mark.parametrize("wrong", [5, -1, 2**40])
def test_targets_that_are_no_classes(wrong: int) -> None:
    scores = on_cpu(draw(3, 5))
    for f in (F.cross_entropy, F.nll_loss):
        with pytest.raises(ArgumentError, match=f"target {wrong} is not one of 5 classes"):
            f(scores, on_cpu(np.array([0, wrong, 2])))
    with pytest.raises(ShapeError):
        F.cross_entropy(scores, on_cpu(np.array([0, 1])))


def test_an_ignored_class(launches: HostLaunches) -> None:
    x, target = draw(11, 5), np.arange(11) % 5
    loss = F.cross_entropy(on_cpu(x), on_cpu(target), ignore_index=2)
    close(loss.numpy(), T.cross_entropy(torch.tensor(x), torch.tensor(target), ignore_index=2).numpy())
    nothing = F.cross_entropy(on_cpu(x[:1]), on_cpu(np.array([2])), ignore_index=2)
    assert np.isnan(nothing.item())
    assert launches.count == 2


def test_classes_in_views(launches: HostLaunches) -> None:
    x, target = on_cpu(draw(7, 33)).T, on_cpu(np.arange(66) % 7)[::2]
    found = F.cross_entropy(x, target).item()
    assert found == F.cross_entropy(x.contiguous(), target.contiguous()).item()
    assert launches.count >= 2


def test_gradients_of_gradients() -> None:
    x, target = draw(4, 5), np.array([0, 3, -100, 1])
    a, b = on_cpu(x).requires_grad_(), in_torch(x)
    [g] = dl.autograd.grad(F.cross_entropy(a, on_cpu(target)), [a], create_graph=True)
    [h] = dl.autograd.grad((g * g).sum(), [a])
    [g_t] = torch.autograd.grad(T.cross_entropy(b, torch.tensor(target)), [b], create_graph=True)
    [h_t] = torch.autograd.grad((g_t * g_t).sum(), [b])
    close(h.numpy(), h_t.numpy(), 1e-5)
