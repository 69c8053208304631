"""Running a compiler that is a program."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dl4all.errors import ShaderError

MAX_BYTES = 512 << 20  # a plain shader takes 40 MiB


class Ended(NamedTuple):
    """The end of a run and its output."""

    status: int
    output: bytes
    messages: bytes


def run(command: Sequence[str], folder: Path | None = None) -> Ended:
    """Run a compiler with its memory limited, in a folder.

    Neither glslc nor glslangValidator notices a circle of includes, which would otherwise take all
    the memory of the machine.

    Raises:
        ShaderError: it cannot be started.
    """
    try:
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=folder) as process:
            if sys.platform == "linux":
                import resource

                resource.prlimit(process.pid, resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
            output, messages = process.communicate()
    except OSError as error:
        raise ShaderError(f"cannot run {command[0]}: {error}") from error
    return Ended(process.returncode, output, messages)


def complaint(program: str, status: int, said: str) -> ShaderError:
    """The error for a failed run; one that ran out of memory has nothing to say."""
    silent = f"{program} ended with {status} and no message; do includes go in a circle?"
    return ShaderError(said.strip() or silent)


def version(program: str) -> str | None:
    """The name and version of an installed program, None where it is missing or does not run."""
    found = shutil.which(program)
    return _version(found, program) if found else None


@functools.cache
def _version(path: str, program: str) -> str | None:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{program} {' '.join(said.split())}"
