"""Pipelines on disk: kept, shared, and never trusted further than their digest."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from dl4all.runtime.records import file_cache
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.runtime.vulkan.discovery import physical_devices
from dl4all.runtime.vulkan.instance import api
from dl4all.runtime.vulkan.pipeline_cache import file_of
from tests.conftest import REPOSITORY, need
from tests.runtime.vulkan.driver import Driver, install
from tests.runtime.vulkan.scene import module, play
from tests.support.forked_process import ForkedProcess

pytestmark = pytest.mark.vulkan


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    need("vulkan:0")
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pipelines"


def run(tmp_path: Path) -> None:
    """Open a device, build pipelines, close it."""
    backend = VulkanBackend(0)
    play(backend, module(tmp_path))
    backend.close()


def given(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the driver is handed to begin with, each time that a cache is made."""
    seen: list[bytes] = []
    real = driver.vkCreatePipelineCache

    def create(device: Any, info: Any, *rest: Any) -> Any:
        ffi = api().ffi
        data = ffi.buffer(info.pInitialData, info.initialDataSize) if info.initialDataSize else b""
        seen.append(bytes(data))
        return real(device, info, *rest)

    monkeypatch.setattr(driver, "vkCreatePipelineCache", create)
    return seen


def test_what_one_process_built_is_given_to_the_next(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = given(install(monkeypatch), monkeypatch)
    run(tmp_path)
    (file,) = folder.iterdir()
    kept = file_cache.read(file)
    assert kept
    run(tmp_path)
    assert seen[:2] == [b"", kept]
    assert [*folder.iterdir()] == [file]


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "longer", "garbage"])
def test_a_damaged_file_is_not_given_to_the_driver(
    folder: Path, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path)
    (file,) = folder.iterdir()
    content = file.read_bytes()
    flipped = bytes([*content[:-1], content[-1] ^ 1])
    bad = {
        "empty": b"",
        "short": content[:-1],
        "flipped": flipped,
        "longer": content + b"x",
        "garbage": b"x" * 999,
    }
    file.write_bytes(bad[damage])
    seen = given(install(monkeypatch), monkeypatch)
    run(tmp_path)
    assert seen[0] == b""
    assert file_cache.read(file), "it is written anew"


def test_a_cache_that_the_driver_refuses(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path)
    driver = install(monkeypatch)
    driver.fail("vkCreatePipelineCache", 0, -1)
    run(tmp_path)
    assert driver.left == {}


def test_what_another_process_wrote_meanwhile_is_merged(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path)
    (file,) = folder.iterdir()
    written = file_cache.read(file)
    assert written is not None
    file.unlink()
    driver = install(monkeypatch)
    seen = given(driver, monkeypatch)
    backend = VulkanBackend(0)  # finds nothing
    play(backend, module(tmp_path))
    file_cache.write(file, written)
    backend.close()
    assert seen == [b"", written]
    assert driver.calls["vkMergePipelineCaches"] == 1
    assert driver.left == {}


def test_an_unwritable_folder_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path / "file"))
    run(tmp_path)


def test_devices_and_drivers_do_not_share(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    physical = physical_devices()[0]
    info = physical.info
    others = (
        dataclasses.replace(info, uuid="other"),
        dataclasses.replace(info, driver="other"),
        dataclasses.replace(info, driver_version="other"),
    )
    files = {file_of(dataclasses.replace(physical, info=other)) for other in others}
    assert len({*files, file_of(physical)}) == 4


def test_two_processes_at_once(folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from tests.runtime.vulkan.scene import module, play\n"
        "from dl4all.runtime.vulkan.backend import VulkanBackend\n"
        "code = module(pathlib.Path(sys.argv[1]))\n"
        "for _ in range(20):\n"
        "    backend = VulkanBackend(0); play(backend, code); backend.close()\n"
    )
    module(tmp_path)
    both = [ForkedProcess([sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    (file,) = folder.iterdir()
    assert file_cache.read(file)
