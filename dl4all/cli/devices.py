"""``dl4all devices``: lists the devices, their measured speed, and the one that ``auto`` takes."""

from __future__ import annotations

import dataclasses
import json

import click
import psutil
from rich.console import Console
from rich.table import Table

from dl4all.calibration import calibrate as calibrate_device
from dl4all.config import device_setting
from dl4all.errors import Dl4allError
from dl4all.runtime import registry, selection
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.records import measurements
from dl4all.runtime.vulkan.buffer import free_memory, memory_types
from dl4all.runtime.vulkan.discovery import physical_devices

MEASURE = "Not measured yet: dl4all devices --calibrate takes about a second for each name."
COMPILES = "compiles only"  # in the place of figures that such a device cannot have
WAIT_SECONDS = 10.0  # for another process that measures


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print every fact as JSON instead of a table.")
@click.option(
    "--calibrate", is_flag=True, help="Measure every device, two seconds each, and keep the results."
)
@click.option(
    "--why", is_flag=True, help='Say why "auto" takes what it takes: the rules and all measurements.'
)
def devices(as_json: bool, calibrate: bool, why: bool) -> None:
    """List the devices of this machine and say which one "auto" takes."""
    if calibrate:
        _calibrate_all()
    choice = registry.auto()
    if as_json:
        print(json.dumps(_report(choice), indent=2, default=sorted))  # sorted: sets
        return
    console = Console()
    # A pipe has no width, and long lines are easier to search than wrapped cells.
    wide = Console(width=None if console.is_terminal else 250)
    wide.print(_table(choice))
    if why or calibrate:
        wide.print(_measured_table())
    wide.print(f'device="auto" is {choice.name}: {choice.reason}', highlight=False, markup=False)
    if why:
        for line in _why():
            wide.print(line, highlight=False, markup=False)
    if not any(measurements.lookup(name, view) for view, name in _named_devices()):
        wide.print(MEASURE, highlight=False)
    if problem := registry.find().vulkan_problem:
        wide.print(problem, highlight=False, markup=False)


def _calibrate_all() -> None:
    """Measure all names, including those of second drivers."""
    messages = Console(stderr=True)
    # Measure even if another process does not finish, because the user asked for it.
    with messages.status("Measuring") as status, measurements.alone(WAIT_SECONDS):
        for name in (name for view, name in _named_devices() if not view.compiles_only):
            status.update(f"Measuring {name}")
            try:
                calibrate_device(name)
            except Dl4allError as error:
                messages.print(f"{name} was not measured: {error}", highlight=False, markup=False)


def _named_devices() -> list[tuple[DeviceInfo, str]]:
    """Each device with each of its names, one for each driver and backend."""
    views = [view for device in registry.devices() for view in device.drivers]
    return [(view, name) for view in views for name in view.names]


def _why() -> list[str]:
    """The rules by which ``auto`` chooses, even if a setting overrides them."""
    setting = device_setting()
    overridden = setting is not None and setting.value != "auto"
    lines = selection.explain(registry.devices(), measurements.lookup)
    return ["Without that setting:", *lines] if overridden else lines


def _report(choice: selection.Choice) -> dict[str, object]:
    return {
        "devices": [
            {
                "names": device.names,
                **dataclasses.asdict(device),
                "compiles_only": device.compiles_only,
                "free_memory": _free(device),
                "measured": {
                    name: dataclasses.asdict(measurement)
                    for view in device.drivers
                    for name in view.names
                    if (measurement := measurements.lookup(name, view)) is not None
                },
            }
            for device in registry.devices()
        ],
        "auto": {
            "device": choice.name,
            "reason": choice.reason,
            "why": _why(),
        },
        "problem": registry.find().vulkan_problem or None,
        "problems": registry.find().problems,
    }


def _table(choice: selection.Choice) -> Table:
    table = Table()
    headings = (
        "device=",
        "hardware",
        "type",
        "vendor",
        "PCI",
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
        for view in device.drivers:
            first = view is device
            table.add_row(
                "\n".join(f"{name} *" if name == choice.name else name for name in view.names),
                view.hardware if first else "the same, other driver",
                view.type if first else "",
                view.vendor if first else "",
                (view.pci or "-") if first else "",
                f"{view.driver}\n{view.driver_version}",
                view.api_version or "-",
                _memory(view) if first else "",
                str(view.subgroup_size or "-"),
                "/".join("yes" if has else "no" for has in (view.float16, view.int8)),
                "\n".join(_speed(measurements.lookup(name, view)) for name in view.names),
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
    for view, name in _named_devices():
        measurement = measurements.lookup(name, view)
        if measurement is None:
            table.add_row(name, *"-----", COMPILES if view.compiles_only else "not measured")
            continue
        *numbers, problem = dataclasses.astuple(measurement)
        table.add_row(name, *(f"{number:.1f}" for number in numbers), problem or "none")
    return table


def _speed(measurement: measurements.Measurement | None) -> str:
    if measurement is None:
        return "-"
    return "wrong" if measurement.problem else f"{measurement.matmul_gflops:.0f}"


def _free(info: DeviceInfo) -> int | None:
    """The bytes that this process could allocate now; None if the driver does not report it."""
    if info.compiles_only:
        return None
    if info.type == "cpu":
        return int(psutil.virtual_memory().available)
    if "memory_budget" not in info.features or not {"vulkan", "kompute"} & set(info.backends):
        return None
    physical = next(device for device in physical_devices() if device.info.index == info.index)
    return free_memory(physical, memory_types(physical, zero_copy=True)["device"].types[0])


def _memory(info: DeviceInfo) -> str:
    if info.compiles_only:
        return COMPILES
    free = _free(info)
    return _size(info.memory) if free is None else f"{_size(info.memory)}\n{_size(free)} free"


def _size(nbytes: int) -> str:
    """An amount of memory as text.

    >>> _size(2 << 30)
    '2.0 GiB'
    """
    return f"{nbytes / 2**30:.1f} GiB"
