"""Scripts that a command runs as Python itself would."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType

from dl4all.errors import FileFormatError


def writable(path: str) -> Path:
    """Create an empty file, so that a wrong name is refused before the script runs.

    The path is absolute, because the script may change the working directory.
    """
    try:
        file = Path(path).absolute()
        file.write_bytes(b"")
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror}") from None
    return file


def run_script(script: str, args: tuple[str, ...]) -> int:
    """Run a script as ``python SCRIPT ARGS`` would; returns its exit status."""
    before = sys.argv, sys.path[:]
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return _status(end.code)
    except Exception as error:  # noqa: BLE001 - the script's own errors are not this command's
        traceback.print_exception(type(error), error, _inside(error.__traceback__, script))
        return 1
    finally:
        sys.argv, sys.path[:] = before
    return 0


def _status(code: object) -> int:
    """The exit status of ``sys.exit(code)``: text goes to stderr and counts as 1."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _inside(frames: TracebackType | None, script: str) -> TracebackType | None:
    """The part of a traceback that starts in the script; None if no line of the script has run."""
    while frames is not None and frames.tb_frame.f_code.co_filename != script:
        frames = frames.tb_next
    return frames
