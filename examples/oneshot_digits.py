"""Learn to learn: after one picture of each of five digits that it never saw, a network tells them apart.

python examples/oneshot_digits.py
"""

from __future__ import annotations

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run

F = dl.nn.functional
WAYS, STEPS = 5, 5
MEASURED = 200


def sampler(digits: range, turned: bool, seed: int, device: str) -> dl.meta.TaskSampler:
    """Tasks of five classes, one picture of each to learn from and five to be measured on.

    A digit that is turned by 90 degrees is a class of its own: there are four times as many to learn from.
    """
    pictures, labels = dl.data.digits().arrays
    chosen = np.isin(labels, digits)
    turns = range(4 if turned else 1)
    x = np.concatenate([np.rot90(pictures[chosen], turn, (2, 3)) for turn in turns])
    y = np.concatenate([labels[chosen] + 10 * turn for turn in turns])
    inputs, classes = dl.tensor(np.ascontiguousarray(x)), dl.tensor(y)
    return dl.meta.TaskSampler(inputs, classes, ways=WAYS, shots=1, queries=5, seed=seed, device=device)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="Where it trains: cpu, vulkan:0, ...")
@click.option("--steps", type=click.IntRange(min=1), default=300, show_default=True)
@click.option("--compile", is_flag=True, help="Replay a recorded step.")
def main(device: str, steps: int, compile: bool) -> None:
    """Train MAML on the digits 0 to 4, and measure it on 5 to 9."""
    dl.manual_seed(0)
    name = str(dl.device(device))
    learned, unseen = sampler(range(5), True, 0, name), sampler(range(5, 10), False, 1, name)
    net = dl.nn.Sequential(
        dl.nn.Conv2d(1, 32, 3, padding=1), dl.nn.ReLU(), dl.nn.MaxPool2d(2),
        dl.nn.Conv2d(32, 32, 3, padding=1), dl.nn.ReLU(), dl.nn.MaxPool2d(2),
        dl.nn.Flatten(), dl.nn.Linear(128, WAYS),
    )  # fmt: skip
    maml = dl.meta.MAML(net, lr=0.1).to(name)
    optimizer = dl.optim.Adam(maml.parameters(), lr=0.001)

    def loss(x: dl.Tensor, y: dl.Tensor, other: dl.Tensor, wanted: dl.Tensor) -> dl.Tensor:
        return maml.loss((x, y), (other, wanted), F.cross_entropy, steps=STEPS).mean()

    step = dl.compile(loss) if compile else loss
    for number in range(steps):
        optimizer.zero_grad()
        error = step(*learned.batch(8))
        error.backward()
        optimizer.step()
        if (number + 1) % max(1, steps // 5) == 0:
            print(f"step {number + 1}: loss {error.item():.2f}")

    right = []
    for task, _ in zip(unseen, range(MEASURED)):  # noqa: B905  # tasks are endless
        learner = maml.clone()
        for _ in range(STEPS):
            learner.adapt(F.cross_entropy(learner(task.support_x), task.support_y))
        right.append(float((learner(task.query_x).argmax(1) == task.query_y).float().mean()))
    half = 1.96 * np.std(right) / len(right) ** 0.5
    print(f"{np.mean(right):.1%} ± {half:.1%} of five digits that it saw once, on {name}; chance is 20%")


if __name__ == "__main__":
    run(main, "oneshot_digits.py")
