"""``dl4all top``, run as a command, and the files that processes write for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from dl4all.cli import cli
from dl4all.scheduler.monitor import published, publisher
from tests.cli.conftest import Command
from tests.support.forked_process import COMMAND, ForkedProcess, run_forked

module: Any = import_module("dl4all.cli.top")  # the package has the command under this name

REPOSITORY = Path(__file__).parents[2]
SECONDS = 60.0  # that anything may take
GROUP = """
import sys, threading, dl4all as dl
group = dl.DeviceGroup(["cpu", "cpu#1"])
stream = group.stream(group.primary)
release = threading.Event()
x = dl.ones(1000, device="cpu")
stream.submit(release.wait, 60, name="long")
stream.submit(dl.ones, 3)
group.retire(dl.device("cpu#1"), "lost")
print("ready", "dl4all top" in [thread.name for thread in threading.enumerate()], flush=True)
sys.stdin.read()
release.set()
"""
SIMULATED = """
import sys, threading, dl4all as dl
from dl4all.scheduler.cost.simulation import simulated_device
device = simulated_device()
stream = dl.Stream(device)
x = stream.submit(dl.ones, 10, 10).result(60)
print("ready", "dl4all top" in [thread.name for thread in threading.enumerate()], flush=True)
sys.stdin.read()
"""
PLAIN = """
import sys, threading, dl4all as dl
x = dl.ones(3, device="cpu")
print("ready", "dl4all top" in [thread.name for thread in threading.enumerate()], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's processes write."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))  # of the processes that tests start
    return tmp_path / "dl4all"


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints; it is killed if it takes too long."""
    assert process.stdout is not None
    guard = threading.Timer(SECONDS, process.kill)
    guard.start()
    try:
        return process.stdout.readline()
    finally:
        guard.cancel()


class Programs:
    """Running Python programs that are ended after the test."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []
        self.watched: list[bool] = []

    def start(self, code: str, setting: str = "") -> subprocess.Popen[str]:
        """A program that has said that it is ready."""
        process = ForkedProcess(
            [sys.executable, "-c", code],
            env={**os.environ, "DL4ALL_TOP": setting},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        ready, watched = line_of(process).split()
        assert ready == "ready"
        self.watched.append(watched == "True")
        return process

    def end(self) -> None:
        for process in self.started:
            process.communicate(timeout=SECONDS)


@pytest.fixture
def programs(folder: Path) -> Iterator[Programs]:
    started = Programs()
    yield started
    started.end()


def looked(*, until: int, count: int = 1) -> dict[int, dict[str, dict[str, Any]]]:
    """What ``--once --json`` shows, by process and device, when the file of `until` was written often."""
    stop = time.monotonic() + SECONDS
    seen: set[float] = set()
    while time.monotonic() < stop:
        done = CliRunner().invoke(cli, ["top", "--once", "--json"], catch_exceptions=False)
        assert done.exit_code == 0
        found = {p["pid"]: p for p in json.loads(done.stdout)["processes"]}
        if until in found:
            seen.add(round(time.time() - found[until]["age"], 1))
        if len(seen) >= count:
            return {pid: {d["name"]: d for d in p["devices"]} for pid, p in found.items()}
        time.sleep(0.1)
    raise AssertionError(f"process {until} was not seen {count} times")


def test_two_processes(programs: Programs, folder: Path) -> None:
    first, second = programs.start(GROUP), programs.start(SIMULATED)
    looked(until=second.pid)
    found = looked(until=first.pid, count=2)  # rates are of the time between two files
    assert found.keys() == {first.pid, second.pid}
    one, two = found[first.pid], found[second.pid]
    assert one.keys() == {"cpu", "cpu#1"}
    assert one["cpu"]["busy"] > 0.9  # a task runs
    assert one["cpu"]["queued"] == 2
    assert one["cpu"]["allocated"] == 4000
    assert one["cpu"]["memory"] == psutil.virtual_memory().total
    assert [one[name]["retired"] for name in ("cpu", "cpu#1")] == ["", "lost"]
    assert one["cpu#1"]["busy"] == 0
    (simulated,) = (device for name, device in two.items() if name.startswith("simulated:"))
    assert simulated["virtual"]
    assert simulated["allocated"] == 400
    assert sorted(file.name for file in folder.iterdir()) == sorted(f"{p.pid}.json" for p in (first, second))
    assert folder.stat().st_mode & 0o077 == 0

    done = run_forked([COMMAND, "top", "--once"], check=True)
    lines = [line for line in done.stdout.splitlines() if "cpu" in line or "simulated:" in line]
    assert str(first.pid) in lines[0]
    assert any("retired: lost" in line for line in lines)
    assert any("virtual clock" in line for line in lines)
    programs.end()
    assert not list(folder.iterdir())  # each takes its own away


@pytest.mark.parametrize(
    ("code", "setting", "shown"), [(PLAIN, "", False), (PLAIN, "1", True), (GROUP, "0", False)]
)
def test_who_is_watched(programs: Programs, code: str, setting: str, shown: bool) -> None:
    process = programs.start(code, setting)
    assert programs.watched == [shown]
    if shown:
        assert looked(until=process.pid)[process.pid].keys() == {"cpu"}


def test_a_process_that_was_killed_is_not_shown(programs: Programs, folder: Path) -> None:
    process = programs.start(GROUP)
    looked(until=process.pid)
    process.kill()
    process.wait(SECONDS)
    file = folder / f"{process.pid}.json"
    assert file.exists()
    assert published.read() == []
    assert not file.exists()


def facts(**changed: Any) -> dict[str, Any]:
    """What this process would write."""
    device = {
        "name": "cpu", "busy": 0.25, "kernels_per_second": 10.0, "uploaded_per_second": 2e6,
        "downloaded_per_second": 3e6, "allocated": 1024, "reserved": 2048, "memory": 4096, "queued": 7,
        "virtual": False, "retired": "",
    }  # fmt: skip
    device |= {name: value for name, value in changed.items() if name in device}
    whole = {
        "pid": os.getpid(),
        "created": psutil.Process().create_time(),
        "host": os.uname().nodename,
        "written": time.time(),
        "devices": [device],
    }
    return whole | {name: value for name, value in changed.items() if name not in device}


def put(folder: Path, text: str | bytes, name: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / (name or f"{os.getpid()}.json")
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def shown(*options: str) -> str:
    done = CliRunner().invoke(
        cli, ["top", "--once", *options], catch_exceptions=False, env={"COLUMNS": "200"}
    )
    assert done.exit_code == 0
    return done.stdout


def test_the_table(folder: Path) -> None:
    put(folder, json.dumps(facts()))
    (line,) = [line for line in shown().splitlines() if "│ cpu" in line]
    cells = [cell.strip() for cell in line.split("│")[3:-1]]
    assert cells == ["cpu", "25%", "1.0 KiB", "2.0 KiB", "4.0 KiB", "10", "2.0", "3.0", "7", "works"]


@pytest.mark.parametrize(("rank", "cell"), [("1/4", "1/4"), ("\x1b[2J", "?[2J"), (7, None), ("", None)])
def test_ranks_of_processes_that_compute_together(folder: Path, rank: Any, cell: str | None) -> None:
    put(folder, json.dumps(facts(rank=rank)))
    text = shown()
    assert ("rank" in text) == (cell is not None)
    (line,) = [line for line in text.splitlines() if "│ cpu" in line]
    assert cell is None or line.split("│")[2].strip() == cell


@pytest.mark.parametrize(
    ("changed", "state", "busy"),
    [
        ({"busy": 0.0, "kernels_per_second": 0.0}, "idle", "0%"),
        ({"busy": None}, "works", "-"),
        ({"busy": 0.5, "virtual": True}, "works (virtual clock)", "50%"),
        ({"retired": "[b]lost"}, "retired: [b]lost", "25%"),
        ({"written": 0.0}, "silent for", "-"),
        ({"retired": "a\x1b[31mb\nc"}, "retired: a?[31mb?c", "25%"),
    ],
)
def test_states(folder: Path, changed: dict[str, Any], state: str, busy: str) -> None:
    put(folder, json.dumps(facts(**changed)))
    (line,) = [line for line in shown().splitlines() if "│ cpu" in line]
    cells = [cell.strip() for cell in line.split("│")[3:-1]]
    assert cells[1] == busy
    assert cells[-1].startswith(state)


def test_nobody_is_there(folder: Path) -> None:
    assert "DL4ALL_TOP=1" in shown()
    assert json.loads(shown("--json")) == {"processes": []}


WRONG: dict[str, Any] = {
    "nothing": "",
    "half": json.dumps(facts())[:200],
    "no text": b"\xff\xfe\x00",
    "a list": "[]",
    "a number": "1",
    "deep": "[" * 100_000,
    "deep object": '{"a":' * 100_000,
    "infinite": json.dumps(facts(busy=float("inf"))),
    "not a number": json.dumps(facts(written=float("nan"))),
    "huge number": '{"pid": ' + "9" * 5000 + "}",
    "another process": json.dumps(facts(pid=1)),
    "negative": json.dumps(facts(allocated=-1)),
    "a number that no float holds": json.dumps(facts(memory=10**400)),
    "a time that no float holds": json.dumps(facts(written=-(10**400))),
    "a beginning that no float holds": json.dumps(facts(created=10**400)),
    "true for a number": json.dumps(facts(queued=True)),
    "number for a name": json.dumps(facts(name=3)),
    "text for a number": json.dumps(facts(memory="4")),
    "one for true": json.dumps(facts(virtual=1)),
    "no devices": json.dumps(facts(devices=None)),
    "a device that is a list": json.dumps(facts(devices=[[]])),
    "a device without facts": json.dumps(facts(devices=[{"name": "cpu"}])),
    "no time": json.dumps(facts(written=None)),
    "large": json.dumps(facts(devices=[{"name": "x" * (2 << 20)}])),
    "another machine": json.dumps(facts(host="elsewhere")),
    "an earlier process": json.dumps(facts(created=1.0)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_wrong_is_ignored(folder: Path, name: str) -> None:
    put(folder, WRONG[name])
    assert json.loads(shown("--json")) == {"processes": []}


def test_what_is_no_file_of_a_process_is_ignored(folder: Path, tmp_path: Path) -> None:
    text = json.dumps(facts())
    pid = os.getpid()
    for name in ("x.json", f"-{pid}.json", f"{pid}.part", f"{pid} .json", "99999999999.json"):
        put(folder, text, name)
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(text)
    (folder / f"{pid}.json").symlink_to(elsewhere)
    assert published.read() == []
    (folder / f"{pid}.json").unlink()
    os.mkfifo(folder / f"{pid}.json")
    assert published.read() == []
    (folder / f"{pid}.json").unlink()
    (folder / f"{pid}.json").mkdir()
    assert published.read() == []
    (folder / f"{pid}.json").rmdir()
    put(folder, text)
    assert [report.pid for report in published.read()] == [pid]


def test_long_names_are_cut(folder: Path) -> None:
    put(folder, json.dumps(facts(name="x" * 10_000)))
    (report,) = published.read()
    assert report.devices[0].name == "x" * 197 + "..."


def test_a_folder_that_is_a_link_is_not_used(folder: Path, tmp_path: Path) -> None:
    """Whoever could put it there could show anything, or have files written anywhere."""
    (tmp_path / "theirs").mkdir()
    folder.symlink_to(tmp_path / "theirs")
    put(tmp_path / "theirs", json.dumps(facts()))
    assert published.read() == []


def test_the_folder_of_the_cache_takes_the_place_of_one_that_is_not_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nowhere"))
    assert publisher.folders()[-1] == tmp_path / "cache" / "top"
    (tmp_path / "cache").mkdir()
    put(tmp_path / "cache" / "top", json.dumps(facts()))
    assert [report.pid for report in published.read()] == [os.getpid()]


def test_it_goes_on_until_it_is_interrupted(folder: Path) -> None:
    process = ForkedProcess(
        [COMMAND, "top", "--json", "--interval", "0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = [line_of(process) for _ in range(3)]
        process.send_signal(signal.SIGINT)
    finally:
        _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "")
    assert [json.loads(line) for line in lines] == [{"processes": []}] * 3


def test_a_terminal_has_the_table_drawn_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, json.dumps(facts()))
    slept: list[float] = []
    first = 123_456_780  # in no process id, which the table shows as well

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        put(folder, json.dumps(facts(queued=first + len(slept))))
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(module.time, "sleep", sleep)
    environment = {"FORCE_COLOR": "1", "COLUMNS": "200"}
    done = CliRunner().invoke(cli, ["top", "--interval", "2"], catch_exceptions=False, env=environment)
    assert done.exit_code == 0
    assert slept == [2.0] * 3
    assert [str(first + n) in done.stdout for n in (1, 2, 3)] == [True, True, False]


@pytest.mark.parametrize("arguments", [["--interval", "0"], ["--interval", "x"], ["more"]])
def test_bad_input_is_one_line_and_status_2(folder: Path, command: Command, arguments: list[str]) -> None:
    done = command("top", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
