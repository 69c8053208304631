"""Drivers that can be loaded without hardware: what they describe is listed, and never opened.

Mesa's RADV describes any of AMD's GPUs for its compiler's sake; Intel's drivers find nothing. Each in a
process of its own, since a driver reads the environment once.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import run_python

pytestmark = pytest.mark.vulkan
MANIFESTS = Path("/usr/share/vulkan/icd.d")
FAMILIES = ("navi21", "polaris10", "vega10", "navi10", "navi31", "gfx1100")  # names differ between versions

# vkCreateDevice is not to be called: some drivers crash when what it made is closed.
CODE = """
import json, sys
from click.testing import CliRunner
import dl4all as dl
from dl4all.cli import cli
from dl4all.runtime import registry
from dl4all.runtime.kompute import backend as kompute
from dl4all.runtime.vulkan import backend as vulkan

def never(*arguments):
    raise AssertionError("opened")

described = [info for info in dl.devices() if info.compiles_only]
create, manager = vulkan._create_device, kompute.manager
vulkan._create_device = kompute.manager = never
errors = []
for name in [name for info in described for name in info.names] + ["gpu"]:
    try:
        dl.device(name)
    except dl.Dl4allError as error:
        errors.append(f"{type(error).__name__} {error}")
vulkan._create_device, kompute.manager = create, manager

def run(*arguments):
    result = CliRunner().invoke(cli, arguments)
    if result.exception is not None and not isinstance(result.exception, (SystemExit, dl.Dl4allError)):
        raise result.exception
    return result.stdout

print(json.dumps({
    "hardware": [info.hardware for info in described],
    "errors": errors,
    "auto": dl.device().name,
    "group": [str(device) for device in dl.DeviceGroup("all")],
    "usable": [info.names[0] for info in registry.usable()],
    "table": run("devices", "--why"),
    "json": json.loads(run("devices", "--json")),
    "doctor": json.loads(run("doctor", "--json")) if DOCTOR else [],
}))
"""


def look(doctor: bool, /, **environment: str) -> dict[str, object]:
    done = run_python(f"DOCTOR = {doctor}\n" + CODE, DL4ALL_CALIBRATE="0", DL4ALL_TOP="0", **environment)
    if "Unknown family" in done.stderr:  # this version's driver ends the process
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def manifest(driver: str) -> dict[str, str]:
    """The environment in which the loader knows that driver alone."""
    files = sorted(MANIFESTS.glob(f"{driver}_icd*.json"))
    if not files:
        pytest.skip(f"the driver {driver} is not installed")
    return {"VK_ICD_FILENAMES": str(files[0]), "VK_DRIVER_FILES": str(files[0])}


def null_hardware(family: str, **environment: str) -> dict[str, object]:
    found = look(False, RADV_FORCE_FAMILY=family, **environment)
    if not found["hardware"]:
        pytest.skip(f"this RADV does not describe {family}")
    return found


@pytest.mark.parametrize(
    "family", [FAMILIES[0], *(pytest.param(family, marks=pytest.mark.full) for family in FAMILIES[1:])]
)
def test_hardware_that_is_only_described(family: str) -> None:
    found = null_hardware(family, **manifest("radeon"))
    errors, table = found["errors"], str(found["table"])
    assert isinstance(errors, list)
    for error in errors[:-1]:
        assert error.startswith("DeviceError [vulkan] Null hardware (RADV ")
        assert "compiles only, as it has no memory: radv describes a GPU that is not here" in error
    assert len(errors) >= 2
    assert errors[-1].startswith("UnknownDeviceError vulkan:0 is left out: it compiles only; use one of: cpu")
    assert found["auto"] == "cpu"
    assert found["group"] == found["usable"] == ["cpu"]
    assert table.count("compiles only") >= 3
    report = found["json"]
    assert isinstance(report, dict)
    null, cpu = report["devices"]
    assert (null["compiles_only"], null["memory"], null["free_memory"]) == (True, 0, None)
    assert cpu["compiles_only"] is False


def test_beside_a_driver_that_computes() -> None:
    """All drivers of the machine: the described GPU takes an index, and no other device minds."""
    found = null_hardware("navi21")
    usable = found["usable"]
    assert isinstance(usable, list)
    assert sorted(found["group"]) == sorted(usable)  # type: ignore[call-overload]
    assert "cpu" in usable


@pytest.mark.usefixtures("deadline")
def test_the_doctor_calls_it_no_failure() -> None:
    environment = manifest("radeon")
    null_hardware("navi21", **environment)
    doctor = look(True, RADV_FORCE_FAMILY="navi21", **environment)["doctor"]
    assert isinstance(doctor, list)
    findings = {finding["what"]: finding for finding in doctor}
    for what in ("Vulkan drivers", "computing on vulkan:0"):
        assert findings[what]["ok"] is None
        assert "compiles only" in findings[what]["seen"]
        assert "RADV_FORCE_FAMILY" in findings[what]["remedy"]
    assert "vulkan:0" not in findings["calibration"]["seen"]
    assert findings["computing on cpu"]["ok"] is True


@pytest.mark.parametrize("driver", ["intel", "intel_hasvk", "radeon"])
def test_a_driver_that_may_find_nothing(driver: str) -> None:
    """The CPU is there all the same, and the report says what kept Vulkan away, if anything did."""
    found = look(False, **manifest(driver))
    assert "cpu" in found["usable"]  # type: ignore[operator]
    report = found["json"]
    assert isinstance(report, dict)
    assert (report["problem"] is None) == any("vulkan:0" in device["names"] for device in report["devices"])
