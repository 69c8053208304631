"""A peer's process, asked one question at a time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.peers.cases import Case
from lab.peers.environment import PEERS, interpreter

ROOT = Path(__file__).parents[2]
SECONDS = 600  # for one answer; a compiler may take its time, a hanging driver may not


class PeerError(Exception):
    """A peer did not do what it was asked; the message is its own reason."""


class Child:
    """A running peer, or another `module` in its environment. Close it, or use it in a ``with`` statement.

    >>> with Child("numpy") as child:
    ...     child.prepare(Case("small", (2, 3), (3, 4)))
    ...     taken = child.ask({"do": "run"})["seconds"]
    """

    def __init__(
        self,
        name: str,
        environment: dict[str, str] | None = None,
        seconds: float = SECONDS,
        module: str | None = None,
    ) -> None:
        peer = PEERS[name]
        script = f"lab.peers.{module or peer.module}"
        self.command = [interpreter(name), "-m", script, *peer.arguments]
        self.environment = {**os.environ, **(environment or {})}
        self.seconds = seconds
        self.start()

    def start(self) -> None:
        self.stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  close() does
        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
        )
        try:
            started = self.answer()
        except BaseException:
            self.close()
            raise
        self.about, self.device = str(started["about"]), str(started["device"])

    def prepare(self, case: Case) -> None:
        """Make a case ready, in a new process if the one before crashed."""
        if self.process.poll() is not None:
            self.close()
            self.start()
        self.ask({"do": "prepare", "case": case._asdict()})

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question of ``serve.py``. PeerError where it failed, died or took too long."""
        stdin = self.process.stdin
        assert stdin is not None
        try:
            print(json.dumps(question), file=stdin, flush=True)
        except BrokenPipeError:
            raise PeerError(self.last_words()) from None
        return self.answer()

    def answer(self) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(self.seconds, give_up)
        timer.start()
        try:
            line = stdout.readline()
        finally:
            timer.cancel()
        if late.is_set():
            self.process.wait()  # so that `prepare` sees that it is gone
            raise PeerError(f"no answer in {self.seconds:g} s")
        if not line:
            raise PeerError(self.last_words())
        found: dict[str, Any] = json.loads(line)
        if "failed" in found:
            raise PeerError(shortened(found["failed"]))
        return found

    def last_words(self) -> str:
        status = self.process.wait()
        self.stderr.seek(0)
        lines = self.stderr.read().split("\n")
        return shortened(next((line for line in reversed(lines) if line.strip()), f"exit status {status}"))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # a question that a dead process never read
                stream.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def shortened(reason: str) -> str:
    """One line of a foreign library's message, without its templates and pages."""
    line = " ".join(reason.split())
    return line if len(line) <= 300 else line[:297] + "..."
