"""Prune half of the channels within a trained ResNet's blocks while it trains on, and take them out.

python examples/prune_digits.py --save pruned_digits.pth
"""

from __future__ import annotations

import copy
import time

import click

import dl4all as dl
from dl4all import nn
from dl4all.cli.run import run
from dl4all.nn.utils import prune

REPEATS = 20  # of a measured call; the quickest counts


def within_blocks(net: nn.Module) -> list[tuple[nn.Module, str]]:
    """The first convolutions of residual blocks: what they make is added to nothing."""
    return [(part, "weight") for name, part in net.named_modules() if name.endswith(".conv1")]


def accuracy(net: nn.Module, batches: dl.data.DataLoader) -> float:
    with dl.no_grad():
        right = [(net.eval()(x).argmax(1) == y).float().mean().item() * len(y) for x, y in batches]
    return float(sum(right)) / len(batches.dataset)


def milliseconds(nets: list[nn.Module], x: dl.Tensor) -> list[float]:
    """Compiled calls of a batch, in turns."""
    calls = [dl.compile(net.eval()) for net in nets]
    times: list[list[float]] = [[] for _ in nets]
    with dl.no_grad():
        for _ in range(REPEATS):
            for call, found in zip(calls, times, strict=True):
                begun = time.perf_counter()
                call(x).numpy()
                found.append(1000 * (time.perf_counter() - begun))
    return [min(found) for found in times]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--epochs", type=click.IntRange(min=1), default=4, show_default=True)
@click.option(
    "--samples", type=click.IntRange(min=64), default=1438, show_default=True, help="To learn from."
)
@click.option(
    "--amount", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="Share of channels."
)
@click.option("--save", metavar="FILE", default="pruned_digits.pth", show_default=True)
def main(device: str, epochs: int, samples: int, amount: float, save: str) -> None:
    """Train on 1438 digits, read 359 others, and save the smaller network."""
    dl.manual_seed(0)
    learned, held_out = dl.data.random_split(dl.data.digits(32), (0.8, 0.2))
    learned.indices = learned.indices[:samples]
    net = dl.models.resnet18_digits().to(device)
    tests = dl.data.DataLoader(held_out, batch_size=256, device=device)
    x = next(iter(tests))[0]

    optimizer = dl.optim.AdamW(net.parameters(), lr=2e-4)
    batches = dl.data.DataLoader(dl.data.shifted(learned, 2), batch_size=64, shuffle=True, device=device)
    schedule = prune.SparsityScheduler(
        within_blocks(net),
        amount,
        max(1, (epochs - 1) * len(batches)),
        method=prune.ln_structured,
        n=2,
        dim=0,
    )
    trained = copy.deepcopy(net)
    for _ in range(epochs):
        net.train()
        for images, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
            schedule.step()

    prune.extend_to_norms(net, x)
    small = prune.compact(net, x)
    took = milliseconds([trained, small], x)
    for name, made, ms in zip(("trained", "compacted"), (trained, small), took, strict=True):
        count = sum(p.numel() for p in made.parameters())
        print(
            f"{name:9}  {count:,} parameters, {accuracy(made, tests):.2%} of 359 digits, {ms:.1f} ms a batch"
        )
    dl.save(small.state_dict(), save)


if __name__ == "__main__":
    run(main, "prune_digits.py")
