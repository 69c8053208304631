"""A table of a network's layers: output shapes, parameters and floating point operations."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.table import Table

from dl4all.autograd.grad_mode import no_grad
from dl4all.scheduler.monitor.profile import profile
from dl4all.tensor.tensor import Tensor

TABLE_WIDTH = 120


class Network(Protocol):
    """The methods of :class:`dl4all.nn.Module` that a summary needs; modules import this file."""

    training: bool

    def __call__(self, *inputs: Any) -> Any: ...

    def named_modules(self) -> Iterator[tuple[str, Network]]: ...

    def parameters(self) -> Iterator[Tensor]: ...

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> Callable[[], None]: ...

    def register_forward_hook(self, hook: Callable[..., Any]) -> Callable[[], None]: ...

    def eval(self) -> Network: ...


class SummaryRow(NamedTuple):
    """One call of one module."""

    name: str
    kind: str  # the name of the module's class
    shape: str  # the shape of the output
    parameters: int  # elements of the parameters of the module and all modules below it
    flops: int  # floating point operations of matrix products and convolutions in the call


class Summary(NamedTuple):
    """The result of :func:`summary`; ``print`` shows it as a table.

    Example:
        >>> import dl4all as dl
        >>> summary = dl.nn.summary(dl.nn.Linear(4, 3), dl.rand(1, 4))
        >>> isinstance(summary, dl.nn.Summary)
        True
    """

    rows: list[SummaryRow]
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
        text = io.StringIO()
        console = Console(file=text, width=TABLE_WIDTH)
        console.print(table)
        console.print(
            f"{self.parameters:,} parameters, {self.trainable:,} of them trained; "
            f"{self.flops / 1e6:,.3f} MFLOP",
            highlight=False,
        )
        return text.getvalue().rstrip("\n")


def summary(module: Network, *inputs: Any) -> Summary:
    """Run a network once, in inference mode and without gradients, and list the calls of its modules.

    Args:
        module: the network; it is not changed.
        inputs: its inputs, such as ``dl.zeros(1, 3, 224, 224)``, on the network's device.

    Returns:
        A row for each call of a module, in the order in which the calls began, and the totals.

    Raises:
        ArgumentError: a profile is active.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(4, 3), dl.nn.ReLU())
        >>> table = dl.nn.summary(net, dl.zeros(2, 4, device="cpu"))
        >>> [(row.name, row.shape, row.parameters, row.flops) for row in table.rows]
        [('', '(2, 3)', 15, 48), ('0', '(2, 3)', 15, 48), ('1', '(2, 3)', 0, 0)]
    """
    open_calls: list[_OpenCall] = []
    rows: list[SummaryRow | None] = []
    names = {submodule: name for name, submodule in module.named_modules()}
    training = [submodule for submodule in names if submodule.training]

    def flops_so_far() -> int:
        return sum(event.flops for event in profiled.events if event.kind == "op")

    def begin(submodule: Network, inputs: Any) -> None:
        open_calls.append(_OpenCall(len(rows), flops_so_far()))
        rows.append(None)

    def end(submodule: Network, inputs: Any, output: Any) -> None:
        row, flops_before = open_calls.pop()
        parameters = sum(parameter.numel() for parameter in submodule.parameters())
        flops = flops_so_far() - flops_before
        rows[row] = SummaryRow(names[submodule], type(submodule).__name__, _shape(output), parameters, flops)

    hooks = [submodule.register_forward_pre_hook(begin) for submodule in names]
    hooks += [submodule.register_forward_hook(end) for submodule in names]
    module.eval()
    try:
        with no_grad(), profile() as profiled:
            module(*inputs)
    finally:
        for remove in hooks:
            remove()
        for submodule in training:
            submodule.training = True
    sizes = [(math.prod(p.shape), p.requires_grad) for p in module.parameters()]
    total = sum(size for size, _ in sizes)
    trainable = sum(size for size, requires_grad in sizes if requires_grad)
    finished = [row for row in rows if row is not None]
    return Summary(finished, total, trainable, finished[0].flops)


class _OpenCall(NamedTuple):
    """A call of a module that has not returned yet."""

    row: int  # its index in the table
    flops_before: int


def _shape(output: Any) -> str:
    """The shapes of the tensors in an output; of anything else the name of its class."""
    if isinstance(output, tuple | list):
        return ", ".join(_shape(part) for part in output)
    return str(getattr(output, "shape", type(output).__name__))
