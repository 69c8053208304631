"""Measuring devices and keeping what was found."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dl4all as dl
from dl4all import calibration
from dl4all.runtime import measurements, registry
from dl4all.runtime.measurements import Measurement

COMMAND = Path(sys.executable).with_name("dl4all")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "SECONDS", 0.0)
    monkeypatch.setattr(calibration, "MATMUL", 96)
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


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b'{"x": 3}'])
def test_a_damaged_file_counts_as_empty_and_is_replaced(own_cache: Path, content: bytes) -> None:
    info = dl.device("cpu").info
    (own_cache / "calibration.json").write_bytes(content)
    assert measurements.lookup("cpu", info) is None
    measurements.store("cpu", info, Measurement(launch_us=2))
    assert measurements.lookup("cpu", info) == Measurement(launch_us=2)
    assert [path.name for path in own_cache.iterdir()] == ["calibration.json"]


def test_a_record_of_another_shape_is_ignored(own_cache: Path) -> None:
    info = dl.device("cpu").info
    measurements.store("cpu", info, Measurement(launch_us=2))
    path = own_cache / "calibration.json"
    records = {key: {"speed": 3} for key in json.loads(path.read_text())}
    path.write_text(json.dumps(records))
    assert measurements.lookup("cpu", info) is None


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
        done = subprocess.run(
            [COMMAND, "devices", *arguments],
            capture_output=True,
            text=True,
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
