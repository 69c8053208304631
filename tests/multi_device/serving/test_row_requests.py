"""Requests of several rows, requests that expire, callbacks, and a queue without room."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import (
    ArgumentError,
    CancelledError,
    InferenceTimeoutError,
    OutOfMemoryError,
    QueueFullError,
    ShapeError,
)
from dl4all.multi_device.serving.request import Request
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup
from tests.conftest import need

pytestmark = pytest.mark.usefixtures("deadline")


class Seen:
    """All copies of a model have the same one."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.open = threading.Event()
        self.open.set()


class Doubled(dl.nn.Module):
    """Doubles its input; notes how many rows each call had, and waits where it is held up."""

    def __init__(self, most: int = 1 << 20) -> None:
        super().__init__()
        self.most = most
        self.seen = Seen()

    def forward(self, x: dl.Tensor) -> dict[str, Any]:
        self.seen.calls.append(x.shape[0])
        assert self.seen.open.wait(30)
        if x.shape[0] > self.most:
            raise OutOfMemoryError(f"[test] {x.shape[0]} do not fit")
        return {"twice": x * 2, "parts": (x + 1, [x.sum(1)])}


def numbers(rows: int, columns: int = 3) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)


def queue_of(model: dl.nn.Module, *devices: str | Device, **options: Any) -> dl.InferenceQueue:
    return dl.InferenceQueue(model, DeviceGroup(devices or ["cpu"]), **options)


def check(request: Request, x: np.ndarray[Any, Any]) -> None:
    result = request.result(timeout=30)
    np.testing.assert_array_equal(result["twice"].numpy(), x * 2)
    np.testing.assert_array_equal(result["parts"][0].numpy(), x + 1)
    np.testing.assert_allclose(result["parts"][1][0].numpy(), x.sum(1), rtol=1e-5, atol=1e-6)


def held_up(model: Doubled, queue: dl.InferenceQueue) -> Request:
    """A request that a device computes until ``seen.open`` is set."""
    model.seen.open.clear()
    request = queue.submit(numbers(1)[0])
    while request.state != "running":
        time.sleep(0.001)
    return request


@pytest.mark.vulkan
@pytest.mark.parametrize("device", ["cpu", "vulkan:0", "simulated"])
@pytest.mark.parametrize("rows", [1, 3, 8, 9, 24, 29])
@pytest.mark.parametrize("compile", [False, True])
def test_rows_come_back_together(device: str, rows: int, compile: bool) -> None:
    if device != "simulated":
        need(device)
    x = numbers(rows)
    model: dl.nn.Module = dl.nn.Linear(3, 2, device="cpu") if compile else Doubled()
    with queue_of(
        model, simulated_device() if device == "simulated" else device, max_batch=8, compile=compile
    ) as queue:
        for _ in range(4 if compile else 1):
            made = queue.submit_batch(x)
            if not compile:
                check(made, x)
                continue
            expected = model(dl.from_numpy(x)).detach().numpy()
            np.testing.assert_allclose(made.result(timeout=30).numpy(), expected, rtol=1e-5, atol=1e-6)
    stats = queue.stats()
    assert sum(size * count for size, count in stats.batch_sizes.items()) == rows * (4 if compile else 1)
    assert max(stats.batch_sizes) <= 8


def test_requests_share_a_batch_and_are_split_only_where_they_exceed_one() -> None:
    model = Doubled()
    with queue_of(model, max_batch=8, max_wait=0.0) as queue:
        first = held_up(model, queue)
        sizes = (3, 4, 2, 6, 1, 8, 20)
        made = [queue.submit_batch(numbers(rows)) for rows in sizes]
        assert len(queue) == sum(sizes)
        model.seen.open.set()
        for rows, each in zip(sizes, made, strict=True):
            check(each, numbers(rows))
        first.result(timeout=30)
    # a request that does not fit begins the next batch, and nothing waits behind it for a smaller one
    assert model.seen.calls == [1, 7, 8, 1, 8, 8, 8, 4]


def test_single_inputs_and_rows_share_batches() -> None:
    model = Doubled()
    with queue_of(model, max_batch=8, max_wait=0.0) as queue:
        held_up(model, queue)
        one, several, row = (
            queue.submit(numbers(5)[0]),
            queue.submit_batch(numbers(3)),
            queue.submit_batch(numbers(1)),
        )
        model.seen.open.set()
        assert one.result(timeout=30)["twice"].shape == (3,)
        check(several, numbers(3))
        check(row, numbers(1))
    assert model.seen.calls == [1, 5]


def test_a_large_request_is_spread_over_devices() -> None:
    class Slow(dl.nn.Module):
        devices: set[str] = set()  # noqa: RUF012  # of all copies

        def forward(self, x: dl.Tensor) -> dl.Tensor:
            self.devices.add(str(x.device))
            time.sleep(0.02)
            return x

    with queue_of(Slow(), "cpu", "cpu#1", max_batch=4) as queue:
        x = numbers(32)
        np.testing.assert_array_equal(queue.submit_batch(x).result(timeout=30).numpy(), x)
    assert Slow.devices == {"cpu", "cpu#1"}


def test_rows_that_do_not_fit_into_memory_are_computed_piece_by_piece() -> None:
    model = Doubled(most=3)
    with queue_of(model, max_batch=16) as queue:
        check(queue.submit_batch(numbers(13)), numbers(13))
        check(queue.submit_batch(numbers(5)), numbers(5))
    assert max(model.seen.calls[-2:]) <= 3
    none = Doubled(most=0)
    with queue_of(none, max_batch=4) as queue, pytest.raises(OutOfMemoryError):
        queue.submit_batch(numbers(3)).result(timeout=30)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ([], ArgumentError, "expected the model's inputs"),
        ([np.float32(1)], ShapeError, "same number of rows"),
        ([np.zeros((0, 3), np.float32)], ShapeError, "at least 1"),
        ([numbers(2), numbers(3)], ShapeError, r"the shapes \(2, 3\), \(3, 3\)"),
        ([numbers(65)], ArgumentError, "65 rows never fit into a queue of 64"),
    ],
)
def test_unusable_batches_are_refused(inputs: list[Any], error: type[Exception], message: str) -> None:
    with queue_of(Doubled(), limit=64) as queue:
        with pytest.raises(error, match=rf"\[InferenceQueue\] .*{message}"):
            queue.submit_batch(*inputs)
        assert len(queue) == 0


def test_without_room_a_request_is_refused_at_once_and_leaves_nothing() -> None:
    model = Doubled()
    with queue_of(model, max_batch=4, max_wait=0.0, limit=10) as queue:
        first = held_up(model, queue)
        waiting = queue.submit_batch(numbers(7))
        for rows in (4, 9):  # the second one would be split
            with pytest.raises(QueueFullError, match="no room"):
                queue.submit_batch(numbers(rows), timeout=0)
        assert len(queue) == 7
        last = queue.submit_batch(numbers(3), timeout=0)
        assert len(queue) == 10
        model.seen.open.set()
        check(waiting, numbers(7))
        check(last, numbers(3))
        first.result(timeout=30)


@pytest.mark.parametrize("rows", [1, 9])
def test_expired_requests_are_not_computed(rows: int) -> None:
    model = Doubled()
    with queue_of(model, max_batch=4, max_wait=0.0, limit=16) as queue:
        first = held_up(model, queue)
        late = queue.submit_batch(numbers(rows), expires=0.02)
        patient = queue.submit_batch(numbers(2), expires=60.0)
        with pytest.raises(InferenceTimeoutError, match=r"within 0\.02 seconds"):
            late.result(timeout=30)  # while the device is busy: nobody has to come by
        while len(queue) > 2:  # its rows leave just after
            time.sleep(0.001)
        model.seen.open.set()
        check(patient, numbers(2))
        first.result(timeout=30)
    assert model.seen.calls == [1, 2]


def test_requests_expire_on_the_virtual_clock() -> None:
    with queue_of(dl.nn.Linear(64, 64), simulated_device(gflops=0.001), max_batch=1) as queue:
        x = numbers(64, 64)
        made = [queue.submit(row, expires=0.05) for row in x]
        states = [request.wait() and request.state for request in made]
    assert {*states} == {"finished", "failed"}
    assert states == sorted(states, reverse=True)  # those that came first were computed


@pytest.mark.parametrize("rows", [2, 9])
def test_cancelled_rows_leave_the_queue(rows: int) -> None:
    model = Doubled()
    with queue_of(model, max_batch=4, max_wait=0.0) as queue:
        held_up(model, queue)
        request = queue.submit_batch(numbers(rows))
        assert request.cancel()
        assert len(queue) == 0
        with pytest.raises(CancelledError):
            request.result(timeout=30)
        model.seen.open.set()
    assert model.seen.calls == [1]


def test_callbacks_are_called_once_with_the_state(caplog: pytest.LogCaptureFixture) -> None:
    def states_of(request: Request, seen: list[str]) -> Callable[[Request], None]:
        def note(ended: Request) -> None:
            assert ended is request
            seen.append(ended.state)
            if len(seen) == 2:
                raise ValueError("a mistake")

        return note

    model = Doubled()
    seen: list[str] = []
    with queue_of(model, max_batch=4, max_wait=0.0) as queue:
        held_up(model, queue)
        finished, cancelled = queue.submit_batch(numbers(9)), queue.submit_batch(numbers(1))
        for request in (finished, cancelled):
            request.add_done_callback(states_of(request, seen))
        assert seen == []
        cancelled.cancel()
        model.seen.open.set()
        check(finished, numbers(9))
        while len(seen) < 2:
            time.sleep(0.001)
        finished.add_done_callback(states_of(finished, seen))  # it is done already
    assert seen == ["cancelled", "finished", "finished"]
    assert "a callback of <task request finished> failed" in caplog.text


def test_a_part_that_fails_fails_the_whole() -> None:
    class Refusing(dl.nn.Module):
        def forward(self, x: dl.Tensor) -> dl.Tensor:
            if bool((x == 13.0).any().item()):
                raise ArgumentError("[test] refuses 13")
            return x

    x = numbers(12)
    x[6, 1] = 13.0
    with queue_of(Refusing(), max_batch=4) as queue:
        with pytest.raises(ArgumentError, match="refuses 13"):
            queue.submit_batch(x).result(timeout=30)
        assert queue.submit_batch(x[:6]).result(timeout=30).shape == (6, 3)
