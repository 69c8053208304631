"""Train a slim ResNet-18 to read handwritten digits, and save its weights in float16.

python examples/resnet_digits.py --save resnet_digits.safetensors
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run

BASE_CHANNELS = 16  # the published network has 64; this one has 0.7 million parameters


def train(
    device: str,
    epochs: int,
    samples: int = 1438,
    progress: bool = True,
    compiled: bool = False,
    precision: Literal["fp32", "fp16", "bf16"] = "fp32",
) -> dl.Trainer:
    dl.manual_seed(0)
    learned, held_out = dl.data.random_split(dl.data.digits(32), (0.8, 0.2))
    learned.indices = learned.indices[:samples]
    net = dl.models.resnet18(num_classes=10, in_channels=1, base_channels=BASE_CHANNELS)
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.003, weight_decay=0.05)
    trainer = dl.Trainer(
        net,
        dl.nn.CrossEntropyLoss(),
        optimizer,
        metrics=["accuracy"],
        device=device,
        scheduler=dl.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs),
        progress=progress,
        compile=compiled,
        precision=precision,
    )
    # Each image also moved by two of its 32 pixels in four directions: few samples go further that way.
    batches = dl.data.DataLoader(dl.data.shifted(learned, 2), batch_size=64, shuffle=True, device=device)
    trainer.fit(batches, epochs, dl.data.DataLoader(held_out, batch_size=256, device=device))
    return trainer


def save_float16(net: dl.nn.Module, file: str) -> None:
    """Write the weights in half the bytes; counters stay integers."""
    arrays = {name: tensor.detach().numpy() for name, tensor in net.state_dict().items()}
    halved = {name: a.astype(np.float16) if a.dtype == np.float32 else a for name, a in arrays.items()}
    try:
        dl.io.save_weights(file, halved)
    except OSError as error:
        raise dl.errors.FileFormatError(f"{file}: cannot be written: {error.strerror or error}") from None


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the steps of training.")
@click.option("--epochs", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--samples", type=click.IntRange(min=20), default=1438, show_default=True, help="To learn from."
)
@click.option("--precision", type=click.Choice(["fp32", "fp16", "bf16"]), default="fp32", show_default=True)
@click.option("--save", metavar="FILE", default="resnet_digits.safetensors", show_default=True)
def main(
    device: str,
    compiled: bool,
    epochs: int,
    samples: int,
    precision: Literal["fp32", "fp16", "bf16"],
    save: str,
) -> None:
    """Learn 1438 digits, read 359 others, and save the weights."""
    trainer = train(device, epochs, samples, compiled=compiled, precision=precision)
    print(f"test accuracy {trainer.history['val_accuracy'][-1]:.2%} of 359 digits on {trainer.device}")
    save_float16(trainer.model, save)
    trainer.model.load_state_dict(dl.io.load_weights(save))
    _, held_out = dl.data.random_split(dl.data.digits(32), (0.8, 0.2))
    rounded = trainer.evaluate(dl.data.DataLoader(held_out, batch_size=256, device=device))
    content = Path(save).read_bytes()
    print(f"in float16 {rounded['accuracy']:.2%}; {save} has {len(content) / 1e6:.2f} MB")
    print(f"sha256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    run(main, "resnet_digits.py")
