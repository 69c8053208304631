"""dl4all.toml and DL4ALL_DEVICE: which counts, and what a mistake in them says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dl4all.config import (
    KNOWN,
    calibrates_by_itself,
    debug_names_setting,
    device_setting,
    fallback_setting,
    least_limits,
    texel_buffer_setting,
    winograd_setting,
)
from dl4all.errors import ConfigError


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The working directory and the user's configuration folder, both empty."""
    here, user = tmp_path / "here", tmp_path / "config" / "dl4all"
    here.mkdir()
    user.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in ("DL4ALL_DEVICE", "DL4ALL_CALIBRATE", "DL4ALL_FALLBACK", "DL4ALL_TEXEL_BUFFERS"):
        monkeypatch.delenv(variable, raising=False)
    return here / "dl4all.toml", user / "dl4all.toml"


def test_nothing_is_set() -> None:
    assert device_setting() is None


@pytest.mark.parametrize("which", [0, 1])
def test_a_file_names_the_device(folders: tuple[Path, Path], which: int) -> None:
    folders[which].write_text('device = "vulkan:3"\n')
    assert device_setting() == ("vulkan:3", str(folders[which]))


def test_the_working_directory_comes_first(folders: tuple[Path, Path]) -> None:
    folders[0].write_text('device = "vulkan:1"\n')
    folders[1].write_text('device = "vulkan:2"\n')
    assert device_setting() == ("vulkan:1", str(folders[0]))


def test_the_first_file_counts_alone(folders: tuple[Path, Path]) -> None:
    """An empty file is how a project says that the user's own setting does not concern it."""
    folders[0].write_text("")
    folders[1].write_text('device = "vulkan:2"\n')
    assert device_setting() is None


def test_the_environment_comes_before_files(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders[0].write_text('device = "vulkan:1"\n')
    monkeypatch.setenv("DL4ALL_DEVICE", "cpu")
    assert device_setting() == ("cpu", "DL4ALL_DEVICE")
    monkeypatch.setenv("DL4ALL_DEVICE", "")
    assert device_setting() == ("vulkan:1", str(folders[0]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('devise = "cpu"\n', r"unknown setting 'devise'; known are " + ", ".join(KNOWN)),
        ('device = "cpu"\n[pool]\nlimit = 3\n', r"unknown setting 'pool'; known are "),
        ("device = 3\n", r'device must be text such as "vulkan:0", not 3$'),
        ('device = ["cpu"]\n', r'device must be text such as "vulkan:0", not \[\'cpu\'\]$'),
        ("device = cpu\n", r"cannot be read: "),
        ("calibrate = 0\n", r"calibrate must be true or false, not 0$"),
        ('device = "cpu"\ncalibrate = "no"\n', r"calibrate must be true or false, not 'no'$"),
        ('device = "cpu"\ndevice = "cpu"\n', r"cannot be read: "),
        ("fallback = false\n", r'fallback must be "warn", "silent" or "error", not False$'),
    ],
)
def test_a_file_with_a_mistake(folders: tuple[Path, Path], text: str, message: str) -> None:
    folders[0].write_text(text)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(folders[0]))}: {message}"):
        device_setting()
    with pytest.raises(ConfigError, match=f"^{re.escape(str(folders[0]))}: {message}"):
        calibrates_by_itself()


def test_a_file_that_is_no_text(folders: tuple[Path, Path]) -> None:
    folders[1].write_bytes(b"device = \xff\xfe")
    with pytest.raises(ConfigError, match=f"^{re.escape(str(folders[1]))}: cannot be read: "):
        device_setting()


def test_a_folder_of_that_name_is_no_file(folders: tuple[Path, Path]) -> None:
    folders[0].mkdir()
    assert device_setting() is None


def test_texel_buffers(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert texel_buffer_setting() is None
    folders[0].write_text("texel_buffers = false\n")
    assert texel_buffer_setting() is False
    monkeypatch.setenv("DL4ALL_TEXEL_BUFFERS", "1")
    assert texel_buffer_setting() is True
    monkeypatch.setenv("DL4ALL_TEXEL_BUFFERS", "yes")
    with pytest.raises(ConfigError, match=r"^DL4ALL_TEXEL_BUFFERS must be 0, 1 or empty, not 'yes'"):
        texel_buffer_setting()


def test_winograd(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert winograd_setting()
    folders[1].write_text("winograd = false\n")
    assert not winograd_setting()
    monkeypatch.setenv("DL4ALL_WINOGRAD", "1")
    assert winograd_setting()


@pytest.mark.parametrize("which", [0, 1])
def test_devices_measure_themselves_unless_somebody_says_no(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    assert calibrates_by_itself()
    folders[which].write_text("calibrate = false\n")
    assert not calibrates_by_itself()
    monkeypatch.setenv("DL4ALL_CALIBRATE", "1")
    assert calibrates_by_itself()
    folders[which].write_text('device = "cpu"\n')
    monkeypatch.setenv("DL4ALL_CALIBRATE", "")
    assert calibrates_by_itself()
    monkeypatch.setenv("DL4ALL_CALIBRATE", "0")
    assert not calibrates_by_itself()


@pytest.mark.parametrize("value", ["no", "false", "2", " 0"])
def test_other_words_about_measuring_are_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_CALIBRATE", value)
    with pytest.raises(ConfigError, match=rf"^DL4ALL_CALIBRATE must be 0, 1 or empty, not '{value}'$"):
        calibrates_by_itself()


@pytest.mark.parametrize(("value", "least"), [(None, False), ("", False), ("minimum", True)])
def test_least_limits(value: str | None, least: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DL4ALL_LIMITS", raising=False)
    if value is not None:
        monkeypatch.setenv("DL4ALL_LIMITS", value)
    assert least_limits() == least


@pytest.mark.parametrize("value", ["1", "Minimum", "maximum", " minimum"])
def test_other_limits_are_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_LIMITS", value)
    with pytest.raises(ConfigError, match=rf"^DL4ALL_LIMITS must be minimum or empty, not '{value}'$"):
        least_limits()


def test_what_a_fallback_does(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert fallback_setting() == "warn"
    folders[0].write_text('fallback = "error"\n')
    assert fallback_setting() == "error"
    monkeypatch.setenv("DL4ALL_FALLBACK", "silent")
    assert fallback_setting() == "silent"
    monkeypatch.setenv("DL4ALL_FALLBACK", "")
    assert fallback_setting() == "error"


def test_other_words_about_fallbacks_are_refused(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders[1].write_text('fallback = "loud"\n')
    message = f"{folders[1]}: fallback must be warn, silent or error, not 'loud'"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        fallback_setting()
    monkeypatch.setenv("DL4ALL_FALLBACK", "Warn")
    with pytest.raises(ConfigError, match=r"^DL4ALL_FALLBACK must be warn, silent or error, not 'Warn'$"):
        fallback_setting()


@pytest.mark.parametrize(("value", "expected"), [("", None), ("0", False), ("1", True)])
def test_debug_names(value: str, expected: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_DEBUG_NAMES", value)
    assert debug_names_setting() is expected
    monkeypatch.setenv("DL4ALL_DEBUG_NAMES", "on")
    with pytest.raises(ConfigError, match=r"^DL4ALL_DEBUG_NAMES must be 0, 1 or empty, not 'on'$"):
        debug_names_setting()
