"""``dl4all doctor``, run as a command and piece by piece."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.cli import checks
from dl4all.errors import BackendMissingError, DeviceError
from dl4all.runtime import registry
from dl4all.runtime.cpu import blas
from dl4all.runtime.device_info import DeviceType
from dl4all.runtime.records import file_cache, measurements
from dl4all.runtime.records.measurements import Measurement
from dl4all.runtime.spirv import compilers
from tests.support.forked_process import COMMAND, run_forked


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_forked(
        [COMMAND, "doctor", *arguments],
        env={**os.environ, **environment},
    )


def findings(**environment: str) -> dict[str, dict[str, Any]]:
    return {found["what"]: found for found in json.loads(run("--json", **environment).stdout)}


def test_a_working_machine_is_well() -> None:
    done = run("--json")
    found = {entry["what"]: entry for entry in json.loads(done.stdout)}
    for device in dl.devices():
        for name in device.names:
            assert found[f"computing on {name}"]["ok"] is True
    assert done.returncode == int(any(entry["ok"] is False for entry in found.values()))
    assert [entry for entry in found.values() if entry["ok"] is not True and not entry["remedy"]] == []


def test_the_table_has_every_finding_and_remedy(tmp_path: Path) -> None:
    nowhere = {"VK_DRIVER_FILES": str(tmp_path / "x"), "VK_ICD_FILENAMES": str(tmp_path / "x")}
    table = run(**nowhere).stdout
    for what in findings(**nowhere):
        assert what in table
    assert "[vulkan] no Vulkan driver" in table


def test_without_a_driver(tmp_path: Path) -> None:
    nowhere = {"VK_DRIVER_FILES": str(tmp_path / "x"), "VK_ICD_FILENAMES": str(tmp_path / "x")}
    found = findings(**nowhere)
    assert found["Vulkan drivers"]["ok"] is False
    assert "mesa-vulkan-drivers" in found["Vulkan drivers"]["remedy"]
    assert found["computing on cpu"]["ok"] is True
    assert run(**nowhere).returncode == 1


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_compiled_kernels(kernels: str) -> None:
    if kernels == "1":
        pytest.importorskip("llvmlite")
    found = findings(DL4ALL_CPU_KERNELS=kernels, DL4ALL_THREADS="3")["CPU kernels"]
    if kernels == "1":
        assert found["ok"] is True
        assert found["seen"].endswith(", 3 threads")
    else:
        assert found["ok"] is None
        assert found["seen"] == "DL4ALL_CPU_KERNELS=0: NumPy computes"
        assert "without DL4ALL_CPU_KERNELS" in found["remedy"]


def test_the_checks_are_these() -> None:
    """What the page on devices promises."""
    names = [name for device in dl.devices() for name in device.names]
    assert list(findings()) == [
        "settings",
        "Vulkan loader",
        "driver files",
        "Vulkan drivers",
        "render nodes",
        "validation layer",
        "GLSL compiler",
        "cache",
        "Kompute",
        "BLAS",
        "CPU kernels",
        *(f"computing on {name}" for name in names),
        "calibration",
    ]


# Every way in which something can be missing


def red(finding: checks.Finding, *words: str) -> None:
    """It is not well, and the remedy says these words."""
    assert finding.ok is False
    assert finding.seen
    for word in words:
        assert word in finding.remedy


def fails(error: Exception) -> Any:
    def fail(*_: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    "text", ["device = 3\n", "devise = 'cpu'\n", "device = 'vulkan:77'\n", "calibrate = 1\n", "\xff"]
)
def test_settings_with_a_mistake(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DL4ALL_DEVICE", raising=False)
    monkeypatch.delenv("DL4ALL_CALIBRATE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dl4all.toml").write_text(text, encoding="latin-1")
    red(checks._safely("settings", checks._settings), "dl4all.toml")


@pytest.mark.parametrize(
    "variable",
    ["DL4ALL_DEVICE", "DL4ALL_CALIBRATE", "DL4ALL_TUNE", "DL4ALL_LIMITS", "DL4ALL_SHADER_COMPILER"],
)
def test_a_variable_with_a_mistake_stops_nothing_else(variable: str) -> None:
    found = findings(**{variable: "nonsense"})
    said = found["GLSL compiler" if variable == "DL4ALL_SHADER_COMPILER" else "settings"]
    assert said["ok"] is not True
    assert variable in said["remedy"]
    assert {"Vulkan loader", "cache", "Kompute", "calibration"} <= found.keys()


def test_no_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checks, "loader_version", fails(BackendMissingError("[vulkan] no loader: apt install libvulkan1"))
    )
    red(checks._safely("Vulkan loader", checks._loader), "apt install libvulkan1")


def manifest(folder: Path, **driver: str) -> Path:
    file = folder / "driver.json"
    file.write_text(json.dumps({"ICD": driver}))
    return file


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        ('{"ICD": {"library_path": "libnot_here.so"}}', "libnot_here.so"),
        ('{"ICD": {"library_path": "./beside.so"}}', "beside.so"),
        ("{nonsense", "cannot be read"),
        ("[]", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_driver_without_its_library(
    content: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "driver.json"
    file.write_text(content)
    monkeypatch.setattr(checks, "_manifests", lambda: [file])
    monkeypatch.setattr(registry, "devices", lambda: (dl.device("cpu").info,))
    found = checks._driver_files()
    red(found, "install the package that has the library", "--gpus all")
    assert seen in found.seen
    gpu = dataclasses.replace(dl.device("cpu").info, type="discrete")
    monkeypatch.setattr(registry, "devices", lambda: (gpu,))
    assert checks._driver_files().ok is None  # another driver serves the GPU


def test_a_driver_for_other_programs_is_no_problem(tmp_path: Path) -> None:
    file = manifest(tmp_path, library_path="libnot_here.so", library_arch="32")
    assert checks._load_error(file) == ""
    assert checks._load_error(manifest(tmp_path, library_path="libm.so.6")) == ""


def test_which_drivers_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = manifest(tmp_path, library_path="libm.so.6")
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(checks, "MANIFEST_FOLDERS", (str(tmp_path), str(tmp_path / "none")))
    assert checks._manifests() == [file]
    assert checks._driver_files() == ("driver files", True, "driver.json", "")
    monkeypatch.setattr(checks, "MANIFEST_FOLDERS", ())
    found = checks._driver_files()
    assert found.ok is None
    assert "install its driver" in found.remedy
    monkeypatch.setenv("VK_ICD_FILENAMES", f"/a.json{os.pathsep}/b.json")
    assert checks._manifests() == [Path("/a.json"), Path("/b.json")]


@pytest.mark.parametrize(
    ("kinds", "problem", "ok"),
    [
        ([], "[vulkan] no driver; apt install one", False),
        ([], "", False),
        (["software"], "", None),
        (["software", "discrete"], "", True),
    ],
)
def test_which_drivers_were_found(
    kinds: list[DeviceType], problem: str, ok: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = dl.device("cpu").info
    infos = [dataclasses.replace(cpu, type=kind, hardware=kind) for kind in kinds]
    machine = registry.Found((*infos, cpu), {"vulkan": problem} if problem else {})
    monkeypatch.setattr(registry, "find", lambda: machine)
    found = checks._drivers()
    assert found.ok is ok
    assert ("install" in found.remedy) == (ok is not True)


def test_no_permission_on_a_render_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "glob", lambda *_: [tmp_path / "renderD128"])
    found = checks._render_nodes()
    red(found, "usermod")
    assert "renderD128" in found.seen


def test_render_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "glob", lambda *_: [])
    found = checks._render_nodes()
    assert found.ok is None
    assert "--device /dev/dri" in found.remedy
    (tmp_path / "renderD129").touch()
    monkeypatch.setattr(Path, "glob", lambda *_: [tmp_path / "renderD129"])
    assert checks._render_nodes().ok is True


@pytest.mark.parametrize("wanted", ["", "1"])
def test_no_validation_layer(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv("DL4ALL_VALIDATION", wanted)
    for layers in (set, fails(BackendMissingError("[vulkan] no loader"))):
        monkeypatch.setattr(checks, "layers", layers)
        found = checks._validation()
        assert found.ok is (False if wanted else None)
        assert "apt install vulkan-validationlayers" in found.remedy


@pytest.mark.parametrize("bundled", [False, True])
def test_no_compiler(monkeypatch: pytest.MonkeyPatch, bundled: bool) -> None:
    monkeypatch.setattr(compilers, "pick", fails(BackendMissingError("apt install glslc")))
    monkeypatch.setattr(checks, "_bundled", lambda: bundled)
    found = checks._compiler()
    assert found.ok is (None if bundled else False)
    assert found.remedy == "apt install glslc"


def test_a_cache_folder_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    found = findings(DL4ALL_CACHE_DIR=str(file))["cache"]
    assert found["ok"] is None
    assert str(file) in found["seen"]
    assert "DL4ALL_CACHE_DIR" in found["remedy"]


@pytest.mark.parametrize("name", ["doctor", "spirv"])
def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The folder, or only one of those in it."""
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    (tmp_path / "spirv").mkdir()
    write = file_cache.write

    def full(file: Path, content: bytes) -> None:
        if name in (file.parent.name, file.name.partition("-")[0]):
            raise OSError(28, "No space left on device", str(file))
        write(file, content)

    monkeypatch.setattr(file_cache, "write", full)
    found = checks._cache()
    assert found.ok is None
    assert "No space left on device" in found.seen
    assert "DL4ALL_CACHE_DIR" in found.remedy


def test_a_cache_that_works_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    (tmp_path / "spirv").mkdir()
    assert checks._cache() == ("cache", True, str(tmp_path), "")
    assert list(tmp_path.rglob("*")) == [tmp_path / "spirv"]


def test_no_kompute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checks, "kp", fails(BackendMissingError("[kompute] cannot import kp; pip install kp==0.9.0"))
    )
    found = checks._kompute()
    assert found.ok is None
    assert "pip install" in found.remedy


def test_a_device_that_computes_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "compare_with_cpu", lambda _: "differs by 3.0e-01")
    found = checks._safely("computing on cpu", lambda: checks._compute("cpu"))
    red(found, "computes wrongly: differs by 3.0e-01", "update its driver")


def test_a_device_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "device", fails(DeviceError("[vulkan] the driver gave up; update it")))
    red(checks._safely("computing on cpu", lambda: checks._compute("cpu")), "the driver gave up; update it")


def test_what_nobody_thought_of_is_a_finding_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "compare_with_cpu", fails(ZeroDivisionError("division by zero")))
    found = {entry.what: entry for entry in checks.examine()}["computing on cpu"]
    red(found, "report it")
    assert found.seen == "ZeroDivisionError: division by zero"


def test_the_second_driver_of_a_gpu_computes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = dl.device("cpu").info
    other = dataclasses.replace(cpu, index=1, backends=("mine",))
    monkeypatch.setattr(registry, "devices", lambda: (dataclasses.replace(cpu, others=(other,)),))
    assert checks._names() == ["cpu", "mine:1"]


def test_calibration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    cpu = dl.device("cpu").info
    machine = registry.Found((cpu,), {})
    monkeypatch.setattr(registry, "find", lambda: machine)
    found = checks._calibration()
    assert (found.ok, found.seen) == (None, "not measured: cpu")
    assert "--calibrate" in found.remedy
    measurements.store("cpu", cpu, Measurement(3.0))
    assert checks._calibration() == ("calibration", True, "measured: cpu", "")
    measurements.store("cpu", cpu, Measurement(problem="off by 3"))
    red(checks._calibration(), "update the driver", "--calibrate")
    assert checks._calibration().seen == "cpu: off by 3"


def test_narrow_kernels_on_a_wide_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "AVX512", frozenset())  # which every processor has
    monkeypatch.setattr(blas, "kernels", lambda: "Haswell")
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    found = checks._blas()
    assert (found.ok, found.seen) == (None, "OpenBLAS takes this processor for an older one (Haswell)")
    assert "OPENBLAS_CORETYPE=SkylakeX" in found.remedy
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Zen")  # somebody chose, for all programs
    found = checks._blas()
    assert found.seen == "OpenBLAS has OPENBLAS_CORETYPE=Zen from the environment (Haswell)"
    assert "without that setting" in found.remedy
    monkeypatch.setattr(blas, "AVX512", frozenset({"no such flag"}))
    assert checks._blas().ok is True
    monkeypatch.setattr(blas, "kernels", lambda: "")
    assert checks._blas().ok is True


def test_the_kernels_of_blas_are_known() -> None:
    shipped = list((Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*"))
    assert bool(blas.kernels()) == bool(shipped)
    assert blas.kernels().isidentifier() or not shipped
