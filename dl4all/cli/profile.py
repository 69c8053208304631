"""``dl4all profile``: run a script and say where the time went."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType

import click

import dl4all as dl
from dl4all.errors import FileFormatError


# As with python itself, options before SCRIPT are this command's and all after it are the script's.
@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--trace", metavar="FILE", help="Write a trace for https://ui.perfetto.dev or Chrome.")
def profile(script: str, args: tuple[str, ...], trace: str | None) -> int:
    """Run a Python SCRIPT with its ARGS and print a table of its kernels to stderr.

    Options go before SCRIPT; everything after it is the script's. The exit status is the script's own.
    """
    file = None if trace is None else _writable(trace)
    recorded = dl.profile()
    try:
        with recorded:
            return _run(script, args)
    finally:  # after an interrupt too, which is how long scripts are often ended
        print(recorded, file=sys.stderr)
        if file is not None:
            recorded.save(file)


def _writable(path: str) -> Path:
    """The file, made empty now: a wrong name is refused before the script runs, not after.

    The path is absolute, since the script may go elsewhere.
    """
    file = Path(path).absolute()
    try:
        file.write_bytes(b"")
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror}") from None
    return file


def _run(script: str, args: tuple[str, ...]) -> int:
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
    """What Python makes of ``sys.exit(code)``: text goes to stderr and counts as 1."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _inside(where: TracebackType | None, script: str) -> TracebackType | None:
    """The traceback from the script's own first line on: none of it where no line of it ran."""
    while where is not None and where.tb_frame.f_code.co_filename != script:
        where = where.tb_next
    return where
