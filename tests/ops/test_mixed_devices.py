"""Operands on different devices: data of the CPU comes along, and what was put there by name does not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.nn import functional as F
from dl4all.ops.core.arguments.mixed_devices import MixedDevices
from dl4all.scheduler.device.name import cpu_use

pytestmark = pytest.mark.vulkan
PLACE = "vulkan:0"
RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    dl.fallback.reset()
    dl.ones(1, device=PLACE)
    yield
    dl.fallback.reset()


def floats(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return RNG.standard_normal(shape).astype(np.float32)


def came() -> dict[str, int]:
    return {row.op: row.calls for row in dl.fallback.report() if row.reason == "data came from the CPU"}


W = floats(4, 3)
CASES: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "linear": (lambda x, w: F.linear(x, w.T), (5, 4)),
    "matmul": (lambda x, w: x @ w, (5, 4)),
    "add": (lambda x, w: x + w, (4, 3)),
    "reflected": (lambda x, w: w - x, (1, 3)),
    "where": (lambda x, w: dl.where(x > 0, w, x), (4, 3)),
    "cat": (lambda x, w: dl.cat([x, w]), (2, 3)),
    "stack": (lambda x, w: dl.stack([w, x]), (4, 3)),
    "mse": (lambda x, w: F.mse_loss(w, x), (4, 3)),
    "prepared on the CPU": (lambda x, w: (x - x.mean()) / x.std() @ w, (5, 4)),
    "a view": (lambda x, w: x[1:, ::2].T @ w[:1], (2, 8)),
    "rows": (lambda x, w: x[dl.from_numpy(np.array([2, 0]))] @ w, (5, 4)),
    "shuffled": (lambda x, w: dl.stack([x[2], x[0]]) @ w, (5, 4)),
    "a dtype": (lambda x, w: x.double().float() @ w, (5, 4)),
    "state like it": (lambda x, w: dl.zeros_like(x) @ w + x.new_ones(5, 4) @ w, (5, 4)),
    "hypot": (lambda x, w: dl.hypot(x, w), (4, 3)),
}


@pytest.mark.parametrize("case", CASES)
def test_data_comes_along(case: str) -> None:
    function, shape = CASES[case]
    data = floats(*shape)
    expected = function(dl.from_numpy(data), dl.from_numpy(W))
    found = function(dl.from_numpy(data), dl.tensor(W, device=PLACE))
    assert found.device == PLACE
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert sum(came().values()) >= 1


def test_writes_take_it_along() -> None:
    target, data = dl.zeros(4, 3, device=PLACE), dl.from_numpy(W)
    target[0] = data[0]
    target[dl.tensor([1, 2], device=PLACE)] = data[1:3]
    target[3:] += data[3:]
    assert target.device == PLACE
    np.testing.assert_array_equal(target.numpy(), W)
    with pytest.raises(MixedDevices):  # what is written to stays where it is
        data.add_(target)


def test_gradients_flow_to_the_device() -> None:
    w = dl.tensor(W, device=PLACE, requires_grad=True)
    x = floats(5, 4)
    (dl.from_numpy(x) @ w).sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), x.sum(0)[:, None].repeat(3, 1), rtol=1e-5)


def test_a_compiled_function_takes_it_along() -> None:
    net = dl.nn.Linear(4, 3).to(PLACE)
    compiled = dl.compile(lambda x: net(x).tanh())
    for _ in range(4):
        x = floats(5, 4)
        found = compiled(dl.from_numpy(x))
        assert found.device == PLACE
        np.testing.assert_allclose(
            found.detach().numpy(), net(dl.tensor(x, device=PLACE)).tanh().detach().numpy(), rtol=1e-5
        )
    assert compiled.specializations


def test_a_compiled_function_follows_a_network_that_moves() -> None:
    net = dl.nn.Linear(4, 3).to(PLACE)
    compiled = dl.compile(lambda x: net(x).tanh())
    for place in (PLACE, "cpu", PLACE):
        net.to(place)
        for _ in range(4):
            x = floats(5, 4)
            found = compiled(dl.from_numpy(x))
            assert found.device == place
            np.testing.assert_allclose(
                found.detach().numpy(),
                net(dl.tensor(x, device=place)).tanh().detach().numpy(),
                rtol=1e-5,
                atol=1e-6,
            )


def test_batches_of_a_loader_come_along_unless_it_was_told_where() -> None:
    data, net = dl.data.TensorDataset(floats(6, 4)), dl.nn.Linear(4, 3).to(PLACE)
    for batch in dl.data.DataLoader(data, 3):
        (x,) = batch
        assert x.device == "cpu"
        assert net(x).device == PLACE
    [(x,)] = dl.data.DataLoader(data, 6, device="cpu")
    with pytest.raises(MixedDevices):
        net(x)


def by_text() -> Any:
    return dl.ones(4, 3, device="cpu")


def by_method() -> Any:
    return dl.from_numpy(W).cpu()


def by_object() -> Any:
    return dl.ones(4, 3, device=dl.device("cpu"))


def by_block() -> Any:
    with dl.device("cpu"):
        return dl.ones(4, 3)


def moved() -> Any:
    return dl.ones(4, 3, device=PLACE).to("cpu")


def computed() -> Any:
    return by_text() * 2


def random() -> Any:
    return dl.rand(4, 3, device="cpu")


def with_history() -> Any:
    return dl.from_numpy(W).requires_grad_()


def buffer() -> Any:
    return dl.nn.BatchNorm1d(3).to("cpu").running_mean


@pytest.mark.parametrize(
    "make", [by_text, by_method, by_object, by_block, moved, computed, random, with_history, buffer]
)
def test_what_was_put_on_the_cpu_by_name_stays(make: Callable[[], Any]) -> None:
    with pytest.raises(MixedDevices, match=r"\[add\] operands live on different devices.*\.to\('vulkan:0'\)"):
        make() + dl.ones(4, 3, device=PLACE)
    assert not came()


def test_the_device_of_data_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the program asks for ``dl.device("cpu")``."""
    monkeypatch.setattr(cpu_use, "is_named", False)
    data = dl.from_numpy(W)
    state = dl.zeros(4, 3, device=data.device)
    assert (state + dl.ones(4, 3, device=PLACE)).device == PLACE


def test_it_may_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_MIXED", "error")
    with pytest.raises(MixedDevices, match=r"by DL4ALL_MIXED nothing comes along; .*\.to\('vulkan:0'\)"):
        dl.from_numpy(W) + dl.ones(4, 3, device=PLACE)


def test_it_is_named_once_a_line(caplog: pytest.LogCaptureFixture) -> None:
    w = dl.ones(4, 3, device=PLACE)
    with caplog.at_level(logging.WARNING, "dl4all"):
        for _ in range(3):
            dl.from_numpy(W) + w
    [line] = [record.message for record in caplog.records]
    assert line.startswith(f"[add] data that lies on the CPU comes along to vulkan:0 (called at {__file__}:")
    assert came() == {"add": 3}
    [row] = dl.fallback.report()
    assert row.bytes_up == 3 * W.nbytes
