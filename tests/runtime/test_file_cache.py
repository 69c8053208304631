"""Cache files: whole or not at all, also where a process is killed or two write at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dl4all.errors import BackendMissingError
from dl4all.runtime import spirv
from dl4all.runtime.records import file_cache
from dl4all.runtime.spirv import compilers
from tests.conftest import REPOSITORY
from tests.support.forked_process import ForkedProcess

# Writes file after file without end, each of one repeated byte, as large as a compiled shader or larger.
WRITER = """
import sys
from pathlib import Path
from dl4all.runtime.records import file_cache
file = Path(sys.argv[1])
print("ready", flush=True)
while True:
    for letter in b"abcdefgh":
        file_cache.write(file, bytes([letter]) * 300_000)
"""
LETTERS = [bytes([letter]) * 300_000 for letter in b"abcdefgh"]


def write_without_end(file: Path) -> subprocess.Popen[str]:
    process = ForkedProcess(
        [sys.executable, "-c", WRITER, str(file)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "new" / "folder" / "file"
    assert file_cache.read(file) is None
    for content in (b"", b"x", bytes(range(256)) * 100):
        file_cache.write(file, content)
        assert file_cache.read(file) == content
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("damage", ["nothing left", "cut short", "a bit", "a byte more", "zeros", "digest"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "file"
    file_cache.write(file, b"0123456789" * 50)
    whole = file.read_bytes()
    file.write_bytes(
        {
            "nothing left": b"",
            "cut short": whole[:-1],
            "a bit": whole[:-7] + bytes([whole[-7] ^ 4]) + whole[-6:],
            "a byte more": whole + b"0",
            "zeros": bytes(len(whole)),
            "digest": bytes([whole[0] ^ 1]) + whole[1:],
        }[damage]
    )
    assert file_cache.read(file) is None
    file_cache.write(file, b"anew")
    assert file_cache.read(file) == b"anew"


def test_a_folder_in_place_of_the_file_is_no_file(tmp_path: Path) -> None:
    assert file_cache.read(tmp_path) is None
    file_cache.try_write(tmp_path, b"x")
    with pytest.raises(OSError, match=r"directory|exists|empty"):
        file_cache.write(tmp_path, b"x")


@pytest.mark.usefixtures("deadline")
def test_what_has_no_end_in_place_of_a_file_is_no_file(tmp_path: Path) -> None:
    """A pipe is not waited for, and a device not read."""
    file = tmp_path / "file"
    os.mkfifo(file)
    assert file_cache.read(file) is None
    file_cache.write(file, b"new")
    assert file_cache.read(file) == b"new"
    (tmp_path / "link").symlink_to("/dev/zero")
    assert file_cache.read(tmp_path / "link") is None
    file_cache.write(tmp_path / "link", b"new")
    assert file_cache.read(tmp_path / "link") == b"new"


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file_cache.write(file, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file_cache.write(file, b"new")
    file_cache.try_write(file, b"new")
    assert file_cache.read(file) == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_killed_while_writing_there_is_the_old_or_the_new(tmp_path: Path) -> None:
    """kill -9 at eight moments; what was begun lies beside the file and is in nobody's way."""
    file = tmp_path / "file"
    process = write_without_end(file)
    try:
        while file_cache.read(file) is None:
            time.sleep(0.001)
    finally:
        stop(process)
    for moment in range(8):
        process = write_without_end(file)
        time.sleep(0.0007 * moment)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert file_cache.read(file) in LETTERS
    file_cache.write(file, b"still writable")
    assert file_cache.read(file) == b"still writable"


def test_readers_never_see_a_part_of_what_two_processes_write(tmp_path: Path) -> None:
    file = tmp_path / "file"
    writers = [write_without_end(file) for _ in range(2)]
    try:
        seen: set[int] = set()
        until = time.monotonic() + 60
        while len(seen) < len(LETTERS) and time.monotonic() < until:
            content = file_cache.read(file)
            assert content is None or content in LETTERS
            if content is not None:
                seen.add(content[0])
    finally:
        for process in writers:
            stop(process)
    assert len(seen) == len(LETTERS)


def test_processes_that_build_the_same_shaders_at_once_all_have_them(tmp_path: Path) -> None:
    """Four times the first use of an empty cache."""
    if (spirv.SHADERS / "spirv").exists():
        pytest.skip("the shaders came with the installation")
    try:
        compilers.pick()
    except BackendMissingError as error:
        pytest.skip(str(error))
    code = (
        "import dl4all as dl\n"
        "from dl4all.runtime import spirv\n"
        "for shader in sorted(dl.ops.all_shaders(), key=str)[:3]:\n"
        "    print(hash(spirv.load(shader).code))\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONHASHSEED": "0",
        "DL4ALL_CACHE_DIR": str(tmp_path),
    }
    processes = [
        ForkedProcess([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    outputs = {process.communicate()[0] for process in processes}
    assert {process.returncode for process in processes} == {0}
    assert len(outputs) == 1
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3
    assert all(file_cache.read(path) for path in files)
