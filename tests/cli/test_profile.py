"""``dl4all profile``, run as a command."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.support.forked_process import COMMAND, run_forked

WORK = "import dl4all as dl; x = dl.ones(3, 3, device='cpu'); (x @ x).relu(); "


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_forked(
        [COMMAND, "profile", *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "160"},
    )


def script(folder: Path, code: str) -> str:
    (folder / "script.py").write_text(code)
    return "script.py"


def test_the_table_goes_to_stderr(tmp_path: Path) -> None:
    done = run(tmp_path, script(tmp_path, WORK + "print('mine')"))
    assert done.returncode == 0
    assert done.stdout == "mine\n"
    assert "GFLOP/s" in done.stderr
    assert "matmul" in done.stderr
    assert "Kernels: 2," in done.stderr


def test_the_script_runs_as_python_runs_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "neighbour.py").write_text("value = 5")
    code = (
        "import sys, neighbour, os\nprint(sys.argv, __name__, neighbour.value, os.path.basename(__file__))\n"
        "assert sys.modules['__main__'].sys is sys"
    )
    (tmp_path / "sub" / "s.py").write_text(code)
    done = run(tmp_path, "sub/s.py", "a", "--device", "vulkan:0", "-x", "--", "--trace", "-h")
    arguments = ["sub/s.py", "a", "--device", "vulkan:0", "-x", "--", "--trace", "-h"]
    assert done.stdout == f"{arguments} __main__ 5 s.py\n"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("", 0, ""),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('so long')", 1, "so long\n"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("raise dl.errors.ShapeError('mine')", 1, "ShapeError: mine"),
        ("import click; raise click.UsageError('mine')", 1, "UsageError: mine"),
        ("raise KeyboardInterrupt", 1, ""),
    ],
)
def test_the_scripts_own_exit_status(tmp_path: Path, end: str, status: int, said: str) -> None:
    done = run(tmp_path, script(tmp_path, WORK + "\n" + end))
    assert done.returncode == status
    assert said in done.stderr
    assert "Kernels: 2," in done.stderr
    assert "runpy" not in done.stderr
    assert "cli/profile.py" not in done.stderr


def test_a_script_that_is_no_python(tmp_path: Path) -> None:
    done = run(tmp_path, script(tmp_path, "1 +"))
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    assert "script.py" in done.stderr
    assert "cli/profile.py" not in done.stderr


def test_the_trace(tmp_path: Path) -> None:
    name = script(tmp_path, "import os; os.chdir('/'); " + WORK + "import sys; print(sys.argv)")
    done = run(tmp_path, "--trace", "trace.json", name, "a", "--trace", "b")
    assert done.stdout == "['script.py', 'a', '--trace', 'b']\n"
    entries = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in entries if e.get("cat") == "op"] == ["matmul", "relu"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "SCRIPT"),
        (["nowhere.py"], "nowhere.py"),
        (["."], "directory"),
        (["--trace", "no/where/t.json", "script.py"], "no/where/t.json"),
        (["--trace"], "--trace"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, arguments: list[str], word: str
) -> None:
    script(tmp_path, "print('ran')")
    monkeypatch.chdir(tmp_path)
    done = command("profile", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert word in done.stderr
