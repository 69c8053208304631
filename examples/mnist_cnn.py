"""Read 28 x 28 pixel digits, 5,000 of MNIST's, with a small convolutional network.

python examples/mnist_cnn.py
"""

from __future__ import annotations

import click

import dl4all as dl
from dl4all.cli.run import run


def train(
    device: str, epochs: int, samples: int = 5000, progress: bool = True, compiled: bool = False
) -> dl.Trainer:
    dl.manual_seed(0)
    learned, held_out = dl.data.random_split(dl.data.mnist5k(), (0.8, 0.2))
    learned.indices = learned.indices[:samples]
    net = dl.models.LeNet(base_channels=8)
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.002)
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
    # Each image also moved by a pixel in four directions: few samples go further that way.
    batches = dl.data.DataLoader(
        dl.data.shifted(learned, 1), batch_size=64, shuffle=True, num_workers=1, device=device
    )
    trainer.fit(batches, epochs, dl.data.DataLoader(held_out, batch_size=256, device=device))
    return trainer


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the steps of training.")
@click.option("--epochs", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--samples", type=click.IntRange(min=1), default=4000, show_default=True, help="To learn from.")
def main(device: str, compiled: bool, epochs: int, samples: int) -> None:
    """Learn 4,000 of MNIST's digits and read 1,000 others."""
    trainer = train(device, epochs, samples, compiled=compiled)
    print(f"test accuracy {trainer.history['val_accuracy'][-1]:.2%} of 1000 digits on {trainer.device}")


if __name__ == "__main__":
    run(main, "mnist_cnn.py")
