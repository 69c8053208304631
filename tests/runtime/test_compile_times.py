"""The line that says that kernels are compiled: once a device, after a second, on a terminal."""

from __future__ import annotations

import io
from collections import defaultdict

import pytest

from dl4all.ops.core.op import REGISTRY
from dl4all.runtime import spirv
from dl4all.runtime.null.backend import NullBackend
from dl4all.runtime.records import compile_times
from dl4all.scheduler.device.programs import Launch, Programs


class Screen(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def watched(monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True) -> Screen:
    """Standard error of a process that has compiled nothing; no fixture, as pytest sets its own later."""
    made = Screen(terminal)
    monkeypatch.setattr("sys.stderr", made)
    monkeypatch.setattr(compile_times, "_seconds", defaultdict[str, float](float))
    monkeypatch.setattr(compile_times, "_told", set[str]())
    return made


def compile_for(device: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((10.0, 10.0 + seconds))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    with compile_times.compiling(device):
        pass


def test_one_line_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watched(monkeypatch)
    compile_for("a", 0.6, monkeypatch)
    compile_for("b", 0.9, monkeypatch)
    assert not screen.getvalue()
    for _ in range(3):
        compile_for("a", 0.6, monkeypatch)
    assert screen.getvalue() == "[a] compiling kernels, which later runs find in the cache\n"


def test_failures_count_and_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watched(monkeypatch)
    with pytest.raises(ValueError, match="no kernel"), compile_times.compiling("a"):
        raise ValueError("no kernel")
    assert not screen.getvalue()


def test_files_get_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watched(monkeypatch, terminal=False)
    compile_for("a", 5, monkeypatch)
    assert not screen.getvalue()


def test_programs_of_a_device_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watched(monkeypatch)
    monkeypatch.setattr(compile_times, "PATIENCE_SECONDS", 0.0)
    backend = NullBackend()
    shader = REGISTRY["exp"].kernel.shaders[0]  # type: ignore[union-attr]
    interface = spirv.load(shader).interface
    launch = Launch(shader, (1, 1, 1), bytes(interface.push_bytes))
    Programs(backend).find(launch, len(interface.bindings))
    assert screen.getvalue().startswith(f"[{backend.info.names[0]}] compiling kernels")
