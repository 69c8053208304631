"""The accelerator under the names of ``torch.cuda``, and data of the CPU that comes along to it."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, BackendMissingError, ConfigError, UnknownDeviceError
from dl4all.scheduler.device import current
from tests.conftest import run_python

pytestmark = pytest.mark.vulkan


@pytest.fixture
def accelerator() -> Iterator[dl.Device]:
    """A Vulkan device that new tensors go to."""
    with dl.device("vulkan:0") as device:
        yield device


def test_the_idioms_of_scripts(accelerator: dl.Device) -> None:
    device = dl.device("cuda" if dl.cuda.is_available() else "cpu")
    assert device is accelerator
    assert dl.device("cuda:0") is dl.device("cuda", 0) is dl.device("gpu") is device
    assert dl.cuda.device_count() >= 1
    assert (dl.cuda.current_device(), dl.accelerator.current_device_index()) == (0, 0)
    for made in (
        dl.ones(2).cuda(), dl.ones(2, device="cpu").cuda(0), dl.ones(2, device="cuda"), dl.ones(2).to(0),
        dl.cuda.FloatTensor([1, 2]), dl.ones(2, device="cpu").type(dl.cuda.FloatTensor),
        dl.ones(2, device="cpu").type("torch.cuda.FloatTensor"), dl.cuda.FloatTensor(2),
    ):  # fmt: skip
        assert made.device is device
        assert made.is_cuda
        assert isinstance(made, dl.cuda.FloatTensor)
        assert made.dtype == dl.float32
    assert not dl.ones(2, device="cpu").is_cuda
    assert not isinstance(dl.ones(2, device="cpu"), dl.cuda.FloatTensor)
    net = dl.nn.Sequential(dl.nn.Linear(3, 2)).to("cpu").cuda()
    assert net[0].weight.is_cuda


def test_types_and_names_are_compared(accelerator: dl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = accelerator.type
    assert kind == "cuda"
    assert kind == "vulkan"
    assert (kind != "cuda") is False
    assert kind != "cpu"
    assert kind in ("cuda", "mps")
    assert {"vulkan": 1}[kind] == 1
    assert (str(kind), f"{kind}", repr(kind)) == ("vulkan", "vulkan", "'vulkan'")
    assert type(pickle.loads(pickle.dumps(kind))) is type(copy.deepcopy(kind)) is str
    monkeypatch.setattr(current, "accelerators", lambda: ["vulkan:0", "null:0"])  # of unlike types
    other: Any = dl.device("null:0").type
    assert other == "cuda"
    assert kind != other
    monkeypatch.undo()
    assert accelerator == "cuda"
    assert accelerator == "cuda:0"
    assert accelerator != "cuda:1"
    assert dl.device("cpu") != "cuda"
    assert dl.device("cpu").type != "cuda"


def test_facts_and_memory(accelerator: dl.Device) -> None:
    assert dl.cuda.get_device_name(0) == accelerator.info.hardware
    properties = dl.cuda.get_device_properties("cuda")
    assert (properties.name, properties.total_memory) == (accelerator.info.hardware, accelerator.info.memory)
    assert dl.cuda.get_device_capability() == (properties.major, properties.minor) == (0, 0)
    before = dl.cuda.memory_allocated()
    x = dl.ones(101, 101)
    assert dl.cuda.memory_allocated() - before >= x.nbytes
    assert dl.cuda.max_memory_allocated(0) >= dl.cuda.memory_stats()["allocated_bytes.all.current"]
    free, total = dl.cuda.mem_get_info()
    assert 0 < free <= total
    assert dl.cuda.memory_summary() == dl.memory.summary(accelerator)
    dl.cuda.reset_peak_memory_stats()
    dl.cuda.empty_cache()
    assert dl.cuda.is_initialized()


def test_events_and_streams(accelerator: dl.Device) -> None:
    begin, end = (dl.cuda.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(ArgumentError, match="enable_timing"):
        begin.elapsed_time(end)
    side = dl.cuda.Stream()
    begin.record()
    with dl.cuda.stream(side):
        x = dl.ones(500, 500) @ dl.ones(500, 500)
    side.wait_stream(dl.cuda.current_stream())
    end.record(side)
    end.synchronize()
    assert end.query()
    assert begin.elapsed_time(end) > 0
    assert x[0, 0].item() == 500
    assert side == dl.cuda.default_stream()
    side.record_event().wait()


def test_a_seed_of_the_device_is_no_other_generator(accelerator: dl.Device) -> None:
    dl.manual_seed(3)
    expected = dl.rand(4).tolist()
    dl.manual_seed(3)
    dl.cuda.manual_seed_all(7)
    states = dl.cuda.get_rng_state_all()
    assert dl.rand(4).tolist() == expected
    dl.cuda.set_rng_state_all(states)
    assert dl.rand(4).tolist() == expected


def test_numbers_that_no_device_has(accelerator: dl.Device) -> None:
    assert str(dl.device("cuda:7")) == "cuda:7"  # compared, not used
    for used in (lambda: dl.ones(2, device="cuda:7"), lambda: dl.ones(2).cuda(7), lambda: dl.ones(2).to(7)):
        with pytest.raises(UnknownDeviceError, match=r"no device cuda:7 here; there are cuda:0 \(vulkan:0\)"):
            used()
    for index in (7, -1):
        with pytest.raises(UnknownDeviceError, match="no accelerator"):
            dl.accelerator.set_device_index(index)


def test_where_weights_are_loaded_to(accelerator: dl.Device) -> None:
    file = io.BytesIO()
    dl.save({"w": dl.arange(3, device="cpu")}, file)
    for location in ("cuda", {"cpu": "cuda:0"}, dl.device("cuda")):
        file.seek(0)
        assert dl.load(file, map_location=location)["w"].is_cuda


def test_with_the_cpu_as_the_default_nothing_is_called_cuda() -> None:
    with dl.device("cpu"):
        assert not dl.cuda.is_available()
        assert dl.cuda.device_count() == 0
        assert not dl.ones(2, device="vulkan:0").is_cuda
        for refused in (dl.cuda.current_device, dl.ones(2).cuda, dl.nn.ReLU().cuda, dl.cuda.get_device_name):
            with pytest.raises(BackendMissingError, match="no device is called cuda"):
                refused()


SCRIPT = """
import logging, dl4all as torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = torch.nn.Linear(3, 2).to(device)
print(net(torch.ones(1, 3).to(device)).device, torch.accelerator.is_available(), torch.device("cuda"))
print("gpu" if torch.accelerator.is_available() else "cpu")
print(torch.ones(1, device="gpu").device if torch.accelerator.is_available() else "none")
"""


@pytest.mark.parametrize(
    ("settings", "printed", "said"),
    [
        ({"DL4ALL_DEVICE": "vulkan:0"}, ["vulkan:0 True vulkan:0", "gpu", "vulkan:0"], 1),
        ({"DL4ALL_DEVICE": "vulkan:0", "DL4ALL_CUDA": "0"}, ["cpu True cuda", "gpu", "vulkan:0"], 0),
        ({"DL4ALL_DEVICE": "cpu"}, ["cpu False cuda", "cpu", "none"], 0),
    ],
)
def test_a_script_with_another_import(settings: dict[str, str], printed: list[str], said: int) -> None:
    ran = run_python(SCRIPT, **settings)
    assert ran.stderr.count('"cuda" means vulkan:0 here') == said
    assert ran.stdout.split("\n")[:-1] == printed, ran.stderr


def test_settings_are_checked(monkeypatch: pytest.MonkeyPatch, accelerator: dl.Device) -> None:
    monkeypatch.setenv("DL4ALL_CUDA", "maybe")
    with pytest.raises(ConfigError, match="DL4ALL_CUDA must be 0, 1 or empty, not 'maybe'"):
        dl.cuda.is_available()
    monkeypatch.setenv("DL4ALL_CUDA", "0")
    assert not dl.cuda.is_available()
    assert accelerator.type != "cuda"
    monkeypatch.setenv("DL4ALL_MIXED", "sometimes")
    data = dl.from_numpy(np.ones(3, np.float32))
    with pytest.raises(ConfigError, match="DL4ALL_MIXED must be move or error"):
        _ = data + dl.ones(3)
