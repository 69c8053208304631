"""Runs a command; a mistake of the user is one line on stderr and exit status 2."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from dl4all.errors import Dl4allError


def run(command: click.Command, name: str) -> NoReturn:
    """Run `command` with the process's arguments, then exit.

    Exit status: 0 if all went well, 1 if the user interrupted, 2 if an argument, file or device
    was not usable. Any other exception is a defect and keeps its traceback.
    """
    try:
        sys.exit(command.main(prog_name=name, standalone_mode=False) or 0)
    except click.ClickException as error:
        _fail(name, error.format_message())
    except Dl4allError as error:
        _fail(name, str(error))
    except (click.Abort, KeyboardInterrupt):
        sys.exit(1)


def _fail(name: str, message: str) -> NoReturn:
    print(f"{name}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
