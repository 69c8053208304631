"""``dl4all torch-report``: runs a script and prints the ops of PyTorch that it used on ``dlall``."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
import sys

import click
from rich.console import Console

from dl4all.cli.script import run_script, writable
from dl4all.errors import BackendMissingError


# Options before SCRIPT belong to this command, and those after it to the script, as with python itself.
@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--json", "json_file", metavar="FILE", help="Write the rows there, too.")
def torch_report(script: str, args: tuple[str, ...], json_file: str | None) -> int:
    """Run a Python SCRIPT with its ARGS and print to stderr which ops of PyTorch ran natively.

    Each op waits for the device, so the script takes longer than usual. Options go before SCRIPT; everything
    after it is the script's. The exit status is the script's own.
    """
    if importlib.util.find_spec("torch") is None:
        raise BackendMissingError("[torch-report] PyTorch is missing; pip install torch==2.13.0")
    from dl4all.pytorch.device import report

    file = None if json_file is None else writable(json_file)
    report.start()
    try:
        return run_script(script, args)
    finally:  # after an interrupt too, which often ends long scripts
        Console(file=sys.stderr, width=shutil.get_terminal_size((120, 0)).columns).print(report.table())
        if file is not None:
            file.write_text(json.dumps([dataclasses.asdict(row) for row in report.rows()], indent=1))
