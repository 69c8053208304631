"""Learn to learn: after seeing ten points of a new sinusoid, one step of gradient descent draws the rest.

python examples/sinusoid_maml.py
"""

from __future__ import annotations

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run

Batch = tuple[dl.Tensor, dl.Tensor, dl.Tensor, dl.Tensor]


def sinusoids(draw: np.random.Generator, count: int, device: str) -> Batch:
    """Ten points of each of several sinusoids to learn from, and ten others: x, y, x, y."""
    amplitude, phase = draw.uniform(0.1, 5.0, (count, 1, 1)), draw.uniform(0.0, np.pi, (count, 1, 1))
    x, other = draw.uniform(-5.0, 5.0, (2, count, 10, 1))
    parts = (x, amplitude * np.sin(x - phase), other, amplitude * np.sin(other - phase))
    first, second, third, fourth = (dl.tensor(part.astype(np.float32), device=device) for part in parts)
    return first, second, third, fourth


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="Where it trains: cpu, vulkan:0, ...")
@click.option("--steps", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option("--compile", is_flag=True, help="Replay a recorded step.")
def main(device: str, steps: int, compile: bool) -> None:
    """Train MAML on sinusoids of random height and phase, and try it on others."""
    dl.manual_seed(0)
    name = str(dl.device(device))
    layers = (dl.nn.Linear(1, 40), dl.nn.ReLU(), dl.nn.Linear(40, 40), dl.nn.ReLU(), dl.nn.Linear(40, 1))
    maml = dl.meta.MAML(dl.nn.Sequential(*layers), lr=0.01).to(name)
    optimizer = dl.optim.Adam(maml.parameters(), lr=0.001)

    def loss(x: dl.Tensor, y: dl.Tensor, other: dl.Tensor, wanted: dl.Tensor) -> dl.Tensor:
        return maml.loss((x, y), (other, wanted), dl.nn.functional.mse_loss).mean()

    step = dl.compile(loss) if compile else loss
    draw = np.random.default_rng(0)
    for number in range(steps):
        optimizer.zero_grad()
        error = step(*sinusoids(draw, 25, name))
        error.backward()
        optimizer.step()
        if (number + 1) % max(1, steps // 5) == 0:
            print(f"step {number + 1}: error {error.item():.1f}")

    x, y, other, wanted = sinusoids(np.random.default_rng(1), 200, name)
    before = (maml(other) - wanted).square().mean().item()
    found = maml.loss((x, y), (other, wanted), dl.nn.functional.mse_loss).mean().item()
    print(f"error on new sinusoids {before:.1f}, after one step {found:.1f} on {name}")


if __name__ == "__main__":
    run(main, "sinusoid_maml.py")
