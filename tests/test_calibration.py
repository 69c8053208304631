"""Measuring devices and keeping what was found."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dl4all as dl
from dl4all import calibration
from dl4all.runtime import registry
from dl4all.runtime.records import file_cache, measurements
from dl4all.runtime.records.measurements import Measurement
from tests.conftest import REPOSITORY, need
from tests.support.forked_process import COMMAND, ForkedProcess, run_forked


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "SECONDS_PER_NUMBER", 0.0)
    monkeypatch.setattr(calibration, "MATMUL_SIZES", (96,))
    monkeypatch.setattr(calibration, "COPY_BYTES", 1 << 16)


def test_every_number_is_measured_and_kept(device: str) -> None:
    info = dl.device(device).info
    assert measurements.lookup(device, info) is None
    found = dl.calibrate(device)
    *numbers, problem = dataclasses.astuple(found)
    assert problem == ""
    assert min(numbers) > 0
    assert measurements.lookup(device, info) == found


def test_a_record_is_of_one_backend_device_and_driver() -> None:
    info = dl.device("cpu").info
    measurements.store("vulkan:0", info, Measurement(matmul_gflops=7))
    assert measurements.lookup("vulkan:0", info) == Measurement(matmul_gflops=7)
    assert measurements.lookup("kompute:0", info) is None
    for change in ({"uuid": "other"}, {"driver_version": "next"}, {"driver": "other"}, {"hardware": "other"}):
        assert measurements.lookup("vulkan:0", dataclasses.replace(info, **change)) is None  # type: ignore[arg-type]
    moved = dataclasses.replace(info, index=3)
    assert measurements.lookup("vulkan:3", moved) == Measurement(matmul_gflops=7)


def record(folder: Path) -> Path:
    """The one calibration record that there is."""
    [file] = (folder / "calibration").glob("*.json")
    return file


@pytest.mark.parametrize("damage", ["nothing left", "cut short", "a bit", "of another device", "zeros"])
def test_a_damaged_record_counts_as_none_and_is_replaced(own_cache: Path, damage: str) -> None:
    info = dl.device("cpu").info
    measurements.store("cpu", info, Measurement(launch_us=2))
    file = record(own_cache)
    whole = file.read_bytes()
    measurements.store("vulkan:0", info, Measurement(launch_us=3))
    [other] = set((own_cache / "calibration").glob("*.json")) - {file}
    file.write_bytes(
        {
            "nothing left": b"",
            "cut short": whole[:-9],
            "a bit": whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:],
            "of another device": other.read_bytes(),
            "zeros": bytes(len(whole)),
        }[damage]
    )
    assert measurements.lookup("cpu", info) is None
    registry.auto()
    measurements.store("cpu", info, Measurement(launch_us=4))
    assert measurements.lookup("cpu", info) == Measurement(launch_us=4)
    assert len(list((own_cache / "calibration").iterdir())) == 2


@pytest.mark.parametrize(
    "measurement",
    [
        {"speed": 3},
        {"matmul_gflops": "fast"},
        {"matmul_gflops": float("nan")},
        {"matmul_gflops": -1.0},
        {"problem": 3},
        {"problem": None},
        [],
        "text",
        7,
    ],
)
def test_a_record_of_another_shape_is_ignored(own_cache: Path, measurement: Any) -> None:
    info = dl.device("cpu").info
    measurements.store("cpu", info, Measurement(launch_us=2))
    content = file_cache.read(record(own_cache))
    assert content is not None
    changed = json.loads(content) | {"measurement": measurement}
    file_cache.write(record(own_cache), json.dumps(changed).encode())
    assert measurements.lookup("cpu", info) is None


@pytest.mark.parametrize("content", [b"[1, 2]", b"{}", b"3", b"\xff\xfe", b"{", b'{"of": 3}'])
def test_a_record_that_is_none_is_ignored(own_cache: Path, content: bytes) -> None:
    info = dl.device("cpu").info
    measurements.store("cpu", info, Measurement(launch_us=2))
    file_cache.write(record(own_cache), content)
    assert measurements.lookup("cpu", info) is None


def test_processes_that_measure_at_once_lose_nothing(own_cache: Path) -> None:
    code = (
        "import sys, dataclasses\n"
        "import dl4all as dl\n"
        "from dl4all.runtime.records import measurements\n"
        "info = dl.device('cpu').info\n"
        "for i in range(40):\n"
        "    measurements.store(sys.argv[1] + ':' + str(i), dataclasses.replace(info, uuid=str(i)),\n"
        "        measurements.Measurement(launch_us=i))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    processes = [
        ForkedProcess([sys.executable, "-c", code, name], env=environment)
        for name in ("vulkan", "kompute", "mine")
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    for name in ("vulkan", "kompute", "mine"):
        for i in range(40):
            info = dataclasses.replace(dl.device("cpu").info, uuid=str(i))
            assert measurements.lookup(f"{name}:{i}", info) == Measurement(launch_us=i)


def test_least_limits_have_records_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    info = dl.device("cpu").info
    measurements.store("vulkan:0", info, Measurement(launch_us=2))
    monkeypatch.setenv("DL4ALL_LIMITS", "minimum")
    assert measurements.lookup("vulkan:0", info) is None


# A process that does not survive


DIES = """
import os, signal, sys
import dl4all as dl
from dl4all import calibration
calibration._examine = lambda name: os.kill(os.getpid(), int(sys.argv[1]))
dl.calibrate("cpu")
"""


def die(number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIES, str(number)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert done.returncode == -number


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_a_driver_that_ends_the_process_twice_is_evidence(number: int) -> None:
    info = dl.device("cpu").info
    die(number)
    assert measurements.lookup("cpu", info) is None  # once may have been something else
    die(number)
    found = measurements.lookup("cpu", info)
    assert found is not None
    assert found.problem.startswith("the process ended 2 times while this was measured")
    assert dl.calibrate("cpu").problem == ""
    found = measurements.lookup("cpu", info)
    assert found is not None
    assert found.problem == ""


def test_a_process_that_ends_leaves_what_was_measured_before() -> None:
    info = dl.device("cpu").info
    before = dl.calibrate("cpu")
    die(signal.SIGKILL)
    assert measurements.lookup("cpu", info) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), dl.errors.OutOfMemoryError("full")])
def test_what_is_no_evidence_leaves_everything_as_it_was(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    info = dl.device("cpu").info

    def fail(*_: object) -> object:
        raise error

    for before in (None, Measurement(launch_us=3)):
        if before is not None:
            measurements.store("cpu", info, before)
        with monkeypatch.context() as patch:
            patch.setattr(calibration, "_chain", fail)
            for _ in range(3):
                with pytest.raises(type(error)):
                    dl.calibrate("cpu")
        assert measurements.lookup("cpu", info) == before


def test_one_process_measures_at_a_time(own_cache: Path) -> None:
    code = (
        "import time\n"
        "from dl4all.runtime.records import measurements\n"
        "with measurements.alone(5) as may:\n"
        "    print(may, flush=True); time.sleep(60)\n"
    )
    process = ForkedProcess(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    with measurements.alone(0.05) as may:
        assert not may
    process.kill()
    process.communicate()
    with measurements.alone(0.05) as may:  # the lock went with it
        assert may


# At first use

FIRST_USE = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
from dl4all import calibration
from dl4all.runtime.vulkan import discovery
calibration.SECONDS_PER_NUMBER, calibration.MATMUL_SIZES, calibration.COPY_BYTES = 0.0, (96,), 1 << 16
discovery._device_type = lambda number: "integrated"  # whatever is here poses as a real GPU
import dl4all as dl
x = dl.tensor([1.0, 2.0])
assert x.device is dl.tensor([3.0]).device
print((x + 1.0).tolist())
print(x.device)
"""


@pytest.mark.vulkan
def test_the_first_process_of_three_measures_for_all(own_cache: Path) -> None:
    need("vulkan:0")
    environment = {k: v for k, v in os.environ.items() if k not in ("DL4ALL_DEVICE", "DL4ALL_CALIBRATE")}
    processes = [
        ForkedProcess(
            [sys.executable, "-c", FIRST_USE],
            env={**environment, "PYTHONPATH": str(REPOSITORY)},
            cwd=own_cache,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    said = [line for lines in outputs for line in lines if line.startswith("measuring once")]
    assert len(said) == 1, outputs
    assert "vulkan:0" in said[0]
    assert said[0].endswith("(DL4ALL_CALIBRATE=0: never)")
    assert {lines[-2] for lines in outputs} == {"[2.0, 3.0]"}
    assert len({lines[-1] for lines in outputs}) == 1  # all of them take the same device
    assert all(file_cache.read(file) for file in (own_cache / "calibration").glob("*.json"))


# What counts


def test_an_unwritable_folder_is_no_error(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_cache / "file").write_text("in the way")
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(own_cache / "file"))
    measurements.store("cpu", dl.device("cpu").info, Measurement(launch_us=2))
    assert measurements.lookup("cpu", dl.device("cpu").info) is None


def test_wrong_results_are_evidence_and_never_auto(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = calibration._chain
    calls: list[str] = []

    def wrong(x: dl.Tensor, w: dl.Tensor) -> Any:
        result = honest(x, w).copy()
        calls.append(str(x.device))
        if len(calls) == 2:  # the first is the CPU's
            result[3, 5] *= 1.5
        return result

    monkeypatch.setattr(calibration, "_chain", wrong)
    found = dl.calibrate(device)
    assert calls == ["cpu", device]
    assert "differs from the CPU's" in found.problem
    assert found.matmul_gflops == 0
    if device != "cpu":
        assert registry.auto().name != device


def test_a_failing_device_is_evidence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise dl.errors.DeviceLostError("gone")

    monkeypatch.setattr(calibration, "_chain", fail)
    assert dl.calibrate("cpu").problem == "failed: gone"


def test_what_another_packages_backend_raises_is_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(calibration, "_chain", fail)
    assert dl.calibrate("cpu").problem == "failed: ZeroDivisionError: division by zero"


def test_a_device_that_cannot_be_opened_is_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: str) -> object:
        raise dl.errors.DeviceError("[vulkan] opening it failed: VK_ERROR_INITIALIZATION_FAILED")

    monkeypatch.setattr(calibration, "device", closed)
    assert dl.calibrate("cpu").problem.endswith("VK_ERROR_INITIALIZATION_FAILED")


@pytest.mark.parametrize("name", ["vulkan:77", "cuda"])
def test_a_device_that_is_not_here_is_an_error(name: str) -> None:
    with pytest.raises(dl.errors.DeviceError):
        dl.calibrate(name)


def test_auto_goes_by_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DL4ALL_DEVICE", raising=False)
    for info in registry.devices():
        for name in info.names:
            measurements.store(name, info, Measurement(matmul_gflops=1e6 if name == "vulkan:0" else 1.0))
    here = any("vulkan:0" in info.names for info in registry.devices())
    choice = registry.auto()
    assert choice.name == ("vulkan:0" if here else "cpu")
    assert "measured" in choice.reason


def test_the_command_measures_keeps_and_explains(own_cache: Path) -> None:
    def run(*arguments: str) -> str:
        done = run_forked(
            [COMMAND, "devices", *arguments],
            check=True,
            env={**os.environ, "DL4ALL_CACHE_DIR": str(own_cache), "DL4ALL_DEVICE": ""},
        )
        return done.stdout

    assert "--calibrate" in run()
    assert "not measured" in run("--why")
    table = run("--calibrate")
    assert "not measured" not in table.lower()
    report = json.loads(run("--json"))
    for device in report["devices"]:
        for name in device["names"]:
            assert device["measured"][name]["matmul_gflops"] > 0
            assert name in table
    assert "measured" in report["auto"]["reason"]
