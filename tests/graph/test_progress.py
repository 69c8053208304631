"""The line that is shown while something is compiled for long."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from rich.console import Console

from dl4all.graph.run import progress


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    written = io.StringIO()

    def console(**options: Any) -> Console:
        return Console(file=written, force_terminal=True, width=60)

    monkeypatch.setattr(progress, "Console", console)
    return written


def test_long_work_shows_a_line(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = threading.Event()
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    with progress.shown_when_long("compiling step"):
        for _ in range(1000):
            if "compiling step" in terminal.getvalue():
                shown.set()
                break
            threading.Event().wait(0.01)
    assert shown.is_set()


def test_short_work_shows_nothing(terminal: io.StringIO) -> None:
    with progress.shown_when_long("compiling step"):
        pass
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown_when_long("compiling step"):
        pass
    assert capsys.readouterr() == ("", "")
