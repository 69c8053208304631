"""dl4all.toml in a folder that somebody else prepared, and a working directory that is gone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dl4all as dl
from dl4all import config
from dl4all.errors import ConfigError
from dl4all.runtime import registry
from dl4all.runtime.records import file_cache
from dl4all.training.config import read_config
from tests.conftest import need
from tests.support.subcases import each


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, of somebody without settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in ("DL4ALL_DEVICE", "DL4ALL_CALIBRATE", "DL4ALL_FALLBACK", "DL4ALL_TUNE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(registry, "_settled", None)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    monkeypatch.undo()


def read_all() -> None:
    """Every setting that a file may give."""
    config.device_setting()
    config.calibrates_by_itself()
    config.tune_setting()
    config.fallback_setting()


DEEP = 5_000
HOSTILE: dict[str, bytes] = {
    "unknown": b"devices = 'cpu'",
    "unknown table": b"[device]\nname = 'cpu'",
    "long name": b"a" * 50_000 + b" = 1",
    "brackets": b"device = " + b"[" * DEEP,
    "whole brackets": b"device = " + b"[" * DEEP + b"]" * DEEP,
    "few brackets": b"device = " + b"[" * 90 + b"]" * 90,
    "braces": b"device = " + b"{a=" * DEEP,
    "dotted": b"device." + b"a." * DEEP + b"b = 1",
    "dotted table": b"[device." + b"a." * DEEP + b"b]",
    "wrong types": b"device = 1979-05-27T07:32:00Z",
    "float": b"calibrate = nan",
    "many digits": b"tune = " + b"9" * 20_000,
    "many hexadecimal digits": b"tune = 0x" + b"f" * 20_000,
    "long text": b"tune = '" + b"x" * 500_000 + b"'",
    "no text": b"device = '\xff\xfe'",
    "utf-16": "device = 'cpu'".encode("utf-16"),
    "nul": b"device = 'cpu\x00'",
    "too long": b"#" * (2 << 20),
    "twice": b"device = 'cpu'\ndevice = 'vulkan'",
    "half": b"device = 'cp",
}


@each("name", HOSTILE)
def test_a_hostile_file_is_one_line_of_an_error(here: Path, name: str) -> None:
    file = here / "dl4all.toml"
    file.write_bytes(HOSTILE[name])
    with pytest.raises(ConfigError) as caught:
        read_all()
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert "\n" not in message
    assert len(message) < len(str(file)) + 400


@each(
    "name",
    ["os", "../../etc/passwd", "os.system:0", "vulkan:" + "9" * 5000, "cpu;reboot", "$HOME", "", "\x1b[2J"],
)
def test_a_device_that_is_none(here: Path, name: str) -> None:
    """Nothing is imported, opened or run for it."""
    text = name.replace("\x1b", "\\u001b")
    (here / "dl4all.toml").write_text(f'device = "{text}"\n')
    if not name:
        assert config.device_setting() is None
        return
    with pytest.raises(ConfigError, match=r"dl4all\.toml: (unknown|no) device") as caught:
        dl.ones(2)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < len(str(here)) + 400
    assert os.listdir(here) == ["dl4all.toml"]  # noqa: PTH208  # nothing was written


@each("name", ["null", "null:0", "null:00", "null#1", "null:0#7"])
def test_a_file_cannot_let_everything_be_zero(here: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "dl4all.toml").write_text(f'device = "{name}"\n')
    registry._settled = None  # that of the case before
    monkeypatch.delenv("DL4ALL_DEVICE", raising=False)
    for use in (lambda: dl.ones(2), registry.auto):
        with pytest.raises(
            ConfigError, match=rf"dl4all\.toml: {name} computes nothing, .* DL4ALL_DEVICE=null"
        ):
            use()
    monkeypatch.setenv("DL4ALL_DEVICE", name)
    assert dl.ones(2).device.name.startswith("null:0")
    assert dl.ones(2, device="cpu").tolist() == [1.0, 1.0]


@pytest.mark.usefixtures("deadline")
@each("kind", ["pipe", "device", "dangling", "folder", "loop", "socket"])
def test_what_is_no_file_is_passed_over(here: Path, kind: str) -> None:
    file = here / "dl4all.toml"
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "dangling":
            file.symlink_to("nowhere")
        case "folder":
            file.mkdir()
        case "loop":
            file.symlink_to(file)
        case "socket":
            os.mknod(file, 0o140600)
    read_all()
    assert config.device_setting() is None
    file.rmdir() if kind == "folder" else file.unlink()


@pytest.mark.parametrize("device", ["cpu", "auto", pytest.param("vulkan:0", marks=pytest.mark.vulkan)])
def test_a_working_directory_that_was_deleted(
    here: Path, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "vulkan:0":
        need(device)
    user = tmp_path / "config" / "dl4all" / "dl4all.toml"
    user.parent.mkdir(parents=True)
    monkeypatch.setenv("DL4ALL_CACHE_DIR", "relative")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.rmtree(here)
    with pytest.raises(FileNotFoundError):
        Path.cwd()
    x = dl.ones(3, 3, device=device)
    np.testing.assert_array_equal((x @ x).numpy(), np.full((3, 3), 3.0))
    assert config.device_setting() is None
    user.write_text('device = "cpu"')
    assert config.device_setting() == ("cpu", str(user))


def test_a_relative_cache_folder_stays_where_it_was(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those who write when the program ends, from whatever directory that is in."""
    monkeypatch.setenv("DL4ALL_CACHE_DIR", "relative")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert file_cache.folder() == here / "relative"
    shutil.rmtree(here)
    assert file_cache.folder().is_absolute()
    assert not file_cache.folder().is_relative_to(here)


RUNS: dict[str, bytes] = {
    "brackets": b"epochs = " + b"[" * DEEP,
    "dotted": b"epochs." + b"a." * DEEP + b"b = 1",
    "many digits": b"epochs = 0x" + b"f" * 20_000,
    "a list for a name": b"epochs = 1\ndata = {name = ['xor'], batch_size = 4}",
    "a table for a name": b"epochs = 1\ndata.name." + b"a." * DEEP + b"b = 1",
    "a module for a name": b"epochs = 1\ndata = {name = 'os.system', batch_size = 4}",
    "no text": b"epochs = '\xff'",
    "too long": b"#" * (2 << 20),
}


@each("name", RUNS)
def test_a_hostile_description_of_a_run(here: Path, name: str) -> None:
    file = here / "run.toml"
    file.write_bytes(RUNS[name])
    with pytest.raises(ConfigError) as caught:
        read_config(file)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
