"""Compiled kernels of normalisation beside NumPy's bodies and PyTorch: sizes, gradients, layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.runtime.cpu.llvm import provider
from tests.support.host_launches import HostLaunches, poison_memory

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

F: Any = dl.nn.functional
T: Any = torch.nn.functional
BATCHES = [
    (2, 3, 5), (7, 13), (4099, 2), (5, 131), (3, 17, 1), (2, 5, 7, 3), (3, 2, 67, 61), (129, 33),
    (2, 3, 2, 2, 2), (1, 1, 2),
]  # fmt: skip
ROWS = [(5, 13), (7, 131), (1, 1031), (300, 16), (3, 17), (2, 5000), (1, 2)]
GROUPS = [
    ((3, 6, 5), 3),
    ((2, 4, 11, 13), 2),
    ((5, 12), 3),
    ((2, 8, 67), 8),
    ((3, 4, 1, 3), 1),
    ((2, 6, 3000), 2),
]
TOLERANCE = 2e-5


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> HostLaunches:
    return HostLaunches(monkeypatch)


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def with_gradients(f: Any, module: Any, arrays: list[Any], grad: Any) -> list[Any]:
    """The result for these operands, and their gradients."""
    if module is dl:
        operands: Any = [dl.tensor(a, device="cpu").requires_grad_() for a in arrays]
        poison_memory(grad.nbytes, 8 * arrays[1].size)
        result = f(*operands)
        result.backward(dl.tensor(grad, device="cpu"))
    else:
        operands = [torch.tensor(a, requires_grad=True) for a in arrays]
        result = f(*operands)
        result.backward(torch.tensor(grad))
    return [t.detach().numpy() for t in (result, *(operand.grad for operand in operands))]


def compare(found: list[Any], expected: list[Any], scale: float = 1.0) -> None:
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        largest = max(1.0, float(np.abs(b).max())) * scale
        np.testing.assert_allclose(a, b, 2e-5, 2e-6 * largest, err_msg=str(number))


@pytest.mark.parametrize("shape", BATCHES, ids=str)
def test_batch_norm(shape: Any, launches: HostLaunches) -> None:
    channels = shape[1]
    arrays = [3 * draw(*shape) + 5, draw(channels, seed=1), draw(channels, seed=2)]
    grad = draw(*shape, seed=3)
    found, expected = list[Any](), list[Any]()
    for module, functions, results in ((dl, F, found), (torch, T, expected)):
        running = [module.tensor(draw(channels, seed=4)), module.tensor(np.abs(draw(channels, seed=5)))]
        if module is dl:
            running = [r.to("cpu") for r in running]

        def train(x: Any, w: Any, b: Any, running: Any = running, functions: Any = functions) -> Any:
            return functions.batch_norm(x, *running, w, b, training=True, momentum=0.3)

        results += with_gradients(train, module, arrays, grad)
        results += [r.numpy() for r in running]
    assert launches.count >= 2
    compare(found, expected)


def test_batch_norm_without_weights(launches: HostLaunches) -> None:
    x, grad = draw(3, 5, 11), draw(3, 5, 11, seed=1)
    found = with_gradients(lambda x, _: F.batch_norm(x, training=True) + 0 * _.sum(), dl, [x, x[0, 0]], grad)
    expected = with_gradients(
        lambda x, _: T.batch_norm(x, None, None, training=True) + 0 * _.sum(), torch, [x, x[0, 0]], grad
    )
    assert launches.count >= 2
    compare(found, expected)


@pytest.mark.parametrize("shape", BATCHES, ids=str)
def test_batch_norm_with_running_statistics(shape: Any, launches: HostLaunches) -> None:
    x, mean, var = draw(*shape), draw(shape[1], seed=1), np.abs(draw(shape[1], seed=2))
    operands: Any = [dl.tensor(a, device="cpu") for a in (x, mean, var)]
    poison_memory(x.nbytes)
    compiled, by_numpy = launches.both(lambda: F.batch_norm(*operands))
    np.testing.assert_allclose(compiled, by_numpy, TOLERANCE, TOLERANCE)
    reference = T.batch_norm(torch.tensor(x), torch.tensor(mean), torch.tensor(var))
    np.testing.assert_allclose(compiled, reference.numpy(), TOLERANCE, TOLERANCE)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_layer_and_rms_norm(shape: Any, center: bool, launches: HostLaunches) -> None:
    columns = shape[1]
    arrays = [2 * draw(*shape) + 1, draw(columns, seed=1), draw(columns, seed=2)][: 3 if center else 2]
    grad = draw(*shape, seed=3)
    name = "layer_norm" if center else "rms_norm"
    eps = 1e-3

    def norm(functions: Any) -> Any:
        return lambda x, *of_columns: getattr(functions, name)(x, (columns,), *of_columns, eps=eps)

    found = with_gradients(norm(F), dl, arrays, grad)
    assert launches.count >= 2
    compare(found, with_gradients(norm(T), torch, arrays, grad), scale=4)


@pytest.mark.parametrize(("shape", "groups"), GROUPS, ids=str)
def test_group_norm(shape: Any, groups: int, launches: HostLaunches) -> None:
    arrays = [2 * draw(*shape) + 1, draw(shape[1], seed=1), draw(shape[1], seed=2)]
    grad = draw(*shape, seed=3)
    found = with_gradients(lambda x, w, b: F.group_norm(x, groups, w, b, eps=1e-3), dl, arrays, grad)
    assert launches.count >= 2
    reference = with_gradients(lambda x, w, b: T.group_norm(x, groups, w, b, eps=1e-3), torch, arrays, grad)
    compare(found, reference, scale=4)


def test_statistics_of_large_means() -> None:
    """Differences of large numbers lose no digits, and equal numbers have no variance."""
    x = draw(8, 3, 1009)
    x[:, 0] += 1e4
    x[:, 1] = 123456.7
    mean, var = dl.ops.batch_norm_stats(dl.tensor(x, device="cpu")).numpy()
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mean, wide.mean((0, 2)), 1e-6)
    np.testing.assert_allclose(var, wide.var((0, 2)), 1e-5)
    assert var[1] == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_stay_in_their_channel(value: float, launches: HostLaunches) -> None:
    x = draw(4, 3, 35)
    x[1, 1, 7] = value
    operand = dl.tensor(x, device="cpu")
    for compute in (
        lambda: F.batch_norm(operand, training=True),
        lambda: F.layer_norm(operand, (35,)),
        lambda: F.instance_norm(operand),
    ):
        compiled, by_numpy = launches.both(compute)
        np.testing.assert_array_equal(np.isnan(compiled), np.isnan(by_numpy))
        np.testing.assert_allclose(compiled, by_numpy, TOLERANCE, TOLERANCE)


def test_operands_that_are_not_contiguous(launches: HostLaunches) -> None:
    x, w = draw(33, 5, 7), draw(10, seed=1)
    views = dl.tensor(x, device="cpu").permute(2, 1, 0), dl.tensor(w, device="cpu")[::2]
    same = [v.contiguous() for v in views]
    norms: list[Any] = [
        lambda x, w: F.batch_norm(x, None, None, w, training=True),
        lambda x, w: F.batch_norm(x, w, w * w, w),
        lambda x, w: F.group_norm(x, 5, w),
    ]
    for f in norms:
        before = launches.count
        np.testing.assert_array_equal(f(*views).numpy(), f(*same).numpy())
        assert launches.count >= before + 2


def test_gradients_of_gradients() -> None:
    """Where a gradient is differentiated again, the passes are single ops."""
    x, w, g = draw(5, 3, 4), draw(3, seed=1), draw(5, 3, 4, seed=2)
    a, b = dl.tensor(x, device="cpu").requires_grad_(), torch.tensor(x, requires_grad=True)
    v, u = dl.tensor(w, device="cpu"), torch.tensor(w)
    batch = F.batch_norm(a, None, None, v, training=True), T.batch_norm(b, None, None, u, training=True)
    group = F.group_norm(a, 3, v), T.group_norm(b, 3, u)
    for f, t in (batch, group):
        [first] = dl.autograd.grad((f * dl.tensor(g, device="cpu")).sum(), [a], create_graph=True)
        [second] = dl.autograd.grad((first * first).sum(), [a])
        [first_t] = torch.autograd.grad((t * torch.tensor(g)).sum(), [b], create_graph=True)
        [second_t] = torch.autograd.grad((first_t * first_t).sum(), [b])
        np.testing.assert_allclose(second.numpy(), second_t.numpy(), 1e-3, 1e-4)
