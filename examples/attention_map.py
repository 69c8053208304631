"""Learn to reverse a sequence, and draw where each place of the answer looks.

python examples/attention_map.py --picture attention.png
"""

from __future__ import annotations

import click
import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all import nn
from dl4all.cli.run import run
from dl4all.nn import functional as F

LETTERS, LENGTH, WIDTH, BATCH = 10, 12, 32, 64


class Reversal(nn.Module):
    """Sequences (N, 12) of ten letters to logits (N, 12, 10), and the attention (N, 12, 12)."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 1, batch_first=True)
        self.answer = nn.Linear(WIDTH, LETTERS)

    def forward(self, x: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor]:
        places = self.places(dl.arange(LENGTH, device=x.device)).unsqueeze(0)
        read = self.letters(x) + places
        asked = places.expand(len(x), LENGTH, WIDTH)
        found, weights = self.attention(asked, read, self.letters(x))
        return self.answer(found), weights


def train(
    device: str, steps: int, progress: bool = True, compiled: bool = False
) -> tuple[Reversal, list[float]]:
    """The network, and the loss of each step."""
    place = dl.device(device)
    dl.manual_seed(0)
    rng = np.random.default_rng(0)
    net = Reversal().to(place)
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.01)

    def update(x: dl.Tensor, targets: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        loss: dl.Tensor = F.cross_entropy(net(x)[0].flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = dl.compile(update) if compiled else update
    losses = []
    for number in range(1, steps + 1):
        x = rng.integers(LETTERS, size=(BATCH, LENGTH))
        losses.append(
            float(step(dl.tensor(x, device=place), dl.tensor(x[:, ::-1].copy(), device=place)).item())
        )
        if progress and number % 100 == 0:
            print(f"step {number} of {steps}: loss {losses[-1]:.4f}")
    return net.eval(), losses


def draw(weights: npt.NDArray[np.float32], file: str) -> None:
    """The attention (12, 12): a row for each place of the answer."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise dl.errors.BackendMissingError("drawing needs matplotlib: pip install matplotlib") from None
    figure = Figure(figsize=(4.5, 4), layout="constrained")
    axes = figure.add_subplot()
    picture = axes.imshow(weights, cmap="viridis", vmin=0, vmax=1)
    axes.set(xlabel="place that is read", ylabel="place of the answer")
    figure.colorbar(picture, label="weight")
    figure.savefig(file)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the steps of training.")
@click.option("--steps", type=click.IntRange(min=1), default=400, show_default=True)
@click.option("--picture", metavar="FILE.png", default="attention.png", show_default=True)
def main(device: str, compiled: bool, steps: int, picture: str) -> None:
    """Learn to reverse sequences, and draw the attention (needs matplotlib)."""
    net, _ = train(device, steps, compiled=compiled)
    place = net.answer.weight.device
    x = np.random.default_rng(1).integers(LETTERS, size=(200, LENGTH))
    with dl.no_grad():
        logits, weights = net(dl.tensor(x, device=place))
    right = (logits.argmax(2).numpy() == x[:, ::-1]).mean()
    draw(weights[0].numpy(), picture)
    print(f"{right:.2%} of the letters right on {place}; drawn in {picture}")


if __name__ == "__main__":
    run(main, "attention_map.py")
