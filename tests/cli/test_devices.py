"""``dl4all devices``, run as a command."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import dl4all as dl
from dl4all.cli import cli
from dl4all.errors import OutOfMemoryError
from dl4all.runtime import registry
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.records import measurements
from dl4all.runtime.records.measurements import Measurement
from tests.cli.conftest import Command
from tests.support.forked_process import COMMAND, run_forked

devices_command = import_module("dl4all.cli.devices")  # the package has the command under this name


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_forked([COMMAND, *arguments], env={**os.environ, **environment})


def report(**environment: str) -> dict[str, Any]:
    done = run("devices", "--json", **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_json_has_every_device_and_fact() -> None:
    found = report()
    assert [d["hardware"] for d in found["devices"]] == [d.hardware for d in dl.devices()]
    for device in found["devices"]:
        assert {
            "names",
            "type",
            "vendor",
            "driver",
            "driver_version",
            "api_version",
            "memory",
        } <= device.keys()
        assert {"subgroup_size", "features", "backends", "limits", "heaps", "queue_families"} <= device.keys()
        assert {"cooperative_matrices", "compiles_only"} <= device.keys()
        assert {"driver_id", "uuid", "pci", "others", "measured", "free_memory"} <= device.keys()
        assert device["features"] == sorted(device["features"])
        assert device["limits"]["push_constants"] >= 128
        assert device["memory"] > 2**20
    assert found["auto"]["device"] in [name for d in found["devices"] for name in d["names"]]
    assert found["auto"]["reason"]
    assert found["auto"]["why"]


def test_table_shows_what_json_has() -> None:
    done = run("devices")
    assert done.returncode == 0
    assert done.stderr == ""
    found = report()
    for device in found["devices"]:
        for name in device["names"]:
            assert name in done.stdout
        assert device["hardware"] in done.stdout
    assert re.findall(r"(\S+) \*", done.stdout) == [found["auto"]["device"]]
    assert f'device="auto" is {found["auto"]["device"]}: {found["auto"]["reason"]}' in done.stdout


def test_every_name_in_the_list_can_be_opened() -> None:
    for device in report()["devices"]:
        for name in device["names"]:
            assert dl.ones(2, device=name).tolist() == [1.0, 1.0]


def test_without_a_driver_it_works_and_says_how_to_get_one(tmp_path: Path) -> None:
    nowhere = {
        "VK_DRIVER_FILES": str(tmp_path / "none.json"),
        "VK_ICD_FILENAMES": str(tmp_path / "none.json"),
    }
    found = report(**nowhere)
    assert [d["type"] for d in found["devices"]] == ["cpu"]
    assert "mesa-vulkan-drivers" in found["problem"]
    assert "mesa-vulkan-drivers" in run("devices", **nowhere).stdout


@pytest.fixture
def two_drivers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[DeviceInfo, DeviceInfo]:
    """One card through AMDVLK as device 0 and RADV as device 1, and a CPU, none of them measured."""
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DL4ALL_DEVICE", raising=False)
    amdvlk, radv = (
        dataclasses.replace(
            dl.device("cpu").info,
            index=index,
            hardware="Some Radeon",
            type="discrete",
            driver=name,
            driver_id=driver_id,
            pci="0000:03:00.0",
            uuid=f"{index + 1:032x}",
            backends=("mine",),
        )
        for index, (name, driver_id) in enumerate((("AMDVLK", "amd_open_source"), ("radv", "mesa_radv")))
    )
    machine = registry.Found((amdvlk, radv, dl.device("cpu").info), {})
    monkeypatch.setattr(registry, "find", lambda: machine)
    return amdvlk, radv


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_gpu_of_two_drivers_is_shown_with_both(two_drivers: tuple[DeviceInfo, DeviceInfo]) -> None:
    table = invoke("devices", "--why")
    assert table.count("Some Radeon") == 2  # in the table, and in the explanation
    assert 'device="auto" is mine:1' in table
    for word in ("mine:0", "AMDVLK", "radv", "the same, other driver", "0000:03:00.0"):
        assert word in table
    assert "radv rather than AMDVLK: AMD supports it in place of its own drivers for Linux" in table
    found = json.loads(invoke("devices", "--json"))
    assert [device["names"] for device in found["devices"]] == [["mine:1"], ["cpu"]]
    assert [other["driver"] for other in found["devices"][0]["others"]] == ["AMDVLK"]


def test_why_tells_all_that_was_measured(two_drivers: tuple[DeviceInfo, DeviceInfo]) -> None:
    amdvlk, radv = two_drivers
    measurements.store("mine:0", amdvlk, Measurement(911.0, 222.0, 33.0, 44.0, 5.5))
    measurements.store("mine:1", radv, Measurement(problem="a chain differs by 3e-1"))
    measurements.store("cpu", dl.device("cpu").info, Measurement(77.0, 1.0, 1.0, 1.0, 1.0))
    text = invoke("devices", "--why")
    assert 'device="auto" is mine:0: mine:0 measured 911 GFLOP/s; cpu measured 77 GFLOP/s' in text
    assert "AMDVLK rather than radv: what that computes is wrong" in text
    assert "the fastest matrix product decides" in text
    assert "a chain differs by 3e-1" in text
    for number in ("911.0", "222.0", "33.0", "44.0", "5.5", "wrong"):
        assert number in text


def test_calibrate_goes_on_behind_a_device_that_has_no_memory(
    two_drivers: tuple[DeviceInfo, DeviceInfo], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []

    def calibrate(name: str) -> None:
        if name == "mine:1":
            raise OutOfMemoryError("[mine] nothing left; free tensors")
        measured.append(name)

    monkeypatch.setattr(devices_command, "calibrate_device", calibrate)
    assert "mine:1 was not measured: [mine] nothing left" in invoke("devices", "--calibrate")
    assert measured == ["mine:0", "cpu"]


def test_configured_device_is_what_auto_takes() -> None:
    found = report(DL4ALL_DEVICE="cpu")["auto"]
    assert (found["device"], found["reason"]) == ("cpu", "DL4ALL_DEVICE says so")
    assert found["why"][0] == "Without that setting:"
    assert "Without that setting:" in run("devices", "--why", DL4ALL_DEVICE="cpu").stdout


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["devices", "--jason"], {}, ["--jason"]),
        (["device"], {}, ["device"]),
        (["devices"], {"DL4ALL_DEVICE": "vulkan:99"}, ["DL4ALL_DEVICE", "vulkan:99", "cpu"]),
        (["devices"], {"DL4ALL_DEVICE": "cuda"}, ["DL4ALL_DEVICE", "cuda", "cpu"]),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
    arguments: list[str],
    environment: dict[str, str],
    words: list[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr


def test_version() -> None:
    assert run("--version").stdout.strip() == f"dl4all, version {dl.__version__}"
