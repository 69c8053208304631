"""Functions that compilers do not take as they are, captured by dl.compile and by torch.compile.

python examples/course/captures.py
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import click

import dl4all as dl
from dl4all.cli.run import run
from dl4all.graph.run.compiled import CompileWarning


def plain(x: Any) -> Any:
    return (x * 2).relu().sum()


def branch(x: Any) -> Any:
    if x.sum() > 0:
        return x * 2
    return x - 1


def item(x: Any) -> Any:
    return x * x.max().item()


def shown(x: Any) -> Any:
    y = x * 2
    print(end="")
    return y + 1


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "plain": plain,
    "if on a value": branch,
    "a number from a value": item,
    "a print": shown,
}


def ours(function: Callable[[Any], Any], device: dl.Device) -> str:
    """The graphs that dl.compile has after calls with positive and negative elements."""
    compiled = dl.compile(function)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", CompileWarning)
        for sign in (1, 1, 1, -1, -1, 1):
            x = sign * dl.ones(4, device=device)
            assert (compiled(x) == function(x)).all().item()
    refused = [one for one in seen if issubclass(one.category, CompileWarning)]
    graphs = sum(len(found) for found in compiled.specializations.values())
    return "runs uncompiled" if refused else f"{graphs} graph{'s' * (graphs != 1)}"


def theirs(function: Callable[[Any], Any]) -> str:
    """The graphs and the breaks between them that TorchDynamo explains."""
    import torch

    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = torch._dynamo.explain(function)(torch.ones(4))
    breaks = found.graph_break_count
    return f"{found.graph_count} graph{'s' * (found.graph_count != 1)}, {breaks} break{'s' * (breaks != 1)}"


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, cpu, vulkan:0, kompute:0, ...")
def main(device: str) -> None:
    place = dl.device(device)
    has_torch = find_spec("torch") is not None
    print(f"{'':<24}{'dl.compile':<20}{'torch.compile' if has_torch else ''}")
    for name, function in FUNCTIONS.items():
        print(f"{name:<24}{ours(function, place):<20}{theirs(function) if has_torch else ''}".rstrip())


if __name__ == "__main__":
    run(main, "captures")
