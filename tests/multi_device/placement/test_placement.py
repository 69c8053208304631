"""Placements of models on simulated devices: times, memory, and what is said about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.errors import ArgumentError, FileFormatError, OutOfMemoryError
from dl4all.multi_device.placement.picture import draw
from dl4all.multi_device.placement.placement import place
from dl4all.multi_device.placement.plan import Placement
from dl4all.multi_device.trace.speed_measurement import measure_speeds
from dl4all.scheduler.cost.simulation import simulated_device
from tests.conftest import need, parameter

MLP = dl.models.MLP
LAYERS = 6


def chain(width: int = 64, layers: int = LAYERS) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))


def batch(rows: int = 32, width: int = 64) -> dl.Tensor:
    made: dl.Tensor = dl.rand(rows, width, device="cpu")
    return made


def devices_of(placement: Placement) -> list[dl.Device]:
    return [stage.device for stage in placement.stages]


# Predictions against the clock of simulated devices


@pytest.mark.parametrize("facts", [{}, {"gflops": 50.0, "launch_us": 40.0}, {"gb_per_s": 2.0}])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: dl.models.resnet18(num_classes=10), (2, 3, 64, 64)),
        (lambda: dl.models.LeNet(), (8, 1, 28, 28)),
        (lambda: dl.models.MLP(20, [32, 16], 10, dropout=0.25), (16, 20)),
    ],
    ids=["resnet18", "lenet", "mlp"],
)
def test_the_predicted_step_is_the_simulated_one(facts: Any, make: Any, shape: tuple[int, ...]) -> None:
    net, x = make(), dl.empty(*shape, device="cpu")
    labels = dl.zeros(shape[0], dtype="int64", device="cpu")
    loss = nn.CrossEntropyLoss()
    device = simulated_device(computes=False, **facts)
    assert device.simulated is not None
    predicted = place(net, [device], x, loss=loss, targets=[labels]).seconds
    net.to(device)
    optimizer = dl.optim.Adam(net.parameters())
    x, labels = x.to(device), labels.to(device)
    for _ in range(2):  # the first step makes the optimizer's state
        before = device.simulated.busy
        optimizer.zero_grad()
        loss(net(x), labels).backward()
        optimizer.step()
    assert predicted == pytest.approx(device.simulated.busy - before, rel=0.01)


@pytest.mark.parametrize("training", [True, False])
def test_the_predicted_memory_holds(training: bool) -> None:
    net, x = dl.models.resnet18(num_classes=10, base_channels=16), dl.empty(8, 3, 64, 64, device="cpu")
    device = simulated_device(computes=False)
    predicted = place(net, [device], x, training=training).stages[0].memory
    net.to(device).train(training)
    optimizer = dl.optim.Adam(net.parameters())
    x = x.to(device)
    for _ in range(2):
        with dl.set_grad_enabled(training):
            y = net(x)
        if training:
            optimizer.zero_grad()
            y.backward(dl.empty(*y.shape, device=device))
            optimizer.step()
    peak = device.pool.stats.peak
    assert predicted.total == pytest.approx(peak, rel=0.001)
    assert (predicted.gradients > 0) == (predicted.optimizer > 0) == training
    assert predicted.optimizer == 2 * predicted.gradients


def test_an_inference_has_no_optimizer_and_no_backward() -> None:
    device = simulated_device()
    (stage,) = place(chain(), [device], batch(), training=False).stages
    assert (stage.backward, stage.update, stage.memory.gradients, stage.memory.optimizer) == (0, 0, 0, 0)
    assert stage.forward > 0


# One micro-batch


def test_what_fits_goes_to_the_fastest_device() -> None:
    slow, fast = simulated_device(gflops=10.0), simulated_device(gflops=1000.0)
    found = place(chain(), [slow, fast], batch())
    assert devices_of(found) == [fast]
    assert found.device_of("") is fast
    assert found.reason == f"nothing is predicted to be faster than {fast} alone"
    (other,) = found.alternatives
    assert other.devices == (str(slow),)
    assert other.seconds is not None
    assert other.seconds > found.seconds


def test_too_little_memory_splits() -> None:
    """Each layer has 16,640 bytes of parameters, and four times that with gradients and Adam's state."""
    first, second = (simulated_device(memory=300_000) for _ in range(2))
    found = place(chain(), [first, second], batch())
    assert set(devices_of(found)) == {first, second}
    assert all(stage.share < 1 for stage in found.stages)
    assert sum(len(stage.modules) for stage in found.stages) == LAYERS
    assert [module for stage in found.stages for module in stage.modules] == [str(i) for i in range(LAYERS)]
    assert found.reason == "no device has the memory alone"
    assert [(a.devices, a.seconds) for a in found.alternatives[:2]] == [
        ((str(d),), None) for d in (first, second)
    ]
    assert "needs 0.5 MB, has 0.3 MB" in found.alternatives[0].reason


def test_a_split_costs_the_copies_there_and_back() -> None:
    facts: dict[str, Any] = {"memory": 300_000, "link_gb_per_s": 0.001, "link_us": 50.0}
    first, second = simulated_device(**facts), simulated_device(**facts)
    found = place(chain(), [first, second], batch())
    nbytes = 32 * 64 * 4
    one_way = 2 * (50e-6 + nbytes / 1e6)  # down to the host, and up
    before, after = found.stages
    assert (before.receive, before.give_back) == (0, 0)
    assert after.received == nbytes
    assert after.receive == pytest.approx(one_way)
    assert after.give_back == pytest.approx(one_way)
    computing = sum(s.forward + s.backward for s in found.stages)
    assert found.seconds >= computing + 2 * one_way
    assert place(chain(), [first, second], batch(), training=False).seconds < found.seconds


def test_a_cut_is_where_little_goes_across() -> None:
    """The first alone would fit as well, but behind the second less goes across."""
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 2), nn.Linear(2, 64), nn.Linear(64, 64))
    wide = simulated_device(memory=130_000, link_gb_per_s=0.001)
    other = simulated_device(memory=130_000, link_gb_per_s=0.001)
    found = place(net, [wide, other], batch())
    assert found.split == ["0", "2"]
    assert found.stages[1].received == 32 * 2 * 4


def test_each_device_gets_what_it_is_good_at() -> None:
    """One is fast at arithmetic, the other at moving bytes; between them copies cost nothing."""
    link = {"link_gb_per_s": 1e6, "link_us": 1e-3, "launch_us": 0.1}
    computes = simulated_device(gflops=1e5, gb_per_s=1.0, **link)
    moves = simulated_device(gflops=1.0, gb_per_s=1e4, **link)
    net = nn.Sequential(nn.Linear(256, 256), *(nn.Tanh() for _ in range(20)))
    found = place(net, [moves, computes], batch(256, 256))
    assert devices_of(found) == [computes, moves]
    assert found.stages[0].modules == ("0",)
    assert "times as fast as" in found.reason


@pytest.mark.parametrize("seed", range(5))
def test_never_slower_than_the_fastest_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    devices = [
        simulated_device(
            gflops=10 ** rng.uniform(0, 3), gb_per_s=10 ** rng.uniform(0, 3), link_us=rng.uniform(1, 90)
        )
        for _ in range(3)
    ]
    for micro_batches in (1, 4):
        together = place(chain(), devices, batch(), micro_batches=micro_batches).seconds
        alone = [place(chain(), [d], batch(), micro_batches=micro_batches).seconds for d in devices]
        assert together <= min(alone) * (1 + 1e-6)


# Several micro-batches


def test_a_pipeline_of_equal_devices_is_balanced() -> None:
    devices = [simulated_device(launch_us=1.0, link_us=1.0, gflops=1.0) for _ in range(3)]
    found = place(chain(), devices, batch(), micro_batches=8)
    assert len(found.stages) == 3
    assert [len(stage.modules) for stage in found.stages] == [2, 2, 2]
    alone = min(a.seconds for a in found.alternatives if a.seconds and len(a.devices) == 1)
    # 8 micro-batches and two bubbles over three stages: 8 / (10 / 3) times as fast, less the copies.
    assert alone / found.seconds == pytest.approx(2.4, rel=0.1)
    assert found.busy(1) == pytest.approx(0.8, abs=0.1)


def test_a_faster_device_gets_more_of_a_pipeline() -> None:
    slow, fast = simulated_device(gflops=1.0, launch_us=1.0), simulated_device(gflops=2.0, launch_us=1.0)
    found = place(chain(), [slow, fast], batch(), micro_batches=8)
    lengths = {stage.device: len(stage.modules) for stage in found.stages}
    assert lengths == {slow: 2, fast: 4}


def test_micro_batches_take_less_memory() -> None:
    net, x = chain(), batch(1024)
    device = simulated_device()
    whole, parts = (place(net, [device], x, micro_batches=m).stages[0].memory for m in (1, 8))
    assert parts.activations < whole.activations / 4
    assert parts.parameters == whole.parameters


def test_ragged_micro_batches_count_as_the_largest() -> None:
    device = simulated_device()
    assert place(chain(), [device], batch(9), micro_batches=2).seconds == pytest.approx(
        place(chain(), [device], batch(10), micro_batches=2).seconds
    )


# Refusals


def test_a_model_that_fits_nowhere_is_refused_with_numbers() -> None:
    small = [simulated_device(memory=100_000), simulated_device(memory=50_000)]
    with pytest.raises(OutOfMemoryError) as caught:
        place(chain(), small, batch())
    message = str(caught.value)
    assert message.startswith("[place] Sequential needs 0.5 MB")
    assert f"{small[0]} 0.1 MB" in message
    assert "smaller batch" in message


def test_a_model_that_cannot_be_cut_says_so() -> None:
    net = dl.models.GPT(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=6)
    with pytest.raises(OutOfMemoryError, match="cannot be cut"):
        place(net, [simulated_device(memory=5_000)] * 1, dl.tensor([[1, 2, 3]], device="cpu"))


@pytest.mark.parametrize(
    ("devices", "options", "match"),
    [
        ([], {}, "expected a device"),
        ("cpu", {}, r"use \['cpu'\]"),
        (["cpu"], {"micro_batches": 0}, "at least one micro-batch"),
        (["cpu"], {"micro_batches": 40}, "32 samples are too few for 40"),
    ],
)
def test_bad_arguments(devices: list[str] | str, options: Any, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        place(chain(), devices, batch(), **options)


def test_the_same_hardware_counts_once() -> None:
    found = place(chain(), dl.DeviceGroup(["cpu", "cpu#1"]), batch())
    assert devices_of(found) == [dl.device("cpu")]
    (other,) = found.alternatives
    assert other.devices == ("cpu#1",)
    assert other.reason == "the same hardware as cpu"


def test_a_retired_device_gets_nothing() -> None:
    slow, fast = simulated_device(gflops=1.0), simulated_device(gflops=100.0)
    with dl.DeviceGroup([slow, fast]) as group:
        assert devices_of(place(chain(), group, batch())) == [fast]
        group.retire(fast, "lost")
        assert devices_of(place(chain(), group, batch())) == [slow]


# What is said about it


@pytest.fixture
def split() -> Placement:
    devices = [simulated_device(memory=300_000, gflops=10.0) for _ in range(2)]
    return place(chain(), devices, batch(), micro_batches=2)


def test_modules_are_found(split: Placement) -> None:
    first, last = split.stages[0], split.stages[-1]
    assert split.device_of("0") is first.device
    assert split.device_of(str(LAYERS - 1)) is last.device
    with pytest.raises(ArgumentError, match="is on one device, got '': on simulated"):
        split.device_of("")
    with pytest.raises(ArgumentError, match="no module that was called"):
        split.device_of("7")


def test_print_shows_stages_alternatives_and_time(split: Placement) -> None:
    text = str(split)
    assert all(str(stage.device) in text for stage in split.stages)
    assert f"{split.seconds * 1e3:.3f} ms" in text
    assert split.reason in text
    lines = split.timeline(40)
    assert [line.split()[0] for line in lines] == [str(stage.device) for stage in split.stages]
    drawn = [line.split()[1] for line in lines]
    assert all(len(line) == 40 and {"F", "B"} <= set(line) for line in drawn)
    assert drawn[0].startswith("F")
    assert drawn[1].startswith(".")


def test_a_dict_has_all_of_it(split: Placement) -> None:
    values = json.loads(json.dumps(split.as_dict()))
    assert values["seconds"] == split.seconds
    assert [stage["device"] for stage in values["stages"]] == [str(stage.device) for stage in split.stages]
    assert values["stages"][0]["memory"]["total"] == split.stages[0].memory.total
    assert {slot["kind"] for slot in values["slots"]} == {"forward", "backward", "transfer", "update"}


def test_a_picture(split: Placement, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(split, tmp_path / "p.svg")
    text = "".join(ElementTree.parse(tmp_path / "p.svg").getroot().itertext())
    assert "ms" in text or (tmp_path / "p.svg").stat().st_size > 10_000
    with pytest.raises(ArgumentError, match="nonsense"):
        draw(split, tmp_path / "p.nonsense")
    with pytest.raises(FileFormatError, match="cannot be written"):
        draw(split, tmp_path / "missing" / "p.svg")


# Measuring


@pytest.mark.parametrize("name", [parameter("cpu"), parameter("vulkan:0")])
def test_measured_speeds_are_of_the_models_kernels(name: str) -> None:
    need(name)
    net = dl.models.LeNet()
    before = {name: tensor.storage for name, tensor in net.state_dict().items()}
    found = measure_speeds(net, dl.device(name), dl.empty(4, 1, 28, 28, device="cpu"))
    assert {kind.partition(".")[0] for kind in found.per_flop_of} == {"conv", "linalg"}
    assert found.launch > 0
    assert {name: tensor.storage for name, tensor in net.state_dict().items()} == before
    assert all(parameter.grad is None for parameter in net.parameters())
