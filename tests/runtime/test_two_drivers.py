"""Two Vulkan drivers at once: this machine's own and SwiftShader, which tools/swiftshader.sh fetches."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY, run_python
from tests.runtime.test_machines import FOLDERS, SAME_ADDRESS
from tests.support.subcases import FULL

pytestmark = [pytest.mark.slow, pytest.mark.vulkan]

SOFTMAX = (
    "tests/ops/test_every_op_in_torch.py::test_softmax_of_extremes"  # SwiftShader's exp(nan) is a number
)

FACTS = """
import json, dataclasses
import dl4all as dl
found = [[info.names, dataclasses.asdict(info)] for info in dl.devices() if info.type != "cpu"]
print(json.dumps(found, default=sorted))
"""
TOGETHER = """
import threading
import numpy as np
import dl4all as dl

names = [name for info in dl.devices() for name in info.names]

def network():
    return dl.nn.Sequential(
        dl.nn.Conv2d(3, 16, 3, padding=1), dl.nn.BatchNorm2d(16), dl.nn.ReLU(), dl.nn.AdaptiveAvgPool2d(1),
        dl.nn.Flatten(), dl.nn.Linear(16, 7), dl.nn.Softmax(1),
    ).eval()

net = network()
x = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype(np.float32)
weights = net.state_dict()
expected = net(dl.tensor(x, device="cpu")).numpy()
results = {}

def work(name):
    own = network()
    own.load_state_dict(weights)
    own.to(name)
    results[name] = [own(dl.tensor(x, device=name)).numpy() for _ in range(20)]

threads = [threading.Thread(target=work, args=(name,)) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert set(results) == set(names)
for name, found in results.items():
    for y in found:
        assert abs(y - expected).max() < 1e-5, name
y = dl.tensor(x, device="cpu")
for name in names:  # round all devices
    y = y.to(name) + 1.0
assert abs(y.numpy() - (x + len(names))).max() < 1e-5
print(len(names))
"""
ONE_GPU = """
import dl4all as dl
from dl4all.runtime import registry
from dl4all.runtime.records import measurements
discovery._device_type = lambda number: "discrete"
gpu, cpu = dl.devices()
print(len(gpu.drivers))
print([(dl.tensor([1.0], device=f"vulkan:{view.index}") + 1.0).tolist() for view in gpu.drivers])
measurements.store(f"vulkan:{gpu.others[0].index}", gpu.others[0], measurements.Measurement(900.0))
measurements.store(f"vulkan:{gpu.index}", gpu, measurements.Measurement(100.0))
print(dl.devices()[0].index == gpu.others[0].index)
"""


@functools.cache
def swiftshader() -> str:
    """The path of SwiftShader's ICD file."""
    script = REPOSITORY / "tools" / "swiftshader.sh"
    try:
        done = subprocess.run(["bash", script], capture_output=True, text=True, check=False, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"SwiftShader cannot be had here: {error}")
    if done.returncode:
        pytest.skip(f"SwiftShader cannot be had here: {done.stderr.strip()}")
    return done.stdout.strip()


@pytest.fixture
def drivers() -> dict[str, str]:
    """The environment in which the loader sees this machine's drivers and SwiftShader."""
    own = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    files = own.split(os.pathsep) if own else [str(f) for d in FOLDERS for f in Path(d).glob("*.json")]
    listed = os.pathsep.join([*files, swiftshader()])
    return {"VK_DRIVER_FILES": listed, "VK_ICD_FILENAMES": listed}


@pytest.fixture
def found(drivers: dict[str, str]) -> dict[str, Any]:
    """One SwiftShader and one other device, by what they are: the order is the loader's."""
    done = run_python(FACTS, **drivers)
    assert done.returncode == 0, done.stderr
    devices = json.loads(done.stdout)
    by_kind = {"SwiftShader" if "SwiftShader" in info["hardware"] else "own": info for _, info in devices}
    assert "SwiftShader" in by_kind
    if "own" not in by_kind:
        pytest.skip("this machine has no Vulkan driver of its own")
    return by_kind


def test_each_device_says_who_it_is(found: dict[str, Any]) -> None:
    ours, theirs = found["own"], found["SwiftShader"]
    assert theirs["driver"] == "SwiftShader driver"
    assert theirs["driver_id"] == "google_swiftshader"
    assert theirs["type"] == "software"
    assert theirs["pci"] == ""
    assert ours["others"] == theirs["others"] == []  # two devices, not one through two drivers
    assert ours["driver"] != theirs["driver"]
    assert ours["index"] != theirs["index"]
    assert ours["uuid"] != theirs["uuid"]


def test_at_one_address_they_are_one_device(drivers: dict[str, str], tmp_path: Path) -> None:
    """As RADV and AMDVLK are on one card. Both can be named, and both compute."""
    done = run_python(SAME_ADDRESS + ONE_GPU, **drivers, DL4ALL_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    listed, computed, chosen = done.stdout.splitlines()
    assert listed == "2"
    assert computed == "[[2.0], [2.0]]"
    assert chosen == "True"


def test_conformance(found: dict[str, Any], drivers: dict[str, str]) -> None:
    """And ops by what drivers differ in. DL4ALL_TEST_DEVICES makes a missing device a failure.

    The usual run asks SwiftShader alone, without Kompute, staging and ops: the other tests ask this
    machine's driver for them.
    """
    ops = ["tests/ops/linalg/test_gemm.py", "tests/ops/test_shaders.py"] if FULL else []
    if FULL:
        wanted = [f"{backend}:{info['index']}" for info in found.values() for backend in info["backends"]]
        left_out = ""
    else:
        drivers = {"VK_DRIVER_FILES": swiftshader(), "VK_ICD_FILENAMES": swiftshader()}
        wanted = ["vulkan:0"]
        left_out = " and not kompute and not llvmpipe and not staging"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "vulkan and not slow"),
            *("tests/conformance", "dl4all/testing/conformance"),
            *(*ops, SOFTMAX),
            # All layouts with all tiles, and all shaders on all hardware, take minutes on each driver.
            *("-k", f"not turned_operands and not rows_apart and not launch_the_shaders{left_out}"),
        ],
        cwd=REPOSITORY,
        env={**os.environ, **drivers, "DL4ALL_TEST_DEVICES": ",".join(wanted)},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr


def test_all_at_once(found: dict[str, Any], drivers: dict[str, str]) -> None:
    """Every device runs a network in a thread of its own, then a tensor goes round all of them."""
    done = run_python(TOGETHER, **drivers)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1 + sum(len(info["backends"]) for info in found.values())
