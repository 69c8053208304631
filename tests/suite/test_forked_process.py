"""A forked process does as one that is started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked_process import ForkedProcess, run_forked

PROGRAMS = {
    "output": "import sys; print('one'); print('two', file=sys.stderr)",
    "arguments": "import sys; print(sys.argv, sys.path[0], __name__)",
    "an exit status": "import sys; sys.exit(3)",
    "a reason to exit": "raise SystemExit('so long')",
    "an exception": "def f():\n    1 / 0\nf()",
    "an exception with a cause": "try:\n    1 / 0\nexcept Exception as e:\n    raise ValueError('x') from e",
    "a syntax error": "1 +",
    "an interrupt": "raise KeyboardInterrupt",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "an abort": "import os; os.abort()",
    "atexit": "import atexit; atexit.register(print, 'the end')",
    "a thread": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    "a fork": "import os\nif pid := os.fork():\n    print(os.waitpid(pid, 0)[1])",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_as_if_started(program: str) -> None:
    command = [sys.executable, "-c", program, "an argument"]
    started = subprocess.run(command, capture_output=True, text=True, check=False)
    forked = run_forked(command)
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.stderr.splitlines() == started.stderr.splitlines()


def test_modules_and_scripts(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import sys, other; print(sys.argv[1:], __file__, other.name)", "utf-8")
    (tmp_path / "other.py").write_text("name = __name__", "utf-8")
    for command in ([sys.executable, "-m", "own", "x"], [sys.executable, str(tmp_path / "own.py"), "x"]):
        done = run_forked(command, cwd=tmp_path, check=True)
        assert done.stdout == f"['x'] {tmp_path / 'own.py'} other\n"


def test_variables_and_options() -> None:
    """Variables and options that Python reads at its start have an effect, too."""
    code = (
        "import os, sys; print(os.environ.get('DL4ALL_DEVICE'), sys.flags.utf8_mode, 'dl4all' in sys.modules)"
    )
    for variable, options, printed in (
        ({"DL4ALL_DEVICE": "null"}, (), "null 0 True"),
        ({"PYTHONUTF8": "1"}, (), "None 1 False"),
        ({}, ("-X", "utf8"), "None 1 False"),
    ):
        rest = {name: value for name, value in os.environ.items() if name != "DL4ALL_DEVICE"}
        done = run_forked([sys.executable, *options, "-c", code], env={**rest, **variable}, check=True)
        assert done.stdout == f"{printed}\n"


@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_number_of_threads_is_that_of_the_server(threads: str) -> None:
    """It counts while NumPy is imported; a rank counts when its process joins a group."""
    code = (
        "import os, pathlib; server = pathlib.Path(f'/proc/{os.getppid()}/environ').read_text(); "
        "print(*(x for x in server.split('\\0') if x.startswith('OMP_NUM_THREADS')), os.environ['RANK'])"
    )
    env = {**os.environ, "OMP_NUM_THREADS": threads, "RANK": "2"}
    done = run_forked([sys.executable, "-c", code], env=env, check=True)
    assert done.stdout == f"OMP_NUM_THREADS={threads} 2\n"


def test_waiting_and_signals() -> None:
    with ForkedProcess(
        [sys.executable, "-c", "print(input(), flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("a line\n")
        process.stdin.flush()
        assert process.stdout.readline() == "a line\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert process.poll() == -signal.SIGKILL


def test_an_end_before_anybody_asks_for_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    send = socket.send_fds

    def late(*args: Any) -> int:
        sent = send(*args)
        time.sleep(0.3)
        return sent

    monkeypatch.setattr(socket, "send_fds", late)
    process = ForkedProcess(
        [sys.executable, "-c", "import os; print(os.getpid(), flush=True); os._exit(3)"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.communicate()[0] == f"{process.pid}\n"
    assert process.returncode == 3


def test_the_server_outlives_a_test_that_has_given_up() -> None:
    """As after an interrupt between the start of a process and its end."""
    process = ForkedProcess([sys.executable, "-c", "print(input())"], stdin=subprocess.PIPE, text=True)
    assert process._status is not None
    process._status.close()
    assert process.stdin is not None
    process.stdin.close()
    time.sleep(0.3)
    assert run_forked([sys.executable, "-c", "print(7)"], check=True).stdout == "7\n"
    process.returncode = 0
