"""``dl4all devices``: what hardware is here, how fast it measured, and which one ``auto`` takes."""

from __future__ import annotations

import dataclasses
import json

import click
from rich.console import Console
from rich.table import Table

from dl4all.calibration import calibrate_all
from dl4all.runtime import measurements, registry, selection

MEASURE = "Not measured yet: dl4all devices --calibrate takes two seconds a device."


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--calibrate", is_flag=True, help="Measure every device, two seconds each, and keep the results."
)
@click.option(
    "--why", is_flag=True, help='Show what "auto" weighs: the measurements of each device and backend.'
)
def devices(as_json: bool, calibrate: bool, why: bool) -> None:
    """List the devices of this machine and say which one "auto" takes."""
    if calibrate:
        with Console(stderr=True).status("Measuring"):
            calibrate_all()
    choice = registry.auto()
    if as_json:
        print(json.dumps(_report(choice), indent=2))
        return
    console = Console()
    # A pipe has no width: lines as long as they need to be are easier to search than wrapped cells.
    wide = Console(width=None if console.is_terminal else 250)
    wide.print(_table(choice))
    if why or calibrate:
        wide.print(_measured_table())
    wide.print(f'device="auto" is {choice.name}: {choice.reason}', highlight=False, markup=False)
    if not any(measurements.lookup(name, info) for info in registry.devices() for name in info.names):
        wide.print(MEASURE, highlight=False)
    if problem := registry.find().vulkan_problem:
        wide.print(problem, highlight=False, markup=False)


def _report(choice: selection.Choice) -> dict[str, object]:
    return {
        "devices": [
            {
                "names": device.names,
                **dataclasses.asdict(device),
                "measured": {
                    name: dataclasses.asdict(found)
                    for name in device.names
                    if (found := measurements.lookup(name, device)) is not None
                },
            }
            for device in registry.devices()
        ],
        "auto": {"device": choice.name, "reason": choice.reason},
        "problem": registry.find().vulkan_problem or None,
    }


def _table(choice: selection.Choice) -> Table:
    table = Table()
    headings = (
        "device=",
        "hardware",
        "type",
        "vendor",
        "driver",
        "API",
        "memory",
        "subgroup",
        "fp16/int8",
        "GFLOP/s",
    )
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for device in registry.devices():
        names = [f"{name} *" if name == choice.name else name for name in device.names]
        speeds = [_speed(measurements.lookup(name, device)) for name in device.names]
        table.add_row(
            "\n".join(names),
            device.hardware,
            device.type,
            device.vendor,
            f"{device.driver}\n{device.driver_version}",
            device.api_version or "-",
            _size(device.memory),
            str(device.subgroup_size or "-"),
            "/".join("yes" if has else "no" for has in (device.float16, device.int8)),
            "\n".join(speeds),
        )
    return table


def _measured_table() -> Table:
    table = Table(title="Measured")
    for heading in (
        "device=",
        "matmul GFLOP/s",
        "copy GB/s",
        "upload GB/s",
        "download GB/s",
        "launch us",
        "problem",
    ):
        table.add_column(heading, justify="left" if heading in ("device=", "problem") else "right")
    for device in registry.devices():
        for name in device.names:
            found = measurements.lookup(name, device)
            if found is None:
                table.add_row(name, *"-----", "not measured")
                continue
            *numbers, problem = dataclasses.astuple(found)
            table.add_row(name, *(f"{number:.1f}" for number in numbers), problem or "none")
    return table


def _speed(found: measurements.Measurement | None) -> str:
    if found is None:
        return "-"
    return "wrong" if found.problem else f"{found.matmul_gflops:.0f}"


def _size(nbytes: int) -> str:
    """
    >>> _size(2 << 30)
    '2.0 GiB'
    """
    return f"{nbytes / 2**30:.1f} GiB"
