"""``dl4all devices``: lists the devices, their measured speed, and the one that ``auto`` takes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import click
import psutil
from rich.console import Console
from rich.table import Column, Table

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
WIDE = 120  # columns of text that all columns of the table need
WAIT_SECONDS = 10.0  # for another process that measures


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print every fact as JSON instead of a table.")
@click.option(
    "--calibrate", is_flag=True, help="Measure every device, two seconds each, and keep the results."
)
@click.option(
    "--why", is_flag=True, help='Say why "auto" takes what it takes: the rules and all measurements.'
)
@click.option("--wide", is_flag=True, help=f"Show all columns, as from {WIDE} columns of text on.")
def devices(as_json: bool, calibrate: bool, why: bool, wide: bool) -> None:
    """List the devices of this machine and say which one "auto" takes.

    \b
    dl4all devices --why         the rules, and all measurements
    dl4all devices --calibrate   measure anew, after a driver was updated
    """
    if calibrate:
        _calibrate_all()
    choice = registry.auto()
    if as_json:
        print(json.dumps(report_of_devices(choice), indent=2, default=sorted))  # sorted: sets
        return
    # A pipe has no width, and long lines are easier to search than wrapped cells.
    console = Console()
    out = console if console.is_terminal and not wide else Console(width=max(console.width, 250))
    wide = out.width >= WIDE
    out.print(_table(choice, wide))
    if why or calibrate:
        out.print(_measured_table())
    if not wide:
        out.print("--wide shows drivers, PCI addresses and more.", highlight=False)
    out.print(f'device="auto" is {choice.name}: {choice.reason}', highlight=False, markup=False)
    if why:
        for line in _why():
            out.print(line, highlight=False, markup=False)
    if not any(measurements.lookup(name, view) for view, name in _named_devices()):
        out.print(MEASURE, highlight=False)
    if problem := registry.find().vulkan_problem:
        out.print(problem, highlight=False, markup=False)


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


def report_of_devices(choice: selection.Choice) -> dict[str, object]:
    """Every fact about the devices, as ``--json`` prints them."""
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


def _table(choice: selection.Choice, wide: bool) -> Table:
    headings = [name for name, (narrow, _) in COLUMNS.items() if wide or narrow]
    table = Table(*(Column(heading, overflow="fold") for heading in headings))
    for device in registry.devices():
        for view in device.drivers:
            cells = {name: cell(view) for name, (_, cell) in COLUMNS.items()}
            if view is not device:
                cells |= dict.fromkeys(("type", "vendor", "PCI", "memory"), "")
                cells["hardware"] = "the same, other driver"
            marked = (f"{name} *" if name == choice.name else name for name in view.names)
            cells["device="] = "\n".join(marked)
            table.add_row(*(cells[heading] for heading in headings))
    return table


def _half(view: DeviceInfo) -> str:
    return "/".join("yes" if has else "no" for has in (view.float16, view.int8))


def _speeds(view: DeviceInfo) -> str:
    return "\n".join(_speed(measurements.lookup(name, view)) for name in view.names)


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
        is_text = heading in ("device=", "problem")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=heading == "device=")
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


COLUMNS: dict[str, tuple[bool, Callable[[DeviceInfo], str]]] = {
    "device=": (True, lambda view: "\n".join(view.names)),
    "hardware": (True, lambda view: view.hardware),
    "type": (True, lambda view: view.type),
    "vendor": (False, lambda view: view.vendor),
    "PCI": (False, lambda view: view.pci or "-"),
    "driver": (False, lambda view: f"{view.driver}\n{view.driver_version}"),
    "API": (False, lambda view: view.api_version or "-"),
    "memory": (True, _memory),
    "subgroup": (False, lambda view: str(view.subgroup_size or "-")),
    "fp16/int8": (False, _half),
    "GFLOP/s": (True, _speeds),
}
"""The columns of the table: whether a narrow one has them, and what they show of a device by one driver."""
