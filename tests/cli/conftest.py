"""The command without a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from dl4all.cli import main

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``dl4all`` with the given arguments in this process, for cases that Python need not be started for."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["dl4all", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), printed.out, printed.err)

    return run
