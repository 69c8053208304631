"""Inference queues: right outputs, order, room, errors, failing devices, and throughput."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import (
    ArgumentError,
    CancelledError,
    DeviceError,
    DTypeError,
    OutOfMemoryError,
    ShapeError,
)
from dl4all.multi_device.serving.request import Request
from dl4all.runtime import threads
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.description import Failure
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup
from tests.conftest import need

pytestmark = pytest.mark.usefixtures("deadline")


def network() -> dl.nn.Module:
    return dl.nn.Sequential(dl.nn.Linear(6, 8), dl.nn.BatchNorm1d(8), dl.nn.GELU(), dl.nn.Linear(8, 3))


def inputs(count: int, size: int = 6) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(count).standard_normal((count, size)).astype(np.float32)


class Counting(dl.nn.Module):
    """Doubles its input; notes the sizes of batches and where; may be held up, and may refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = dl.nn.Parameter(dl.tensor([2.0], device="cpu"))
        self.seen = Seen()

    def forward(self, x: Any) -> Any:
        return self.seen.look(x * self.weight)


class Seen:
    """What all copies of a model share."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, str]] = []
        self.opened = threading.Event()
        self.opened.set()
        self.most: int | None = None

    def look(self, y: dl.Tensor) -> dl.Tensor:
        self.batches.append((y.shape[0], str(y.device)))
        assert self.opened.wait(30)
        if self.most is not None and y.shape[0] > self.most:
            raise OutOfMemoryError(f"[test] {y.shape[0]} do not fit")
        if bool((y == 26.0).any().item()):
            raise ArgumentError("[test] refuses 13")
        return y


# Outputs


def groups() -> list[list[str]]:
    return [["cpu"], ["cpu", "cpu#1"], ["vulkan:0", "cpu"], ["simulated", "simulated"], ["cpu", "simulated"]]


def group_of(names: list[str], **facts: Any) -> DeviceGroup:
    for name in names:
        if name != "simulated":
            need(name)
    return DeviceGroup([simulated_device(**facts) if name == "simulated" else name for name in names])


@pytest.mark.vulkan
@pytest.mark.parametrize("names", groups(), ids=" ".join)
def test_outputs_are_those_of_the_model_row_by_row(names: list[str]) -> None:
    model = network().to("cpu")
    model(dl.from_numpy(inputs(64)))  # moves the statistics of the norm
    x = inputs(45)
    with dl.InferenceQueue(model, group_of(names), max_batch=8) as queue:
        requests = [queue.submit(row) for row in x]
        got = [request.result(timeout=30) for request in requests]
        stats = queue.stats()
    assert model.training  # as it was
    model.eval()
    for row, output in zip(x, got, strict=True):
        assert output.device == dl.device("cpu")
        np.testing.assert_allclose(
            output.numpy(), model(dl.from_numpy(row[None])).numpy()[0], rtol=2e-5, atol=2e-6
        )
    assert stats.requests == 45
    assert 6 <= stats.batches <= 45
    assert stats.mean_batch == 45 / stats.batches
    assert sum(stats.shares.values()) == pytest.approx(1.0)
    assert 0 < stats.latency[50] <= stats.latency[95] <= stats.latency[99]


def test_several_inputs_and_outputs() -> None:
    class Both(dl.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return {"sum": a + b, "rest": (a - b, a.sum(dim=(1, 2)))}

    with dl.InferenceQueue(Both(), DeviceGroup(["cpu"]), max_batch=4) as queue:
        for i in range(6):
            a, b = np.full((2, 3), float(i)), dl.full((3,), 1.0, dtype="float64", device="cpu")
            output = queue.submit(a, b).result(timeout=30)
            assert output["sum"].tolist() == [[i + 1.0] * 3] * 2
            assert output["rest"][0].tolist() == [[i - 1.0] * 3] * 2
            assert output["rest"][1].item() == 6.0 * i


def test_the_copies_do_not_follow_the_model() -> None:
    model = Counting()
    with dl.InferenceQueue(model, DeviceGroup(["cpu"])) as queue:
        dl.nn.init.zeros_(model.weight)
        assert queue.submit([1.0]).result(timeout=30).tolist() == [2.0]
        assert not queue.submit([1.0]).result().requires_grad


def test_inputs_may_be_changed_at_once() -> None:
    model = Counting()
    with dl.InferenceQueue(model, DeviceGroup(["cpu"])) as queue:
        x = np.ones(2, np.float32)
        request = queue.submit(x)
        x[...] = 5.0
        assert request.result(timeout=30).tolist() == [2.0, 2.0]


# Batches


def test_batches_are_no_larger_than_asked_and_in_order() -> None:
    model = Counting()
    with dl.InferenceQueue(model, DeviceGroup(["cpu"]), max_batch=8, max_wait=60.0) as queue:
        model.seen.opened.clear()
        requests = [queue.submit([float(i)]) for i in range(8)]
        while not model.seen.batches:
            time.sleep(0.001)
        requests += [queue.submit([i + 0.5]) for i in range(8, 24)]
        requests.append(queue.submit([1.0, 2.0]))  # of another shape
        assert len(queue) == queue.stats().waiting == 17
        model.seen.opened.set()
        queue.close()
    assert [size for size, _ in model.seen.batches] == [8, 8, 8, 1]
    assert [r.result().tolist()[0] for r in requests[:8]] == [2.0 * i for i in range(8)]
    assert [r.result().tolist()[0] for r in requests[8:24]] == [2.0 * i + 1.0 for i in range(8, 24)]
    ends = [request.ended for request in requests]
    assert ends == sorted(ends)


def test_a_batch_that_is_not_full_goes_after_its_time() -> None:
    model = Counting()
    with dl.InferenceQueue(model, DeviceGroup(["cpu"]), max_batch=8, max_wait=0.05) as queue:
        begun = time.perf_counter()
        requests = [queue.submit([float(i)]) for i in range(3)]
        assert requests[0].result(timeout=30).tolist() == [0.0]
        assert time.perf_counter() - begun >= 0.05
    assert sum(size for size, _ in model.seen.batches) == 3


def test_map_keeps_the_order_and_is_not_far_ahead() -> None:
    model = Counting()
    taken = []

    def numbers() -> Any:
        for i in range(200):
            taken.append(i)
            yield [float(i)] if i % 2 else ([float(i)],)

    model_of = dl.InferenceQueue(Quiet(model), DeviceGroup(["cpu", "cpu#1"]), max_batch=4, limit=3)
    with model_of as queue:
        outputs = queue.map(numbers())
        assert next(outputs).tolist() == [0.0]
        assert len(taken) <= 16
        assert [next(outputs).tolist()[0] for _ in range(99)] == [2.0 * i for i in range(1, 100)]
        assert len(taken) <= 116
        outputs.close()  # type: ignore[attr-defined]
        assert list(queue.map([])) == []


class Quiet(dl.nn.Module):
    """Another model without its observer."""

    def __init__(self, model: Counting) -> None:
        super().__init__()
        self.weight = model.weight

    def forward(self, x: Any) -> Any:
        return x * self.weight


# Room


def test_submit_waits_for_room() -> None:
    model = Counting()
    queue = dl.InferenceQueue(model, DeviceGroup(["cpu"]), max_batch=2, max_wait=0.0, limit=3)
    model.seen.opened.clear()
    requests = [queue.submit([1.0])]
    while not model.seen.batches:
        time.sleep(0.001)
    requests += [queue.submit([2.0]) for _ in range(3)]
    with pytest.raises(DeviceError, match=r"\[InferenceQueue\] no room .* within 0.01 seconds"):
        queue.submit([3.0], timeout=0.01)
    assert requests[-1].cancel()  # makes room
    requests[-1] = queue.submit([2.0], timeout=0.0)
    with ThreadPoolExecutor(2) as pool:
        late = [pool.submit(queue.submit, [4.0]) for _ in range(2)]
        threading.Timer(0.05, model.seen.opened.set).start()
        requests += [each.result(30) for each in late]
    assert [r.result(30).tolist()[0] for r in requests] == [2.0, 4.0, 4.0, 4.0, 8.0, 8.0]
    queue.close()
    assert len(queue._places) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch": 0}, "max_batch must be at least 1, got 0"),
        ({"limit": 0}, "limit must be at least 1, got 0"),
        ({"max_wait": -1.0}, "max_wait must be at least 0 seconds, got -1.0"),
        ({"max_wait": float("nan")}, "max_wait must be at least 0 seconds, got nan"),
    ],
)
def test_options_that_no_queue_can_have(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=rf"\[InferenceQueue\] {message}"):
        dl.InferenceQueue(Counting(), DeviceGroup(["cpu"]), **options)


# Errors


def test_a_failing_request_fails_alone() -> None:
    model = Counting()
    with dl.InferenceQueue(model, DeviceGroup(["cpu"]), max_batch=16, max_wait=60.0) as queue:
        requests = [queue.submit([float(i)]) for i in range(16)]
        for i, request in enumerate(requests):
            if i == 13:
                with pytest.raises(ArgumentError, match="refuses 13"):
                    request.result(timeout=30)
            else:
                assert request.result(timeout=30).tolist() == [2.0 * i]
    assert [size for size, _ in model.seen.batches] == [16] + [1] * 16
    assert queue.stats().requests == 16


def test_a_shape_that_the_model_refuses() -> None:
    with dl.InferenceQueue(network().to("cpu"), DeviceGroup(["cpu"]), max_batch=2) as queue:
        good, bad = queue.submit(inputs(1)[0]), queue.submit(np.ones(5, np.float32))
        assert good.result(timeout=30).shape == (3,)
        with pytest.raises(ShapeError):
            bad.result(timeout=30)
        for values, error in (((), ArgumentError), (("text",), DTypeError), (([1.0], object()), DTypeError)):
            with pytest.raises(error):
                queue.submit(*values)
        assert queue.submit(inputs(1)[0]).result(timeout=30).shape == (3,)


def test_a_model_without_a_batch_in_its_output() -> None:
    class Sum(dl.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.sum()

    with dl.InferenceQueue(Sum(), DeviceGroup(["cpu"])) as queue:
        request = queue.submit([1.0])
        with pytest.raises(ArgumentError, match="first axis is the batch of 1, got shape"):
            request.result(timeout=30)


# Cancelling and closing


def test_cancelled_requests_are_not_computed() -> None:
    model = Counting()
    with dl.InferenceQueue(model, DeviceGroup(["cpu"]), max_batch=4, max_wait=60.0) as queue:
        requests = [queue.submit([float(i)]) for i in range(3)]
        assert requests[1].cancel()
        assert requests[1].cancel()
        assert len(queue) == 2
        requests += [queue.submit([float(i)]) for i in range(3, 5)]
        assert [r.result(30).tolist() for r in requests if r is not requests[1]] == [
            [0.0],
            [4.0],
            [6.0],
            [8.0],
        ]
        with pytest.raises(CancelledError):
            requests[1].result()
        assert not requests[0].cancel()
    assert [size for size, _ in model.seen.batches] == [4]


@pytest.mark.parametrize("cancel", [False, True])
def test_close_answers_what_waits_or_cancels_it(cancel: bool) -> None:
    model = Counting()
    queue = dl.InferenceQueue(model, DeviceGroup(["cpu"]), max_batch=4, max_wait=60.0)
    model.seen.opened.clear()
    requests = [queue.submit([float(i)]) for i in range(7)]
    while not model.seen.batches:
        time.sleep(0.001)
    threading.Timer(0.05, model.seen.opened.set).start()
    queue.close(cancel=cancel)
    assert [r.state for r in requests] == ["finished"] * 4 + ["cancelled" if cancel else "finished"] * 3
    with pytest.raises(DeviceError, match=r"\[InferenceQueue\] the queue is closed"):
        queue.submit([1.0])
    queue.close()


def test_an_error_in_the_block_cancels_what_waits() -> None:
    requests = []

    def fail() -> None:
        with dl.InferenceQueue(Counting(), DeviceGroup(["cpu"]), max_wait=60.0) as queue:
            requests.append(queue.submit([1.0]))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert requests[0].state == "cancelled"


def test_threads_end_with_the_queue() -> None:
    def own() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name.startswith("inference")}

    before = own()
    for close in (True, False):
        queue = dl.InferenceQueue(Counting(), DeviceGroup(["cpu"]), max_wait=0.0)
        assert queue.submit([1.0]).result(30).tolist() == [2.0]
        until = time.monotonic() + 30
        while len(begun := own() - before) < 2:  # a thread may not have begun yet
            assert time.monotonic() < until
            time.sleep(0.001)
        if close:
            queue.close()
        seen = weakref.ref(queue)
        del queue
        gc.collect()
        assert all(threads.ended(thread, 30) for thread in begun)
        assert seen() is None


# Failing devices


@pytest.mark.parametrize("kind", ["lost", "hang"])
def test_a_failing_device_is_retired_and_its_work_done_elsewhere(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    failing = simulated_device(failures=(Failure(kind, "forward", after=9),))
    group = DeviceGroup([failing, simulated_device(), simulated_device()], timeout=5.0)
    x = inputs(80)
    model = network().to("cpu").eval()
    with caplog.at_level(logging.WARNING, "dl4all"), dl.InferenceQueue(model, group, max_batch=4) as queue:
        requests = [queue.submit(row) for row in x]
        got = np.stack([request.result().numpy() for request in requests])
        stats = queue.stats()
    np.testing.assert_allclose(got, model(dl.from_numpy(x)).numpy(), rtol=2e-5, atol=2e-6)
    assert list(group.retired) == [failing]
    assert ("no answer within 5.0 seconds" if kind == "hang" else "was lost") in group.retired[failing]
    assert 0 < stats.shares[str(failing)] < 0.2
    # The batch that hung is begun again when that is known, as all others are done by then.
    late = sum(request.ended >= 5.0 for request in requests)
    assert late == (4 if kind == "hang" else 0)


def test_a_real_device_that_does_not_answer_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    model = Counting()
    group = DeviceGroup(["cpu", "cpu#1"], timeout=0.2)
    with dl.InferenceQueue(model, group, max_batch=2, max_wait=60.0) as queue:
        model.seen.opened.clear()
        stuck = [queue.submit([float(i)]) for i in range(2)]
        while not model.seen.batches:
            time.sleep(0.001)
        with caplog.at_level(logging.WARNING, "dl4all"):
            while group.primary == dl.device("cpu"):
                time.sleep(0.001)
            model.seen.opened.set()
            assert [r.result(30).tolist() for r in stuck] == [[0.0], [2.0]]
        assert queue.submit([3.0]).cancel()  # too few for a batch
        others = [queue.submit([3.0]) for _ in range(2)]
        assert [r.result(30).tolist() for r in others] == [[6.0], [6.0]]
    assert list(group.retired) == [dl.device("cpu")]
    assert [device for _, device in model.seen.batches] == ["cpu", "cpu#1", "cpu#1"]
    assert queue.stats().requests == 4


@pytest.mark.parametrize("names", [["simulated", "simulated"], ["simulated"]], ids=len)
def test_without_a_device_requests_fail_and_say_why(names: list[str]) -> None:
    group = group_of(names, failures=(Failure("lost", "forward", after=20),))
    queue = dl.InferenceQueue(network(), group, max_batch=4)
    rows = inputs(200)
    requests: list[Request] = []
    while len(group):
        requests.append(queue.submit(rows[len(requests)]))
        requests[-1].wait()
    with pytest.raises(DeviceError, match=r"\[DeviceGroup\] no device is left \(simulated"):
        queue.submit(rows[0])
    with pytest.raises(DeviceError, match="no device is left"):
        requests[-1].result()
    assert requests[0].result().shape == (3,)
    queue.close()
    assert not len(queue)
    assert len(queue._places) == 1024


def test_a_device_without_memory_gets_smaller_batches() -> None:
    model = Counting()
    model.seen.most = 3
    with dl.InferenceQueue(model, DeviceGroup(["cpu"]), max_batch=16, max_wait=60.0) as queue:
        requests = [queue.submit([float(i)]) for i in range(13)] + [queue.submit([20.0]) for _ in range(19)]
        for i, request in enumerate(requests[:13]):
            assert request.result(30).tolist() == [2.0 * i]
    sizes = [size for size, _ in model.seen.batches]
    assert sizes[:3] == [16, 8, 4]
    assert set(sizes[3:]) == {2}
    assert sum(sizes[3:]) == 32


def test_a_request_for_which_no_device_has_memory_fails() -> None:
    model = Counting()
    model.seen.most = 0
    with dl.InferenceQueue(model, DeviceGroup(["cpu", "cpu#1"]), max_batch=2) as queue:
        requests = [queue.submit([float(i)]) for i in range(4)]
        for request in requests:
            with pytest.raises(OutOfMemoryError, match="1 do not fit"):
                request.result(30)
        model.seen.most = None
        assert queue.submit([5.0]).result(30).tolist() == [10.0]
    ones = {device for size, device in model.seen.batches if size == 1}
    assert ones == {"cpu", "cpu#1"}  # both were tried


def test_a_simulated_device_without_memory() -> None:
    small = simulated_device(memory=8 << 10)
    model = dl.nn.Linear(16, 16).to("cpu").eval()
    x = inputs(256, 16)
    with dl.InferenceQueue(model, DeviceGroup([small, simulated_device()]), max_batch=64) as queue:
        got = np.stack([y.numpy() for y in queue.map(list(x))])
    np.testing.assert_allclose(got, model(dl.from_numpy(x)).numpy(), rtol=2e-5, atol=2e-6)
    assert 0 < queue.stats().shares[str(small)] < 1


# On the virtual clock


def flops_device(speed: float, **facts: Any) -> Device:
    return simulated_device(
        gflops=speed, gb_per_s=1e9, launch_us=0.0, link_us=0.0, link_gb_per_s=1e9, **facts
    )


def throughput(speeds: list[float], count: int) -> tuple[float, dl.InferenceQueue, list[Request]]:
    """Requests in a virtual second."""
    clock.set_to(0.0)
    group = DeviceGroup([flops_device(speed) for speed in speeds])
    with dl.InferenceQueue(dl.nn.Linear(64, 64, bias=False), group, max_batch=8) as queue:
        row = np.ones(64, np.float32)
        requests = [queue.submit(row) for _ in range(count)]
        for request in requests:
            request.wait()
    return count / max(request.ended for request in requests), queue, requests


def test_throughput_is_nearly_the_sum_of_the_devices() -> None:
    alone = [throughput([speed], 400)[0] for speed in (4.0, 2.0, 1.0)]
    assert alone[0] / alone[2] == pytest.approx(4.0, rel=1e-3)
    together, queue, _ = throughput([4.0, 2.0, 1.0], 1600)
    assert 0.9 * sum(alone) <= together <= 1.001 * sum(alone)
    shares = [queue.stats().shares[str(device)] for device in queue.group.devices]
    assert shares == pytest.approx([4 / 7, 2 / 7, 1 / 7], abs=0.02)


def test_virtual_times_are_the_same_each_time() -> None:
    """However the threads run."""
    runs = []
    for _ in range(4):
        _, _, requests = throughput([4.0, 2.0, 1.0], 300)
        runs.append([(r.submitted, r.begun, r.ended) for r in requests])
    assert runs[0] == runs[1] == runs[2] == runs[3]
    assert len(set(runs[0])) > 20


def test_a_partial_batch_goes_at_its_virtual_time() -> None:
    group = DeviceGroup([flops_device(1.0)])
    with dl.InferenceQueue(dl.nn.Linear(64, 64, bias=False), group, max_batch=8, max_wait=0.5) as queue:
        row = np.ones(64, np.float32)
        first = queue.submit(row)
        clock.advance_to(0.25)
        second = queue.submit(row)
        clock.advance_to(2.0)
        third = queue.submit(row)
        assert third.result().shape == (64,)
        assert first.done()
        assert (first.begun, second.begun, third.begun) == (0.5, 0.5, 2.5)
        assert first.ended == second.ended == pytest.approx(0.5 + 2 * 2 * 64 * 64 / 1e9)
        assert clock.now() == third.ended
    assert queue.stats().batches == 2


# Threads


def test_eight_threads_on_three_devices() -> None:
    model = Quiet(Counting())
    devices: list[str | Device] = ["cpu", "cpu#1", simulated_device()]
    with dl.InferenceQueue(model, DeviceGroup(devices), max_batch=16, max_wait=0.001, limit=64) as queue:

        def call(thread: int) -> int:
            requests = []
            for i in range(150):
                requests.append((i, queue.submit([float(thread), float(i)] + [0.0] * (i % 3))))
                if i % 10 == 9:
                    requests[-5][1].cancel()
            right = 0
            for i, request in requests:
                if request.wait(30) and request.state != "cancelled":
                    assert request.result().tolist()[:2] == [2.0 * thread, 2.0 * i]
                right += 1
            return right

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(call, range(8))) == 1200
        assert not len(queue)
        assert len(queue._places) == 64
        stats = queue.stats()
    assert stats.requests >= 1200 - 120
    assert stats.mean_batch <= 16
