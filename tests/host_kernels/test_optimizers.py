"""Compiled steps of optimizers beside NumPy's: the same bits, whatever is a parameter, and by one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.optim.step.gradient_scale import unscale
from dl4all.runtime.cpu.llvm import provider
from dl4all.scheduler.monitor.counters import forget_plans
from tests.support.host_launches import HostLaunches

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

SHAPES = [(7, 5), (), (3, 1, 11), (40_009,), (16,), (31,), (130, 17)]
ACROSS = (0, 2, 6)  # parameters whose gradients are not contiguous
EXTREMES = [np.inf, -np.inf, np.nan, 1e20, -1e20, 3e38, 1e-20, 1e-30, -1e-45, 0.0, -0.0]
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: dl.optim.SGD(p, lr=0.1),
    "decayed SGD": lambda p: dl.optim.SGD(p, lr=0.1, weight_decay=0.1, maximize=True),
    "momentum": lambda p: dl.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    "Nesterov": lambda p: dl.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: dl.optim.Adam(p, lr=0.01),
    "AMSGrad": lambda p: dl.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda p: dl.optim.AdamW(p, lr=0.01, weight_decay=0.3, maximize=True),
    "Adagrad": lambda p: dl.optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.1),
    "Adadelta": lambda p: dl.optim.Adadelta(p, weight_decay=0.1),
    "RMSprop": lambda p: dl.optim.RMSprop(p, lr=0.01, weight_decay=0.1),
    "centered": lambda p: dl.optim.RMSprop(p, lr=0.01, centered=True),
    "centered momentum": lambda p: dl.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    "Lion": lambda p: dl.optim.Lion(p, lr=0.01, weight_decay=0.1, maximize=True),
}


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> HostLaunches:
    return HostLaunches(monkeypatch)


def arrays(seed: int, dtype: str) -> list[Any]:
    rng = np.random.default_rng([20, seed])
    return [np.asarray(rng.standard_normal(shape), dtype) for shape in SHAPES]


def tensors(values: list[Any]) -> list[Any]:
    return [dl.tensor(value, device="cpu") for value in values]


def give(params: list[Any], seed: int) -> None:
    """Gradients, some of them not contiguous, and some infinite."""
    for number, (p, g) in enumerate(zip(params, arrays(seed, str(params[0].dtype)), strict=True)):
        if number == 3:
            g[: len(EXTREMES)] = EXTREMES
        p.grad = dl.tensor(g, device="cpu")
        if number in ACROSS:
            p.grad = dl.tensor(np.ascontiguousarray(g.T), device="cpu").permute(*reversed(range(g.ndim)))


def after(make: Callable[[Any], Any], dtype: str, launches: HostLaunches) -> list[Any]:
    """Parameters and states after some steps; a step is one call, after copies."""
    params = [p.requires_grad_() for p in tensors(arrays(0, dtype))]
    optimizer = make(params)
    for step in range(4):
        give(params, 1 + step)
        count = launches.count
        optimizer.step()
        if step:  # the first one makes the state
            assert launches.count - count == (1 + len(ACROSS)) * provider.enabled
    states = [v.numpy() for p in params for v in optimizer.state[p].values() if isinstance(v, dl.Tensor)]
    return [*(p.detach().numpy().copy() for p in params), *states]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_same_bits_as_numpy(
    make: Callable[[Any], Any], dtype: str, launches: HostLaunches, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = after(make, dtype, launches)
    monkeypatch.setattr(provider, "enabled", False)
    forget_plans()
    expected = after(make, dtype, launches)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_other_floats_and_layouts_are_left_to_numpy(launches: HostLaunches) -> None:
    half = dl.tensor(arrays(0, "float16")[0], device="cpu").requires_grad_()
    across = dl.tensor(arrays(1, "float32")[0], device="cpu").T.requires_grad_()
    before = across.detach().numpy().copy()
    for p in (half, across):
        p.grad = dl.full(p.shape, 0.5, dtype=str(p.dtype), device="cpu")
    count = launches.count
    dl.optim.SGD([half, across], lr=1.0).step()
    assert launches.count == count
    np.testing.assert_allclose(across.detach().numpy(), before - 0.5)


def test_a_step_follows_what_changed(launches: HostLaunches) -> None:
    """Options, states, memory and gradients may be others each time."""
    params = [p.requires_grad_() for p in tensors(arrays(0, "float32"))]
    others = [p.requires_grad_() for p in tensors(arrays(0, "float32"))]
    optimizer, singles = dl.optim.Adam(params, lr=0.1), [dl.optim.Adam([p], lr=0.1) for p in others]

    def change(number: int) -> None:
        for one, group in [(o, g) for o in (optimizer, *singles) for g in o.param_groups]:
            if number == 2:
                group["lr"] = 0.3
            if number == 4:
                group["amsgrad"] = True
            if number == 6:
                for p in group["params"]:
                    one.state[p]["exp_avg"] = one.state[p]["exp_avg"] * 2.0
            if number == 8:
                one.load_state_dict(one.state_dict())

    for number in range(10):
        change(number)
        for group in (params, others):
            give(group, number)
            if number in (5, 6):
                group[1].grad = None
        optimizer.step()
        for single in singles:
            single.step()
    for p, other in zip(params, others, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), other.detach().numpy())
    assert optimizer.state[params[1]]["step"] == 8


def test_the_average_of_parameters(launches: HostLaunches, monkeypatch: pytest.MonkeyPatch) -> None:
    def averages() -> list[Any]:
        params = tensors(arrays(0, "float32"))
        ema = dl.optim.EMA(params, decay=0.7)
        for step in range(3):
            for p, value in zip(params, arrays(5 + step, "float32"), strict=True):
                p.copy_(dl.tensor(value, device="cpu"))
            count = launches.count
            ema.update()
            assert launches.count == count + provider.enabled
        return [mean.numpy().copy() for mean in ema.shadow]

    found = averages()
    monkeypatch.setattr(provider, "enabled", False)
    forget_plans()
    for one, other in zip(found, averages(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("max_norm", [0.5, 1e9])
def test_clipping_by_norm(max_norm: float, launches: HostLaunches) -> None:
    params, values = tensors(arrays(0, "float32")), arrays(3, "float32")
    for p, value in zip(params, values, strict=True):
        p.grad = dl.tensor(value, device="cpu")
    norm = np.sqrt(sum(np.square(value, dtype=np.float64).sum() for value in values))
    count = launches.count
    found = dl.nn.utils.clip_grad_norm_(params, max_norm)
    assert launches.count - count >= 2
    np.testing.assert_allclose(found.item(), norm, rtol=1e-6)
    for p, value in zip(params, values, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), value * min(max_norm / (norm + 1e-6), 1.0), rtol=1e-6)


@pytest.mark.parametrize("special", [None, np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 17, 40_008])
def test_unscaling(special: float | None, place: int, launches: HostLaunches) -> None:
    values = arrays(4, "float32")
    if special is not None:
        values[3][place] = special
    gradients, found = tensors(values), dl.tensor(0.0, device="cpu")
    count = launches.count
    unscale(gradients, dl.tensor(0.25, device="cpu"), found)
    assert launches.count == count + 1
    assert found.item() == float(special is not None)
    for gradient, value in zip(gradients, values, strict=True):
        np.testing.assert_array_equal(gradient.numpy(), value * np.float32(0.25))
