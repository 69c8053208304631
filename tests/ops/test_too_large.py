"""Tensors of more bytes than a device's kernels can bind: the host computes, and the result is the same."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import TooLargeError
from dl4all.ops.core.op import Example, Op
from dl4all.scheduler import fallback
from tests.conftest import run_python
from tests.support.operands import LAYOUTS, compare, operands_of, reference
from tests.support.subcases import each_example

F = dl.nn.functional
BOUND = 16  # bytes that the device binds here
pytestmark = pytest.mark.vulkan


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[dl.Device]:
    """A device that binds next to nothing."""
    device = dl.device("vulkan:0")
    limits = dataclasses.replace(device.info.limits, storage_buffer_range=BOUND)
    monkeypatch.setattr(device, "info", dataclasses.replace(device.info, limits=limits))
    fallback.reset()
    yield device
    fallback.reset()


@pytest.mark.sampled(3)
@each_example("layout", ["contiguous", "strided"], most=4)
def test_every_op(op: Op[...], case: Example, layout: str, small: dl.Device) -> None:
    tensors, elements = operands_of(op, case, LAYOUTS[layout], small)
    arguments = dict(case.arguments)
    compare(op(*tensors, **arguments), reference(op, list(elements), **arguments))


def test_it_is_said_once(small: dl.Device, caplog: pytest.LogCaptureFixture) -> None:
    x = dl.tensor([1.0, 2.0, 3.0, 4.0, 5.0], device=small)
    with caplog.at_level(logging.WARNING, "dl4all"):
        assert (x + x + x).tolist() == [3.0, 6.0, 9.0, 12.0, 15.0]
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith(
        "[add] cannot run on vulkan:0 and runs on the CPU: [elementwise/binary.comp] an operand of 20 bytes"
    )
    assert isinstance(TooLargeError("x"), ValueError)


def results(device: Any) -> list[np.ndarray[Any, Any]]:
    """Changes in place, random numbers, gradients and steps."""
    dl.manual_seed(3)
    found = []
    x = dl.randn(7, 5, device=device)
    x += 2
    x[1:3, ::2] = 7
    x[[0, 4]] *= 0.5
    x.clamp_(-1, 3)
    found += [x, dl.rand(9, device=device), dl.bernoulli(dl.full((11,), 0.4, device=device))]
    net = dl.nn.Sequential(dl.nn.Linear(5, 9), dl.nn.ReLU(), dl.nn.Dropout(0.3), dl.nn.Linear(9, 3)).to(
        device
    )
    for optimizer in (
        dl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True),
        dl.optim.AdamW(net.parameters(), lr=0.1),
    ):
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), dl.tensor([0, 1, 2, 0, 1, 2, 0], device=device))
            loss.backward()
            dl.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
        found.append(loss.detach())
    return [tensor.numpy() for tensor in (*found, *(p.detach() for p in net.parameters()))]


def test_training(small: dl.Device) -> None:
    for found, expected in zip(results(small), results("cpu"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_more_than_llvmpipe_binds(device: str) -> None:
    """One that is truly too large there: 128 MiB and a little, in a process with room for five of them."""
    done = run_python(f"""
import numpy as np
import dl4all as dl

size = 2**25 + 1
values = np.arange(size, dtype=np.float32) % 1021
x = dl.tensor(values, device={device!r})
np.testing.assert_array_equal(x.numpy(), values)
assert x[-3:].tolist() == values[-3:].tolist()
assert (x * 2)[-1].item() == 2 * values[-1]
x[size - 2] = -5.0
assert x[-3:].tolist() == [values[-3], -5.0, values[-1]]
print("right")
""")
    assert done.stdout == "right\n", done.stderr
