"""Train with nothing but tensors and their gradients: no layer, no optimizer, no Trainer.

python examples/mlp_numpy_style.py
"""

from __future__ import annotations

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run

BATCH, RATE = 32, 0.2


def train(device: str, epochs: int, compiled: bool = False) -> tuple[list[dl.Tensor], float]:
    """The parameters, and the share of held-out digits that are read right."""
    place = dl.device(device)
    dl.manual_seed(0)
    learned, held_out = dl.data.random_split(dl.data.digits(), (0.8, 0.2))
    images, y = next(iter(dl.data.DataLoader(learned, len(learned), device=place)))
    x = images.reshape(-1, 64)

    w1 = dl.randn(64, 128, device=place) * (2 / 64) ** 0.5
    b1 = dl.zeros(128, device=place)
    w2 = dl.randn(128, 10, device=place) * (1 / 128) ** 0.5
    b2 = dl.zeros(10, device=place)
    parameters = [w1, b1, w2, b2]
    for parameter in parameters:
        parameter.requires_grad_()

    def network(x: dl.Tensor) -> dl.Tensor:
        scores: dl.Tensor = (x @ w1 + b1).relu() @ w2 + b2
        return scores

    def step(images: dl.Tensor, labels: dl.Tensor) -> dl.Tensor:
        log_shares = dl.log_softmax(network(images), dim=1)
        right = log_shares.gather(1, labels.unsqueeze(1))
        loss: dl.Tensor = -right.mean()
        loss.backward()
        with dl.no_grad():
            for parameter in parameters:
                parameter -= RATE * parameter.grad
                parameter.grad = None
        return loss.detach()

    take = dl.compile(step) if compiled else step
    rng = np.random.default_rng(0)
    for epoch in range(epochs):
        order = rng.permutation(len(y))
        for start in range(0, len(order), BATCH):
            chosen = dl.from_numpy(order[start : start + BATCH], place)
            loss = take(x[chosen], y[chosen])
        if (epoch + 1) % 5 == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}")

    images, labels = next(iter(dl.data.DataLoader(held_out, len(held_out), device=place)))
    with dl.no_grad():
        found = network(images.reshape(-1, 64)).argmax(1)
    return parameters, float(np.mean(found.numpy() == labels.numpy()))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the steps of training.")
@click.option("--epochs", type=click.IntRange(min=1), default=30, show_default=True)
def main(device: str, compiled: bool, epochs: int) -> None:
    """Learn 1438 digits by hand and read 359 others."""
    parameters, accuracy = train(device, epochs, compiled)
    print(f"test accuracy {accuracy:.2%} of 359 digits on {parameters[0].device}")


if __name__ == "__main__":
    run(main, "mlp_numpy_style.py")
