"""What a network is made of: every layer's shape, parameters and operations."""

from __future__ import annotations

import io
import math
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from dl4all.autograd.grad_mode import no_grad
from dl4all.nn.module import Module
from dl4all.scheduler.profile import profile

WIDTH = 120


class Row(NamedTuple):
    """One call of one module."""

    name: str
    kind: str
    shape: str  # of its output
    parameters: int  # of its own and those below it
    flops: int  # floating point operations of matrix products and convolutions inside it


class Summary(NamedTuple):
    """What :func:`summary` found; ``print`` shows it as a table."""

    rows: list[Row]
    parameters: int
    trainable: int
    flops: int

    def __str__(self) -> str:
        table = Table(title=None, caption=None)
        for column in ("layer", "type", "output"):
            table.add_column(column, overflow="fold")
        for column in ("parameters", "MFLOP"):
            table.add_column(column, justify="right")
        for row in self.rows:
            table.add_row(row.name, row.kind, row.shape, f"{row.parameters:,}", f"{row.flops / 1e6:,.3f}")
        console = Console(file=io.StringIO(), width=WIDTH)
        console.print(table)
        console.print(
            f"{self.parameters:,} parameters, {self.trainable:,} of them trained; "
            f"{self.flops / 1e6:,.3f} MFLOP",
            highlight=False,
        )
        return console.file.getvalue().rstrip("\n")  # type: ignore[attr-defined,no-any-return]


def summary(module: Module, *inputs: Any) -> Summary:
    """Run a network once, without gradients and as in inference, and list what each of its modules did.

    Args:
        module: the network; it stays as it is.
        inputs: what it is called with, such as ``dl.zeros(1, 3, 224, 224)``, on the network's device.

    Returns:
        A row for each call of a module, in the order in which they began, and the totals.

    Raises:
        ArgumentError: a profile is active.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(4, 3), dl.nn.ReLU())
        >>> found = dl.nn.summary(net, dl.zeros(2, 4, device="cpu"))
        >>> [(row.name, row.shape, row.parameters, row.flops) for row in found.rows]
        [('', '(2, 3)', 15, 48), ('0', '(2, 3)', 15, 48), ('1', '(2, 3)', 0, 0)]
    """
    called: list[tuple[Module, int]] = []  # and the number of operations when it began
    rows: list[Row | None] = []
    names = {below: name for name, below in module.named_modules()}
    training = [below for below in module.modules() if below.training]

    def operations() -> int:
        return sum(event.flops for event in profiled.events if event.kind == "op")

    def begin(below: Module, _: Any) -> None:
        called.append((below, len(rows)))
        begun.append(operations())
        rows.append(None)

    def end(below: Module, _: Any, output: Any) -> None:
        _, place = called.pop()
        parameters = sum(parameter.numel() for parameter in below.parameters())
        done = operations() - begun.pop()
        rows[place] = Row(names[below], type(below).__name__, _shape(output), parameters, done)

    begun: list[int] = []
    hooks = [below.register_forward_pre_hook(begin) for below in names]
    hooks += [below.register_forward_hook(end) for below in names]
    module.eval()
    try:
        with no_grad(), profile() as profiled:
            module(*inputs)
    finally:
        for remove in hooks:
            remove()
        for below in training:
            below.training = True
    sizes = [(math.prod(p.shape), p.requires_grad) for p in module.parameters()]
    total = sum(size for size, _ in sizes)
    found = [row for row in rows if row is not None]
    return Summary(found, total, sum(size for size, learned in sizes if learned), found[0].flops)


def _shape(output: Any) -> str:
    if isinstance(output, tuple | list):
        return ", ".join(_shape(part) for part in output)
    return str(getattr(output, "shape", type(output).__name__))
