"""Tensors, the graph that gradients walk, second derivatives, and Jacobians.

python examples/course/derivatives.py --picture derivatives.svg
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run

sys.path.insert(0, str(Path(__file__).parents[2]))

from dl4all.io.picture_file import new_figure, save_figure


def walk(node: Any, depth: int = 0) -> list[str]:
    """The nodes of a history, each with what it came from below it."""
    lines = ["  " * depth + (getattr(node, "name", "") or type(node).__name__)]
    for below, _ in node.next_functions:
        if below is not None:
            lines += walk(below, depth + 1)
    return lines


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, cpu, vulkan:0, kompute:0, ...")
@click.option("--picture", metavar="FILE.svg", help="Draw a function and its derivatives.")
def main(device: str, picture: str | None) -> None:
    place = dl.device(device)
    # A view is another tensor on the same memory; a broadcast axis costs no memory.
    grid = dl.arange(6, dtype=dl.float32, device=place).reshape(2, 3)
    column = grid[:, 1]
    column += 10
    print("a view writes through:", grid.tolist())

    x = dl.linspace(-2, 2, 81, device=place).requires_grad_()
    y = x.tanh() * x
    print("history of x.tanh() * x:", *walk(y.grad_fn), sep="\n  ")
    [first] = dl.autograd.grad(y.sum(), [x], create_graph=True)
    [second] = dl.autograd.grad(first.sum(), [x])
    t = np.tanh(x.detach().numpy())
    np.testing.assert_allclose(first.detach().numpy(), t + x.detach().numpy() * (1 - t * t), atol=1e-5)
    np.testing.assert_allclose(second.numpy(), (1 - t * t) * (2 - 2 * x.detach().numpy() * t), atol=1e-4)
    print(f"y'' at 0 is {second[40].item():.3f}")

    weight = dl.tensor(np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32), device=place)
    point = dl.tensor([0.5, -1.0], device=place)
    jacobian = dl.func.jacrev(lambda v: (weight @ v).sin())(point)
    expected = np.cos(weight.numpy() @ point.numpy())[:, None] * weight.numpy()
    np.testing.assert_allclose(jacobian.numpy(), expected, rtol=1e-4)
    print("Jacobian of sin(W v):", np.round(jacobian.numpy(), 3).tolist())
    hessian = dl.func.hessian(lambda v: (v[0] ** 2 * v[1]).sum())(point)
    print("Hessian of a^2 b:", np.round(hessian.numpy(), 3).tolist())
    if picture is not None:
        figure = new_figure("course", 6, 3.2)
        axes = figure.add_subplot()
        for name, line in (("x tanh x", y), ("first", first), ("second", second)):
            axes.plot(x.detach().numpy(), line.detach().numpy(), label=name)
        axes.legend()
        save_figure("course", figure, picture)


if __name__ == "__main__":
    run(main, "derivatives")
