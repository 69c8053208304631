"""The moving average of parameters: values, state, and exact restoration of the parameters."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.graph.tracing.trace import Tracer, run
from dl4all.optim import EMA
from dl4all.scheduler.listeners import capture
from tests.support.operands import generator

SHAPES = ((7, 5), (13,), (), (0, 3), (1031,))


def numbers(step: int, dtype: str = "float32") -> list[np.ndarray[Any, Any]]:
    rng = generator("ema", step)
    return [np.asarray(rng.standard_normal(shape), dtype) for shape in SHAPES]


def change(params: Sequence[dl.Tensor], step: int) -> None:
    for p, values in zip(params, numbers(step, str(params[0].dtype)), strict=True):
        p.storage = dl.tensor(values, device=p.device).storage


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values(device: str, dtype: str) -> None:
    params = [dl.tensor(a, device=device) for a in numbers(0, dtype)]
    ema = EMA(params, decay=0.9)
    expected = [a.astype(np.float64) for a in numbers(0, dtype)]
    for step in range(1, 10):
        change(params, step)
        ema.update()
        expected = [0.9 * old + 0.1 * new for old, new in zip(expected, numbers(step, dtype), strict=True)]
    tolerance = 1e-6 if dtype == "float32" else 1e-14
    for mean, want in zip(ema.shadow, expected, strict=True):
        np.testing.assert_allclose(mean.numpy(), want, rtol=tolerance, atol=tolerance)
    assert ema.updates == 9


def test_a_replay_counts_updates() -> None:
    x = dl.tensor([1.0, 2.0], device="vulkan:0")
    ema = EMA([x])
    tracer = Tracer(x.device)
    with capture.lock:
        run(tracer, ema.update)
    [again] = tracer.again
    again()
    assert ema.updates == 2
    assert "updates" not in vars(ema)
    copied = pickle.loads(pickle.dumps(ema))
    assert copied.updates == 2
    assert copied.shadow[0].tolist() == [1.0, 2.0]


def test_parameters_are_restored_exactly(device: str) -> None:
    params = [dl.nn.Parameter(dl.tensor(a, device=device)) for a in numbers(0)]
    before = [(p.storage, p.storage.version) for p in params]
    ema = EMA(params, decay=0.0)
    change(params, 1)
    ema.update()
    change(params, 2)

    def fail_within() -> None:
        with ema.averaged():
            for p, mean in zip(params, ema.shadow, strict=True):
                np.testing.assert_array_equal(p.detach().numpy(), mean.numpy())
                assert p.storage is not mean.storage
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail_within()
    for p, values, (_, version) in zip(params, numbers(2), before, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), values)
        assert p.storage.version > version or 0 in p.shape


def test_states(device: str) -> None:
    params = [dl.tensor(a, device=device) for a in numbers(0)]
    ema = EMA(params, decay=0.7)
    change(params, 1)
    ema.update()
    again = EMA(params)
    again.load_state_dict(ema.state_dict())
    change(params, 2)
    for one in (ema, again):
        one.update()
    assert (again.decay, again.updates) == (0.7, 2)
    for mean, other in zip(ema.shadow, again.shadow, strict=True):
        np.testing.assert_array_equal(mean.numpy(), other.numpy())
        assert mean.storage is not other.storage


def test_average_moves_with_its_network(device: str) -> None:
    net = dl.nn.Linear(3, 2)
    ema = EMA(net.parameters(), decay=0.5)
    before = net.weight.detach().numpy().copy()
    net.to(device)
    dl.nn.init.zeros_(net.weight)
    ema.update()
    ema.copy_to()
    assert str(net.weight.device) == device
    np.testing.assert_allclose(net.weight.detach().numpy(), before / 2, rtol=1e-6)


def test_refusals() -> None:
    w = dl.tensor([1.0], device="cpu")
    with pytest.raises(ArgumentError, match=r"a decay from 0 to 1, got 1\.5"):
        EMA([w], 1.5)
    with pytest.raises(ArgumentError, match="got no parameters"):
        EMA([])
    with pytest.raises(ArgumentError, match=r"shapes \[\(1,\)\], the state's \[\(2,\)\]"):
        EMA([w]).load_state_dict(EMA([dl.zeros(2, device="cpu")]).state_dict())
