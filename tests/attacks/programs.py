"""Programs that are interrupted. Each gives the same numbers every time that it runs."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all.allocator.staging import CHUNK
from dl4all.runtime import registry
from dl4all.runtime.protocols import Command, Copy, Dispatch, Fill, Span, span
from dl4all.runtime.spirv import Shader, load
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.scheduler.device import current

Values = list[npt.NDArray[Any]]
Program = Callable[[], Values]

ADDITIONS = 70
"""In place, one after the other, more than a batch holds: they show what ran twice or was lost."""
INPUTS = np.random.default_rng(0).standard_normal((4, 3, 6, 6)).astype(np.float32)
LABELS = np.arange(4)
F = dl.nn.functional


def open_device(name: str) -> dl.Device:
    """A device; ``staging`` is ``vulkan:0`` as if the host did not see its memory."""
    if name == "staging":
        return dl.Device.of_backend("vulkan-staging:0", VulkanBackend(0, zero_copy=False))
    return dl.device(name)


def network() -> Any:
    """Convolutions, batch normalization and a layer that uses all that they give."""
    dl.manual_seed(0)
    return dl.nn.Sequential(
        dl.nn.Conv2d(3, 8, 3, padding=1), dl.nn.BatchNorm2d(8), dl.nn.ReLU(), dl.nn.Conv2d(8, 8, 3),
        dl.nn.ReLU(), dl.nn.Flatten(), dl.nn.Linear(8 * 4 * 4, 10),
    )  # fmt: skip


def training(devices: list[dl.Device]) -> Program:
    """Forward and backward on one device, or on several that share the batch."""
    device, net = devices[0], network().to(devices[0])
    if len(devices) > 1:
        net = dl.parallel(net, dl.DeviceGroup(devices))

    def run() -> Values:
        x, y = dl.tensor(INPUTS, device=device), dl.tensor(LABELS, device=device)
        total = dl.zeros(7, device=device)
        for parameter in net.parameters():
            parameter.grad = None
        for _ in range(ADDITIONS):
            total.add_(1.0)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        large = dl.ones(300, 300, device=device)
        del large
        with dl.no_grad():
            total.add_(loss * 0.0)
        return values(total, loss.detach(), *taken_gradients(net))

    return run


def cold(devices: list[dl.Device]) -> Program:
    """The same on a device that has let go of its memory and of what it has compiled."""
    train = training(devices)

    def run() -> Values:
        for device in devices:
            device.synchronize()
            device.pool.trim()
            compiled = device._programs._compiled
            while compiled:
                compiled.popitem()[1].free()
        return train()

    return run


def opening(devices: list[dl.Device]) -> Program:
    """Opening a device once more, a little work, and closing it."""
    again = f"{devices[0]}#7"

    def run() -> Values:
        current._devices.pop(again, None)
        gc.collect()
        opened = registry._opened.pop(again, None)
        if opened is not None:
            opened.close()
        return values(dl.full((3,), 2.0, device=again) * 3)

    return run


def updating(devices: list[dl.Device]) -> Program:
    """Steps of optimizers from a known state on; what an interrupted one left is loaded over."""
    net = network().to(devices[0])
    makers = (
        lambda: dl.optim.AdamW(net.parameters(), lr=0.1),
        lambda: dl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
    )
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    optimizers = [make() for make in makers]
    before = [make().state_dict() for make in makers]

    def run() -> Values:
        found = []
        for optimizer, state in zip(optimizers, before, strict=True):
            net.load_state_dict(weights)
            optimizer.load_state_dict(state)
            ema = dl.optim.EMA(net.parameters(), 0.5)
            for number in range(3):
                for parameter in net.parameters():
                    parameter.grad = dl.full_like(parameter.detach(), 1.0 + number)
                dl.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                ema.update()
            with ema.averaged():
                found += values(*net.parameters())
            found += values(*net.parameters())
        return found

    return run


def transfers(devices: list[dl.Device]) -> Program:
    """Copies to and from a device, waited for and not, small and in several parts, and its own commands."""
    device, host = devices[0], dl.device("cpu")
    small, large = np.arange(1000, dtype=np.float32), np.arange(CHUNK // 2, dtype=np.float32)

    def run() -> Values:
        x, y = dl.tensor(small, device=device), dl.tensor(large, device=device)
        there = dl.tensor(small).to(device, non_blocking=True) + x
        pinned = dl.tensor(device.copies.pin(small), device=device)
        back = (there + pinned).to(host, non_blocking=True)
        coming = device.copies.download_later(x.storage, 400, 40)
        beside = device.copies.download_later(y.storage, 4000, 3, beside=True)
        x.add_(1.0)
        found: Values = [coming.wait().view(np.float32).copy(), beside.wait().copy()]
        return [*found, *values(x, y[-5:], back, there.sum())]

    return run


def streams(devices: list[dl.Device]) -> Program:
    """Tasks of streams that wait for each other."""
    device = devices[0]

    def run() -> Values:
        first, second = dl.Stream(device, limit=3), dl.Stream(devices[-1], limit=3)
        try:
            made = [first.submit(dl.full, (3,), float(number)) for number in range(6)]
            second.wait_stream(first)
            total = second.submit(lambda: sum(task.result().to("cpu") for task in made))
            event = second.record_event()
            later = second.submit(lambda: dl.ones(2, device=device), priority=1)
            assert event.synchronize(60)
            first.synchronize()
            found = values(total.result(), later.result())
            second.synchronize(60)
        finally:
            first.close()
            second.close()
        return found

    return run


def recordings(devices: list[dl.Device]) -> Program:
    """Commands that are recorded once and replayed, with buffers that come and go."""
    backend = devices[0]._backend
    made: list[Any] = []

    def run() -> Values:
        while made:
            made.pop().free()  # what an exception has left
        for _ in range(2):
            made.append(backend.allocate(1024))
        x, y = made
        out = np.empty(1024, np.uint8)
        recording = backend.record(
            [Fill(Span(x, 0, 512), 7), Copy(Span(x, 0, 512), Span(y, 512, 512)), Fill(Span(x, 0, 4), 9)]
        )
        backend.stream.fill(Fill(Span(y, 0, 1024), 3))
        for _ in range(3):
            backend.stream.replay(recording)
        backend.stream.download(Span(y, 0, 1024), out)
        backend.stream.synchronize()
        recording.free()
        return [out.view(np.uint32).copy()]

    return run


def changes(devices: list[dl.Device]) -> Program:
    """A recording whose dispatches change: push constants, and the place that they write."""
    backend = devices[0]._backend
    if not backend.capabilities.programs:
        return recordings(devices)
    program, made = backend.program(load(Shader("memory/fill_words.comp")), ()), list[Any]()

    def run() -> Values:
        while made:
            made.pop().free()  # what an exception has left
        for _ in range(4):
            made.append(backend.allocate(1024))
        *places, kept = (span(buffer) for buffer in made)
        out = np.empty(1024, np.uint8)

        def fill(place: Span, word: int) -> Dispatch:
            return Dispatch(program, [place], (1, 1, 1), struct.pack("<3I", 256, 0, word))

        commands: list[Command] = [fill(places[0], 1), Copy(places[0], kept), fill(places[1], 2)]
        recording = backend.record(commands, [0, 2])
        made.append(recording)
        for word in range(8):
            news = {0: fill(places[0], 10 + word), 2: fill(places[1 + word % 2], 20 + word // 4)}
            backend.stream.replay(recording, {i: news[i] for i in news if word != 3 * i})
        found = []
        for place in (*places, kept):
            backend.stream.download(place, out)
            found.append(out.view(np.uint32).copy())
        backend.stream.synchronize()
        return found

    return run


def contexts(devices: list[dl.Device]) -> Program:
    """Blocks that change a setting: none of them may stay."""
    device = devices[0]

    def run() -> Values:
        x = dl.tensor(INPUTS, device=device).requires_grad_()
        with dl.profile() as profile:
            y = dl.autograd.checkpoint(lambda t: (t * t).relu() * t, x).sum()
            with dl.no_grad(), dl.autograd.detect_anomaly(), dl.fallback.policy("warn"):
                double = x.median()
                with dl.enable_grad():
                    z = (x * double).sum()
            (y + z).backward()
        with dl.memory.trace(device), dl.no_grad():
            rows = dl.vmap(lambda t: t.sum())(x.detach())
        assert profile.events
        return values(y.detach(), double, rows, x.grad)

    return run


def pipeline(devices: list[dl.Device]) -> Program:
    """Micro-batches that go through stages on several devices."""
    net = network().eval()
    made = dl.pipeline(net, dl.DeviceGroup(devices), micro_batches=2, split=[3])

    def run() -> Values:
        for parameter in net.parameters():
            parameter.grad = None
        loss = made.train_step(dl.tensor(INPUTS, device="cpu"), dl.tensor(LABELS), F.cross_entropy)
        return values(loss, *taken_gradients(net))

    return run


def serving(devices: list[dl.Device]) -> Program:
    """Requests to a queue that several devices answer."""
    queue = dl.InferenceQueue(network(), dl.DeviceGroup(devices), max_batch=2, limit=3)

    def run() -> Values:
        requests = [queue.submit(INPUTS[number]) for number in range(4)]
        found = values(*(request.result(60) for request in requests))
        return [*found, *values(*queue.map(list(INPUTS)))]

    return run


def taken_gradients(net: Any) -> list[Any]:
    """The gradients of parameters, which keep none."""
    gradients = [parameter.grad for parameter in net.parameters()]
    for parameter in net.parameters():
        parameter.grad = None
    return gradients


def values(*tensors: Any) -> Values:
    """Copies on the host."""
    return [tensor.detach().numpy().copy() for tensor in tensors]


PROGRAMS: dict[str, Callable[[list[dl.Device]], Program]] = {
    make.__name__: make
    for make in (
        training, cold, opening, updating, transfers, streams, recordings, changes, contexts, pipeline,
        serving,
    )
}  # fmt: skip
