"""``dl4all profile``: runs a script and prints the times of its kernels."""

from __future__ import annotations

import sys

import click

import dl4all as dl
from dl4all.cli.script import run_script, writable


# Options before SCRIPT belong to this command, and those after it to the script, as with python itself.
@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--trace", metavar="FILE", help="Write a trace for https://ui.perfetto.dev or Chrome.")
def profile(script: str, args: tuple[str, ...], trace: str | None) -> int:
    """Run a Python SCRIPT with its ARGS and print a table of its kernels to stderr.

    Options go before SCRIPT; everything after it is the script's. The exit status is the script's own.
    """
    file = None if trace is None else writable(trace)
    profiled = dl.profile()
    try:
        with profiled:
            return run_script(script, args)
    finally:  # after an interrupt too, which often ends long scripts
        print(profiled, file=sys.stderr)
        if file is not None:
            profiled.save(file)
