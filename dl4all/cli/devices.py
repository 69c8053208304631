"""``dl4all devices``: what hardware is here."""

from __future__ import annotations

import dataclasses
import json

import click
from rich.console import Console
from rich.table import Table

from dl4all.runtime import registry
from dl4all.runtime.info import DeviceInfo


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def devices(as_json: bool) -> None:
    """List the devices of this machine and say which one "auto" takes."""
    choice = registry.auto()
    if as_json:
        print(json.dumps(_report(choice), indent=2))
        return
    console = Console()
    # A pipe has no width: lines as long as they need to be are easier to search than wrapped cells.
    wide = Console(width=None if console.is_terminal else 250)
    wide.print(_table(choice))
    wide.print(f'device="auto" is {choice.name}: {choice.reason}', highlight=False)
    if problem := registry.find().vulkan_problem:
        wide.print(problem, highlight=False, markup=False)


def _report(choice: registry.Choice) -> dict[str, object]:
    return {
        "devices": [{"names": device.names, **dataclasses.asdict(device)} for device in registry.devices()],
        "auto": {"device": choice.name, "reason": choice.reason},
        "problem": registry.find().vulkan_problem or None,
    }


def _table(choice: registry.Choice) -> Table:
    table = Table()
    for heading in (
        "device=",
        "hardware",
        "type",
        "vendor",
        "driver",
        "API",
        "memory",
        "subgroup",
        "fp16/int8",
    ):
        table.add_column(heading, overflow="fold")
    for device in registry.devices():
        names = [f"{name} *" if name == choice.name else name for name in device.names]
        table.add_row(
            "\n".join(names),
            device.hardware,
            device.type,
            device.vendor,
            f"{device.driver}\n{device.driver_version}",
            device.api_version or "-",
            _size(device.memory),
            str(device.subgroup_size or "-"),
            _small_types(device),
        )
    return table


def _small_types(device: DeviceInfo) -> str:
    return "/".join("yes" if has else "no" for has in (device.float16, device.int8))


def _size(nbytes: int) -> str:
    """
    >>> _size(2 << 30)
    '2.0 GiB'
    """
    return f"{nbytes / 2**30:.1f} GiB"
