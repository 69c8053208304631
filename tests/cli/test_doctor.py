"""``dl4all doctor``, run as a command and piece by piece."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dl4all as dl
from dl4all.cli import checks

COMMAND = Path(sys.executable).with_name("dl4all")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "doctor", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
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


def test_a_cache_folder_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    found = findings(DL4ALL_CACHE_DIR=str(file))["shader cache"]
    assert found["ok"] is None
    assert "DL4ALL_CACHE_DIR" in found["remedy"]


def test_a_device_that_computes_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "compare_with_cpu", lambda _: "differs by 3.0e-01")
    found = checks._attempt("computing on cpu", lambda: checks._compute("cpu"))
    assert found.ok is False
    assert "computes wrongly: differs by 3.0e-01" in found.remedy


def test_no_permission_on_a_render_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "glob", lambda *_: [tmp_path / "renderD128"])
    found = checks._render_nodes()
    assert found.ok is False
    assert "renderD128" in found.seen
    assert "usermod" in found.remedy
