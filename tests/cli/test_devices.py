"""``dl4all devices``, run as a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dl4all as dl

COMMAND = Path(sys.executable).with_name("dl4all")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


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
        assert {"subgroup_size", "float16", "int8", "backends"} <= device.keys()
        assert device["memory"] > 2**20
    assert found["auto"]["device"] in [name for d in found["devices"] for name in d["names"]]
    assert found["auto"]["reason"]


def test_table_shows_what_json_has() -> None:
    done = run("devices")
    assert done.returncode == 0
    assert done.stderr == ""
    found = report()
    for device in found["devices"]:
        for name in device["names"]:
            assert name in done.stdout
        assert device["hardware"] in done.stdout
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


def test_configured_device_is_what_auto_takes() -> None:
    assert report(DL4ALL_DEVICE="cpu")["auto"] == {"device": "cpu", "reason": "DL4ALL_DEVICE says so"}


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
    arguments: list[str], environment: dict[str, str], words: list[str]
) -> None:
    done = run(*arguments, **environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr


def test_version() -> None:
    assert run("--version").stdout.strip() == f"dl4all, version {dl.__version__}"
