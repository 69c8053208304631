"""Tell the arms of three spirals apart, and draw where the network sees the boundary between them.

python examples/spiral.py --picture spiral.png
"""

from __future__ import annotations

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run


def train(
    device: str, epochs: int, progress: bool = True, compiled: bool = False
) -> tuple[dl.Trainer, dl.data.Subset]:
    dl.manual_seed(0)
    learned, held_out = dl.data.random_split(dl.data.spiral(), (0.8, 0.2))
    net = dl.models.MLP(2, hidden=[64, 64], num_classes=3)
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.01)
    trainer = dl.Trainer(
        net,
        dl.nn.CrossEntropyLoss(),
        optimizer,
        metrics=["accuracy"],
        device=device,
        scheduler=dl.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs),
        progress=progress,
        compile=compiled,
    )
    batches = dl.data.DataLoader(learned, batch_size=32, shuffle=True, device=device)
    trainer.fit(batches, epochs, dl.data.DataLoader(held_out, batch_size=256, device=device))
    return trainer, held_out


def draw(trainer: dl.Trainer, points: dl.data.Subset, file: str) -> None:
    """Colour the plane by the class that the network sees, and put points on it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise dl.errors.BackendMissingError("drawing needs matplotlib: pip install matplotlib") from None
    side = np.linspace(-1.3, 1.3, 200, dtype=np.float32)
    plane = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    classes = trainer.predict([plane]).argmax(1).reshape(len(side), -1)
    x, labels = next(iter(dl.data.DataLoader(points, len(points), device=None)))
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.contourf(side, side, classes, levels=[-0.5, 0.5, 1.5, 2.5], cmap="viridis", alpha=0.5)
    axes.scatter(x[:, 0], x[:, 1], c=labels, cmap="viridis", edgecolors="black", linewidths=0.5)
    axes.set_aspect("equal")
    figure.savefig(file)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the steps of training.")
@click.option("--epochs", type=click.IntRange(min=1), default=60, show_default=True)
@click.option("--picture", metavar="FILE.png", default="spiral.png", show_default=True)
def main(device: str, compiled: bool, epochs: int, picture: str) -> None:
    """Learn three spirals and draw the boundary between them (needs matplotlib)."""
    trainer, held_out = train(device, epochs, compiled=compiled)
    draw(trainer, held_out, picture)
    accuracy = trainer.history["val_accuracy"][-1]
    print(f"test accuracy {accuracy:.2%} of {len(held_out)} points on {trainer.device}; drawn in {picture}")


if __name__ == "__main__":
    run(main, "spiral.py")
