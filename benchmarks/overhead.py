"""What a call costs beside its arithmetic: small ops, modules and optimizers of dl4all and of PyTorch's CPU.

    python benchmarks/overhead.py [--device cpu] [--only norm ...] [--repeat 9] [--calls 200] [--json]

Operands have 64 elements or so, so that nearly all of a call is the host's work. Microseconds of processor
time a call on one thread, medians of turns that the libraries take: first without gradients; then recorded
for gradients, but no more; then with ``backward`` for a given gradient of the result, the call included. The
last line has the geometric means of the ratios to PyTorch, where less than 1 is faster than PyTorch.
``torch_overhead.py`` asks what calls of PyTorch's ops on a device of dl4all's cost.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.table import Table

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import threads

MODES = ("without gradients", "recorded", "with backward")
SQUARE = (8, 8)
PARAMETERS = 20  # of an optimizer
Operand = Any
"""The shape of a random tensor, or an array of indices itself."""
Op = tuple[Callable[..., Any], tuple[Operand, ...]]
Measured = dict[str, dict[str, dict[str, float]]]
"""Microseconds by name, mode and library."""

INDICES: npt.NDArray[np.int64] = np.array([3, 0, 7, 5, 2, 2, 6, 1])
IMAGE = (1, 4, 5, 5)

OPS: dict[str, Op] = {
    "add": (lambda lib, x, y: x + y, (SQUARE, SQUARE)),
    "add a row": (lambda lib, x, y: x + y, (SQUARE, (8,))),
    "mul": (lambda lib, x, y: x * y, (SQUARE, SQUARE)),
    "mul by a number": (lambda lib, x: x * 0.5, (SQUARE,)),
    "sub from a number": (lambda lib, x: 1 - x, (SQUARE,)),
    "div": (lambda lib, x, y: x / y, (SQUARE, SQUARE)),
    "exp": (lambda lib, x: x.exp(), (SQUARE,)),
    "relu": (lambda lib, x: lib.relu(x), (SQUARE,)),
    "sigmoid": (lambda lib, x: x.sigmoid(), (SQUARE,)),
    "tanh": (lambda lib, x: x.tanh(), (SQUARE,)),
    "gelu": (lambda lib, x: lib.nn.functional.gelu(x), (SQUARE,)),
    "where": (lambda lib, x, y: lib.where(x > y, x, y), (SQUARE, SQUARE)),
    "matmul": (lambda lib, x, y: x @ y, (SQUARE, SQUARE)),
    "batched matmul": (lambda lib, x, y: x @ y, ((4, 4, 4), (4, 4, 4))),
    "linear": (lambda lib, x, w, b: lib.nn.functional.linear(x, w, b), (SQUARE, SQUARE, (8,))),
    "sum": (lambda lib, x: x.sum(), (SQUARE,)),
    "sum of rows": (lambda lib, x: x.sum(1), (SQUARE,)),
    "mean": (lambda lib, x: x.mean(), (SQUARE,)),
    "max of rows": (lambda lib, x: x.amax(1), (SQUARE,)),
    "softmax": (lambda lib, x: x.softmax(-1), (SQUARE,)),
    "log_softmax": (lambda lib, x: x.log_softmax(-1), (SQUARE,)),
    "layer_norm": (
        lambda lib, x, w, b: lib.nn.functional.layer_norm(x, (8,), w, b),
        (SQUARE, (8,), (8,)),
    ),
    "cross_entropy": (lambda lib, x, y: lib.nn.functional.cross_entropy(x, y), (SQUARE, INDICES)),
    "mse_loss": (lambda lib, x, y: lib.nn.functional.mse_loss(x, y), (SQUARE, SQUARE)),
    "reshape": (lambda lib, x: x.reshape(4, 16), (SQUARE,)),
    "transpose": (lambda lib, x: x.transpose(0, 1), (SQUARE,)),
    "unsqueeze": (lambda lib, x: x.unsqueeze(1), (SQUARE,)),
    "expand": (lambda lib, x: x.expand(8, 8), ((8, 1),)),
    "slice": (lambda lib, x: x[:, 2:6], (SQUARE,)),
    "one row": (lambda lib, x: x[3], (SQUARE,)),
    "chunk": (lambda lib, x: x.chunk(2, 1)[0], (SQUARE,)),
    "cat": (lambda lib, x, y: lib.cat([x, y], 1), (SQUARE, SQUARE)),
    "stack": (lambda lib, x, y: lib.stack([x, y]), (SQUARE, SQUARE)),
    "transposed copy": (lambda lib, x: x.t().contiguous(), (SQUARE,)),
    "embedding": (lambda lib, i, x: lib.nn.functional.embedding(i, x), (INDICES, SQUARE)),
    "rows by indices": (lambda lib, x, i: x[i], (SQUARE, INDICES)),
    "gather": (lambda lib, x, i: x.gather(1, i), (SQUARE, INDICES[:, None])),
    "index_add": (lambda lib, x, i, y: x.index_add(0, i, y), (SQUARE, INDICES, SQUARE)),
    "conv2d": (lambda lib, x, w: lib.nn.functional.conv2d(x, w, padding=1), (IMAGE, (4, 4, 3, 3))),
    "max_pool2d": (lambda lib, x: lib.nn.functional.max_pool2d(x, 2), (IMAGE,)),
    "attention": (
        lambda lib, q, k, v: lib.nn.functional.scaled_dot_product_attention(q, k, v),
        ((1, 2, 4, 8),) * 3,
    ),
    "ten times a number": (lambda lib, x: _ten_times(x), (SQUARE,)),
}
"""By name, what is called and its operands."""

MODULES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "Linear": (lambda nn: nn.Linear(8, 8), SQUARE),
    "Sequential of three": (lambda nn: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), SQUARE),
    "LayerNorm": (lambda nn: nn.LayerNorm(8), SQUARE),
    "BatchNorm2d": (lambda nn: nn.BatchNorm2d(4), (2, 4, 3, 3)),
    "Conv2d": (lambda nn: nn.Conv2d(4, 4, 3, padding=1), IMAGE),
    "LSTMCell": (lambda nn: nn.LSTMCell(8, 8), SQUARE),
    "GRUCell": (lambda nn: nn.GRUCell(8, 8), SQUARE),
    "LSTM, 5 time steps": (lambda nn: nn.LSTM(8, 8), (5, 4, 8)),
    "TransformerEncoderLayer": (
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
        (2, 4, 8),
    ),
}
"""By name, the module and the shape of its input."""

OPTIMIZERS: dict[str, tuple[str, dict[str, float]]] = {
    "SGD": ("SGD", {"lr": 1e-3}),
    "SGD with momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "Adam": ("Adam", {}),
    "AdamW": ("AdamW", {}),
    "RMSprop": ("RMSprop", {}),
}
"""By name, the class and its options."""


class Subject(NamedTuple):
    """What one library calls."""

    call: Callable[[], Any]
    leaves: tuple[Any, ...] = ()
    """What gradients are for; without any, `call` is measured as it is."""


def _ten_times(x: Any) -> Any:
    for _ in range(10):
        x = x * 1.5
    return x


def tensor(lib: Any, array: npt.NDArray[Any], device: str) -> Any:
    return torch.from_numpy(array.copy()) if lib is torch else dl.tensor(array, device=device)


def op_subject(lib: Any, op: Op, device: str) -> Subject:
    function, operands = op
    rng = np.random.default_rng(0)
    arrays: list[npt.NDArray[Any]] = [
        one if isinstance(one, np.ndarray) else np.asarray(rng.uniform(0.5, 2, one), np.float32)
        for one in operands
    ]
    tensors = [tensor(lib, array, device) for array in arrays]
    leaves = [one for one, array in zip(tensors, arrays, strict=True) if array.dtype.kind == "f"]
    return Subject(lambda: function(lib, *tensors), tuple(leaves))


def module_subject(lib: Any, make: Callable[[Any], Any], shape: tuple[int, ...], device: str) -> Subject:
    module = make(lib.nn)
    if lib is dl:
        module.to(device)
    x = tensor(lib, np.random.default_rng(0).standard_normal(shape).astype(np.float32), device)

    def call() -> Any:
        result = module(x)
        return result[0] if isinstance(result, tuple) else result

    return Subject(call, (x, *module.parameters()))


def optimizer_subjects(lib: Any, device: str) -> dict[str, Subject]:
    """A step of each optimizer, and ``zero_grad``, for which gradients are set again each time."""
    rng = np.random.default_rng(0)

    def parameters() -> list[Any]:
        made = []
        for _ in range(PARAMETERS):
            values, gradient = (rng.standard_normal(SQUARE).astype(np.float32) for _ in range(2))
            parameter = lib.nn.Parameter(tensor(lib, values, device))
            parameter.grad = tensor(lib, gradient, device)
            made.append(parameter)
        return made

    subjects = {
        f"{name}, {PARAMETERS} parameters": Subject(getattr(lib.optim, kind)(parameters(), **options).step)
        for name, (kind, options) in OPTIMIZERS.items()
    }
    forgotten = parameters()
    gradients = [parameter.grad for parameter in forgotten]
    optimizer = lib.optim.SGD(forgotten, lr=1e-3)

    def forget() -> None:
        for parameter, gradient in zip(forgotten, gradients, strict=True):
            parameter.grad = gradient
        optimizer.zero_grad()

    norm = parameters()
    return {
        **subjects,
        f"zero_grad, {PARAMETERS} parameters": Subject(forget),
        f"clip_grad_norm_, {PARAMETERS} parameters": Subject(lambda: lib.nn.utils.clip_grad_norm_(norm, 1.0)),
        "empty": Subject(
            (lambda: torch.empty(SQUARE)) if lib is torch else (lambda: dl.empty(SQUARE, device=device))
        ),
        "item": Subject(gradients[0][0, 0].item),
    }


def subjects(lib: Any, device: str) -> dict[str, Subject]:
    """All that is measured, by name."""
    return {
        **{name: op_subject(lib, op, device) for name, op in OPS.items()},
        **{name: module_subject(lib, make, shape, device) for name, (make, shape) in MODULES.items()},
        **optimizer_subjects(lib, device),
    }


def timed(subject: Subject, mode: str) -> Callable[[], Any]:
    """What is called for a mode."""
    for leaf in subject.leaves:
        leaf.requires_grad_(mode != MODES[0])
    if mode != MODES[2]:
        return subject.call
    gradient = subject.call().detach().clone()

    def both() -> None:
        subject.call().backward(gradient)
        for leaf in subject.leaves:
            leaf.grad = None

    return both


def sample(call: Callable[[], Any], count: int) -> float:
    """Microseconds of a call."""
    start = time.process_time()
    for _ in range(count):
        call()
    return 1e6 * (time.process_time() - start) / count


def measure(device: str, only: tuple[str, ...], repeat: int, count: int) -> Measured:
    """All names that contain one of `only`, or all."""
    libraries = {"dl4all": subjects(dl, device), "PyTorch": subjects(torch, device)}
    found: Measured = {}
    for name, subject in libraries["dl4all"].items():
        if only and not any(part in name for part in only):
            continue
        found[name] = {}
        for mode in MODES if subject.leaves else MODES[:1]:
            calls = {library: timed(of[name], mode) for library, of in libraries.items()}
            taken: dict[str, list[float]] = {library: [] for library in calls}
            for call in calls.values():
                sample(call, 5)
            for _ in range(repeat):
                for library, call in calls.items():
                    taken[library].append(sample(call, count))
            found[name][mode] = {library: statistics.median(spent) for library, spent in taken.items()}
    return found


def table(found: Measured) -> Table:
    """Microseconds of each, and ratios with their geometric means."""
    result = Table(title="us a call: dl4all, PyTorch (dl4all / PyTorch)")
    for heading in ("", *MODES):
        result.add_column(heading, justify="right" if heading else "left")
    ratios: dict[str, list[float]] = {mode: [] for mode in MODES}
    for name, modes in found.items():
        cells = []
        for mode in MODES:
            if mode in modes:
                ours, theirs = modes[mode]["dl4all"], modes[mode]["PyTorch"]
                ratios[mode].append(ours / theirs)
                cells.append(f"{ours:.1f}, {theirs:.1f} ({ours / theirs:.1f})")
            else:
                cells.append("")
        result.add_row(name, *cells, end_section=name == list(found)[-1])
    means = [f"{statistics.geometric_mean(of):.2f}" if of else "" for of in ratios.values()]
    result.add_row("geometric mean of the ratios", *means)
    return result


@click.command()
@click.option("--device", default="cpu", show_default=True)
@click.option("--only", multiple=True, help="Names with this in them; all unless given.")
@click.option("--repeat", type=click.IntRange(min=1), default=9, show_default=True)
@click.option("--calls", "count", type=click.IntRange(min=1), default=200, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(device: str, only: tuple[str, ...], repeat: int, count: int, as_json: bool) -> None:
    """Compare the cost of small calls with PyTorch's on the CPU, on one thread."""
    threads.hold(1)
    found = measure(device, only, repeat, count)
    if not found:
        raise click.UsageError(f"--only {' '.join(only)}: nothing is named so")
    if as_json:
        print(json.dumps(found))
    else:
        Console(width=None if sys.stdout.isatty() else 120).print(table(found))


if __name__ == "__main__":
    main()
