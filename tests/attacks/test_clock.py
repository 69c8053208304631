"""The time of day is set back or ahead while programs run: only what is shown to people looks at it."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import psutil
import pytest

import dl4all as dl
from dl4all.io import load_checkpoint, save_checkpoint
from dl4all.runtime import registry
from dl4all.runtime.records import device_records, file_cache, measurements
from dl4all.runtime.records.measurements import Measurement
from dl4all.scheduler.monitor import published, publisher
from dl4all.scheduler.monitor.publisher import _Publisher
from tests.conftest import REPOSITORY
from tests.support.parts import PARTS

HOUR = 3600.0
# What asks for the time of day: what `dl4all top` shows, since when a run has held a folder, names of traces'
# files, TensorBoard, when a served model was last asked or a completion made, dates in templates.
ALLOWED = {
    "scheduler/monitor/publisher.py",
    "scheduler/monitor/published.py",
    "dl4all/io/folder_lock.py",
    "dl4all/llm/chat_template.py",
    "dl4all/serving/language_models.py",
    "dl4all/serving/served_model.py",
    "dl4all/pytorch/names/profiler.py",
    "dl4all/training/tensorboard.py",
    "dl4all/pytorch/names/utils/tensorboard.py",
}
TIME_OF_DAY = re.compile(r"\btime\.time(_ns)?\(|from time import|\bdatetime\.(now|today|utcnow)\(")


class Clock:
    """The system's clock, which can be set. On Linux, with it when a process seems to have begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        now, began = time.time, psutil.Process.create_time
        monkeypatch.setattr(time, "time", lambda: now() + self.ahead)
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: began(process) + self.ahead)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty runtime folder and an empty cache."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setattr(publisher, "folders", lambda: [tmp_path / "run" / "dl4all"])
    monkeypatch.setattr(published, "folders", lambda: [tmp_path / "run" / "dl4all"])
    return tmp_path


def ages() -> list[float]:
    return [report.age for report in published.read() if report.pid == os.getpid()]


@pytest.mark.parametrize("ahead", [-HOUR, HOUR, -1e6])
def test_processes_are_seen_when_the_clock_is_set(folder: Path, clock: Clock, ahead: float) -> None:
    """By those who write after it, and by those that are silent since before."""
    assert (dl.ones(2, device="cpu") + 1).tolist() == [2.0, 2.0]
    watched = _Publisher()
    watched._look()
    [age] = ages()
    assert 0 <= age < 30
    clock.ahead = ahead
    [age] = ages()  # nothing was written since
    assert 0 <= age < 30
    watched._due = 0.0
    watched._look()
    [age] = ages()
    assert 0 <= age < 30
    clock.ahead = 0.0
    [age] = ages()
    assert 0 <= age < 30
    clock.ahead = 0.0


def test_a_process_that_took_over_the_number_is_another_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began later, and the clock was not set."""
    watched = _Publisher()
    watched._look()
    assert len(ages()) == 1
    began = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: began(process) + HOUR)
    assert ages() == []


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
def test_records_and_caches_do_not_age(folder: Path, clock: Clock, ahead: float) -> None:
    info = registry.describe("cpu")
    measurements.store("cpu", info, Measurement(matmul_gflops=3.0))
    file_cache.write(folder / "file", b"content")
    clock.ahead = ahead
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - ahead, time.time() - 2 * ahead))
    assert measurements.lookup("cpu", info) == Measurement(matmul_gflops=3.0)
    assert file_cache.read(folder / "file") == b"content"
    with device_records.alone(0.2) as first, device_records.alone(0.05) as second:
        assert (first, second) == (True, False)  # and the wait has an end


def test_the_newest_checkpoint_is_the_one_of_the_last_step(folder: Path, clock: Clock) -> None:
    for step in (1, 2, 3):
        path = save_checkpoint(folder / "run", step, {"step": step}, keep=2)
        clock.ahead -= HOUR
        os.utime(path, (time.time(), time.time()))
    assert load_checkpoint(folder / "run")["step"] == 3
    assert [step for step, _ in dl.io.checkpoints(folder / "run")] == [2, 3]


def test_nothing_else_asks_for_the_time_of_day() -> None:
    found = set()
    for part in ("dl4all", *PARTS):
        for file in (REPOSITORY / part).rglob("*.py"):
            if file.resolve() == file and TIME_OF_DAY.search(file.read_text("utf-8")):  # no link in dl4all/
                found.add(file.relative_to(REPOSITORY).as_posix())
    assert found == ALLOWED
