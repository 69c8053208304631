"""Invent handwritten digits, by a variational autoencoder (Kingma and Welling, arXiv:1312.6114).

python examples/digits_vae.py --picture digits.png
"""

from __future__ import annotations

import click
import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all import nn
from dl4all.cli.run import run
from dl4all.nn import functional as F

PIXELS, CODE = 64, 8


class VAE(nn.Module):
    """Images (N, 64) to logits (N, 64), and the mean and the log variance of their codes (N, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, 2 * CODE))
        self.decoder = nn.Sequential(nn.Linear(CODE, 128), nn.ReLU(), nn.Linear(128, PIXELS))

    def forward(self, x: dl.Tensor, noise: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor, dl.Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        code = mean + noise * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def loss_of(logits: dl.Tensor, x: dl.Tensor, mean: dl.Tensor, log_variance: dl.Tensor) -> dl.Tensor:
    """The negative evidence lower bound of an image, in the mean."""
    pixels = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return (pixels + divergence) / len(x)


def train(device: str, epochs: int, progress: bool = True, compiled: bool = False) -> tuple[VAE, list[float]]:
    """The network, and the mean loss of each epoch."""
    place = dl.device(device)
    dl.manual_seed(0)
    images = dl.data.digits().arrays[0].reshape(-1, PIXELS)
    net = VAE().to(place)
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.003)

    def update(x: dl.Tensor, noise: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        logits, mean, log_variance = net(x, noise)
        loss = loss_of(logits, x, mean, log_variance)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = dl.compile(update) if compiled else update
    data = dl.data.TensorDataset(images)
    losses = []
    for epoch in range(1, epochs + 1):
        batches = dl.data.DataLoader(data, 64, shuffle=True, device=place, drop_last=True)
        losses.append(
            float(np.mean([step(x, dl.randn(len(x), CODE, device=place)).item() for (x,) in batches]))
        )
        if progress and epoch % 10 == 0:
            print(f"epoch {epoch} of {epochs}: loss {losses[-1]:.2f}")
    return net.eval(), losses


@dl.no_grad()
def invented(net: VAE, count: int) -> npt.NDArray[np.float32]:
    """New images (count, 8, 8) between 0 and 1."""
    code = dl.randn(count, CODE, device=next(net.parameters()).device)
    return net.decoder(code).sigmoid().numpy().reshape(count, 8, 8)  # type: ignore[no-any-return]


def draw(images: npt.NDArray[np.float32], file: str) -> None:
    """A sheet of images, ten in a row."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise dl.errors.BackendMissingError("drawing needs matplotlib: pip install matplotlib") from None
    rows = images[: len(images) // 10 * 10].reshape(-1, 10, 8, 8)
    sheet = np.pad(rows, ((0, 0), (0, 0), (1, 1), (1, 1))).transpose(0, 2, 1, 3).reshape(len(rows) * 10, 100)
    figure = Figure(figsize=(6, 0.6 * len(rows)))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(sheet, cmap="gray", interpolation="nearest")
    axes.set_axis_off()
    figure.savefig(file)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the steps of training.")
@click.option("--epochs", type=click.IntRange(min=1), default=60, show_default=True)
@click.option("--picture", metavar="FILE.png", default="digits.png", show_default=True)
def main(device: str, compiled: bool, epochs: int, picture: str) -> None:
    """Learn what digits look like, and draw 60 that nobody wrote (needs matplotlib)."""
    net, losses = train(device, epochs, compiled=compiled)
    draw(invented(net, 60), picture)
    print(f"loss {losses[-1]:.2f} an image on {next(net.parameters()).device}; drawn in {picture}")


if __name__ == "__main__":
    run(main, "digits_vae.py")
