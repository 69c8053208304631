"""Pipelines on simulated devices: their time, their memory, and what happens when a device fails."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import DeviceError, DeviceLostError, OutOfMemoryError, ShapeError
from dl4all.multi_device.pipeline.chain import chain_of
from dl4all.multi_device.pipeline.layer_cost import layer_costs
from dl4all.multi_device.pipeline.stage_partition import memory_of
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.backend import SimulatedBackend
from dl4all.runtime.simulated.description import Failure
from dl4all.scheduler.cost.simulation import simulated_device
from tests.support.parallel_training import allocated

pytestmark = pytest.mark.usefixtures("deadline")

WIDTH = 64
MSE = dl.nn.MSELoss()


def linears(count: int) -> dl.nn.Sequential:
    dl.manual_seed(1)
    return dl.nn.Sequential(*(dl.nn.Linear(WIDTH, WIDTH) for _ in range(count)))


def batch(count: int) -> tuple[dl.Tensor, dl.Tensor]:
    dl.manual_seed(2)
    return dl.randn(count, WIDTH, device="cpu"), dl.randn(count, WIDTH, device="cpu")


def devices_of(count: int, **facts: Any) -> list[dl.Device]:
    slow = {"gflops": 1.0, "gb_per_s": 1e3, "launch_us": 0.0, "link_us": 1.0, "link_gb_per_s": 100.0}
    return [simulated_device(**{**slow, **facts}) for _ in range(count)]


def backend_of(device: dl.Device) -> SimulatedBackend:
    assert device.simulated is not None
    return device.simulated


def step_seconds(piped: dl.Pipeline, inputs: dl.Tensor, targets: dl.Tensor) -> float:
    begun = clock.now()
    piped.train_step(inputs, targets, MSE)
    return clock.now() - begun


# Time


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 4), (2, 4), (4, 4), (4, 16), (8, 8)])
def test_a_step_takes_what_the_bubble_formula_says(schedule: Any, stages: int, micro_batches: int) -> None:
    model, (inputs, targets) = linears(8), batch(64)
    devices = devices_of(stages, computes=False)
    speeds = backend_of(devices[0]).speeds
    costs = layer_costs(chain_of(model), inputs[: 64 // micro_batches])
    stage = sum((cost.forward + cost.backward).seconds(speeds) for cost in costs) / stages
    nbytes = costs[0].output
    transfers = 2 * (stages - 1) * (speeds.download(nbytes) + speeds.upload(nbytes))
    with dl.DeviceGroup(devices) as group:
        piped = dl.pipeline(model, group, micro_batches=micro_batches, schedule=schedule, example=inputs)
        assert [len(part.layers) for part in piped.stages] == [8 // stages] * stages
        found = step_seconds(piped, inputs, targets)
    predicted = (micro_batches + stages - 1) * stage
    assert predicted < found < 1.15 * (predicted + transfers)


def test_a_slow_device_gets_fewer_layers() -> None:
    model, (inputs, targets) = linears(9), batch(64)
    devices = [*devices_of(1, gflops=2.0, computes=False), *devices_of(1, computes=False)]
    with dl.DeviceGroup(devices) as group:
        piped = dl.pipeline(model, group, micro_batches=8, example=inputs)
        assert [len(stage.layers) for stage in piped.stages] == [6, 3]
        balanced = step_seconds(piped, inputs, targets)
        halves = dl.pipeline(model, group, micro_batches=8, split=[4])
        assert balanced < 0.8 * step_seconds(halves, inputs, targets)


def test_a_device_that_would_only_hold_up_the_others_gets_none() -> None:
    model, (inputs, _) = linears(4), batch(64)
    devices = [*devices_of(1), *devices_of(1, gflops=0.001), *devices_of(1)]
    with dl.DeviceGroup(devices) as group:
        piped = dl.pipeline(model, group, example=inputs)
    assert [stage.device for stage in piped.stages] == [devices[0], devices[2]]


def test_steps_take_the_same_virtual_time_however_threads_run() -> None:
    model, (inputs, targets) = linears(6), batch(32)
    with dl.DeviceGroup(devices_of(3, computes=False)) as group:
        piped = dl.pipeline(model, group, split=[2, 4])
        piped.train_step(inputs, targets, MSE)  # the others have gradients to add to
        times = [step_seconds(piped, inputs, targets) for _ in range(5)]
    assert max(times) < 1.01 * min(times)


def test_the_timeout_is_of_one_micro_batch_on_one_device() -> None:
    model, (inputs, targets) = linears(6), batch(32)
    times = []
    for timeout in (100.0, 0.001):
        with dl.DeviceGroup(devices_of(3, computes=False), timeout=timeout) as group:
            times.append(step_seconds(dl.pipeline(model, group, split=[2, 4]), inputs, targets))
        model.zero_grad()
    assert times[0] > 0.002
    assert times[1] == pytest.approx(times[0], rel=0.01)


# Memory


def tanhs() -> dl.nn.Sequential:
    dl.manual_seed(3)
    return dl.nn.Sequential(
        *(layer for _ in range(8) for layer in (dl.nn.Linear(WIDTH, WIDTH), dl.nn.Tanh()))
    )


def peaks(schedule: Any, *, checkpoint: bool = False) -> tuple[list[int], list[int]]:
    """What four devices needed at most, and what was predicted."""
    model, (inputs, targets) = tanhs(), batch(4096)
    devices = devices_of(4, computes=False)
    micro_batch = inputs[: 4096 // 8]
    costs = layer_costs(chain_of(model), micro_batch)
    needs = memory_of(costs, micro_batch, 8, schedule, checkpoint=checkpoint)
    with dl.DeviceGroup(devices) as group:
        piped = dl.pipeline(
            model, group, micro_batches=8, schedule=schedule, checkpoint=checkpoint, split=[4, 8, 12]
        )
        piped.train_step(inputs, targets, MSE)
    predicted = [needs(part.first, part.first + len(part.layers), 3 - part.index) for part in piped.stages]
    return [device.pool.stats.peak for device in devices], predicted


def test_1f1b_needs_less_memory_than_gpipe_and_checkpoints_still_less() -> None:
    gpipe, _ = peaks("gpipe")
    one_forward_one_backward, _ = peaks("1f1b")
    recomputed, _ = peaks("1f1b", checkpoint=True)
    # Of the first three stages: the last one has the targets, too. Stage i of 4 keeps 4 - i of 8.
    for kept, (all_of_them, some) in enumerate(zip(gpipe[:3], one_forward_one_backward[:3], strict=True)):
        assert some < all_of_them * (0.75 - 0.1 * kept)
    assert one_forward_one_backward[0] > one_forward_one_backward[1] > one_forward_one_backward[2]
    assert all(less < more for less, more in zip(recomputed[:3], one_forward_one_backward[:3], strict=True))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("checkpoint", [False, True], ids=["kept", "checkpoint"])
def test_the_memory_that_is_predicted(schedule: Any, checkpoint: bool) -> None:
    found, predicted = peaks(schedule, checkpoint=checkpoint)
    # Gradients may come before their turn: how far a neighbour's thread is ahead is the system's choice.
    early = 8 * (4096 // 8) * WIDTH * 4
    for needed, promised in zip(found[:3], predicted[:3], strict=True):
        assert 0.5 * promised < needed < promised + early


def test_nothing_is_left_behind() -> None:
    model, (inputs, targets) = tanhs(), batch(64)
    devices = devices_of(2)
    with dl.DeviceGroup(devices) as group:
        piped = dl.pipeline(model, group, split=[8])
        held = allocated(group)
        piped.train_step(inputs, targets, MSE)
        model.zero_grad()
        assert allocated(group) == held


def test_a_model_that_fits_two_devices_and_not_one() -> None:
    inputs, targets = batch(64)
    expected = linears(8)
    optimizer = dl.optim.Adam(expected.parameters())
    _step(expected, optimizer, inputs, targets)
    memory = 8 * (WIDTH + 1) * WIDTH * 4 * 4  # parameters, gradients, Adam, and no room for anything else
    small = simulated_device(memory=memory)
    alone = linears(8).to(small)
    optimizer = dl.optim.Adam(alone.parameters())
    with pytest.raises(OutOfMemoryError):
        _step(alone, optimizer, inputs.to(small), targets.to(small))
    model = linears(8)
    optimizer = dl.optim.Adam(model.parameters())
    with dl.DeviceGroup(devices_of(1, memory=memory)) as group, pytest.raises(OutOfMemoryError) as error:
        dl.pipeline(model, group, example=inputs)
    assert "are 520.0 KiB" in str(error.value)
    assert "there are simulated:" in str(error.value)
    with dl.DeviceGroup(devices_of(2, memory=memory)) as group:
        with pytest.raises(OutOfMemoryError, match=r"stage 1, 1 to 7, needs"):
            dl.pipeline(model, group, split=[1], example=inputs)
        piped = dl.pipeline(model, group, example=inputs)
        piped.train_step(inputs, targets, MSE)
        optimizer.step()
    for parameter, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), wanted.detach().numpy(), rtol=1e-3, atol=1e-5)


def _step(model: dl.nn.Module, optimizer: Any, inputs: dl.Tensor, targets: dl.Tensor) -> None:
    MSE(model(inputs), targets).backward()
    optimizer.step()


# Failure


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("after", [0, 5])
def test_a_lost_device(stage: int, phase: str, after: int) -> None:
    model, (inputs, targets) = linears(6), batch(16)
    devices = devices_of(3)
    with dl.DeviceGroup(devices) as group:
        piped = dl.pipeline(model, group, split=[2, 4])
        piped.train_step(inputs, targets, MSE)
        gradients = {id(p): p.grad for p in model.parameters()}
        backend_of(devices[stage]).fail(Failure("lost", phase, after))
        with pytest.raises(DeviceLostError, match="was lost"):
            piped.train_step(inputs, targets, MSE)
        assert all(gradients[id(p)] is p.grad for p in model.parameters())
        assert group.alive == tuple(device for device in devices if device is not devices[stage])
        with pytest.raises(DeviceError, match=rf"<stage {stage} on simulated:\d+: .*> is lost .*checkpoint"):
            piped.train_step(inputs, targets, MSE)
        for device in group.alive:
            assert group.stream(device).synchronize(timeout=10)


@pytest.mark.parametrize("kind", ["hang", "slow"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_device_that_does_not_answer_in_time(kind: Any, phase: str) -> None:
    model, (inputs, targets) = linears(6), batch(16)
    devices = devices_of(3)
    with dl.DeviceGroup(devices, timeout=1.0) as group:
        piped = dl.pipeline(model, group, split=[2, 4])
        assert step_seconds(piped, inputs, targets) < 0.1
        backend_of(devices[1]).fail(Failure(kind, phase, after=3, factor=1e5))
        with pytest.raises(DeviceError, match=r"does not answer|<stage 1 .*> did not finish .* within 1.0"):
            piped.train_step(inputs, targets, MSE)
        assert group.alive == (devices[0], devices[2])


def test_a_step_that_never_ends() -> None:
    class Stuck(dl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.released = threading.Event()

        def forward(self, x: dl.Tensor) -> dl.Tensor:
            self.released.wait(60)
            return x

    stuck = Stuck()
    model, (inputs, targets) = dl.nn.Sequential(*linears(2), stuck), batch(8)
    with dl.DeviceGroup(["cpu", "cpu#1"], timeout=0.2) as group:
        piped = dl.pipeline(model, group, split=[1])
        with pytest.raises(DeviceError, match=r"<stage 1 on cpu#1.*> did not finish forward of"):
            piped.train_step(inputs, targets, MSE)
        stuck.released.set()
        assert [str(device) for device in group.alive] == ["cpu"]


def test_memory_that_runs_out_once() -> None:
    model, (inputs, targets) = linears(4), batch(16)
    devices = devices_of(2)
    with dl.DeviceGroup(devices) as group:
        piped = dl.pipeline(model, group, split=[2])
        backend_of(devices[1]).fail(Failure("memory", "backward"))
        with pytest.raises(OutOfMemoryError):
            piped.train_step(inputs, targets, MSE)
        assert all(p.grad is None for p in model.parameters())
        assert len(group) == 2
        piped.train_step(inputs, targets, MSE)
        assert all(p.grad is not None for p in model.parameters())


def test_an_error_of_a_layer_or_the_loss_ends_the_step() -> None:
    model, (inputs, targets) = linears(4), batch(16)
    calls: list[int] = []

    def wrong_once(outputs: dl.Tensor, wanted: dl.Tensor) -> dl.Tensor:
        calls.append(len(outputs))
        if len(calls) == 2:
            raise ZeroDivisionError("wrong")
        return dl.nn.functional.mse_loss(outputs, wanted)

    with dl.DeviceGroup(["cpu", "cpu#1"]) as group:
        piped = dl.pipeline(model, group, split=[2])
        with pytest.raises(ShapeError, match=r"\[linear\]"):
            piped.train_step(dl.ones(16, 3), targets, MSE)
        with pytest.raises(ZeroDivisionError, match="wrong"):
            piped.train_step(inputs, targets, wrong_once)
        with pytest.raises(dl.errors.GradientError, match="must be a tensor of one number"):
            piped.train_step(inputs, targets, lambda outputs, wanted: outputs - wanted)
        assert all(p.grad is None for p in model.parameters())
        assert len(group) == 2
        loss = piped.train_step(inputs, targets, MSE).item()
    np.testing.assert_allclose(loss, MSE(linears(4)(inputs), targets).item(), rtol=1e-6)


def test_modules_have_their_shared_parameters_again_after_a_failure() -> None:
    network = dl.models.GPT(11, 8, n_layer=1, n_head=2, n_embd=6)
    devices = devices_of(2)
    with dl.DeviceGroup(devices) as group:
        piped = dl.pipeline(network, group, split=["lm_head"])
        backend_of(devices[1]).fail(Failure("lost", "backward"))
        with pytest.raises(DeviceLostError):
            piped.train_step(dl.randint(0, 11, (4, 5)), dl.zeros(4, 5, 11), MSE)
    assert network.lm_head.weight is network.get_parameter("transformer.wte.weight")
