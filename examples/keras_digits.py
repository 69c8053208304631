"""Train a convolutional network of Keras 3 on any GPU: Keras computes with PyTorch, and PyTorch with dl4all.

pip install keras
python examples/keras_digits.py
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("KERAS_TORCH_DEVICE", "dlall")  # where Keras puts weights and batches

import click
import numpy as np
import numpy.typing as npt

import dl4all as dl
import dl4all.torch  # makes dlall a device of PyTorch
from dl4all.cli.run import run
from dl4all.errors import BackendMissingError


def digits() -> list[npt.NDArray[Any]]:
    """Images of 8 x 8 pixels and labels to learn from, and those of a fifth that is held out."""
    dl.manual_seed(0)
    parts = dl.data.random_split(dl.data.digits(), (0.8, 0.2))
    arrays = []
    for part in parts:
        images, labels = zip(*(part[i] for i in range(len(part))), strict=True)
        arrays += [np.stack([np.asarray(image) for image in images]).reshape(-1, 8, 8, 1), np.array(labels)]
    return arrays


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--epochs", type=click.IntRange(min=1), default=5, show_default=True)
def main(epochs: int) -> None:
    """Learn 1438 digits, and read 359 others."""
    try:
        import keras
    except ImportError:
        raise BackendMissingError("[keras_digits] Keras is missing; pip install keras") from None
    keras.utils.set_random_seed(0)
    images, labels, held_out, answers = digits()
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.003), loss, metrics=["accuracy"])
    model.fit(images, labels, batch_size=64, epochs=epochs, verbose=2)
    _, accuracy = model.evaluate(held_out, answers, verbose=0)
    device = next(iter(model.weights)).value.device
    print(f"test accuracy {accuracy:.2%} of {len(answers)} digits on {device}")
    fallen = sum(count.calls for count in dl4all.torch.fallbacks.values())
    print(f"{fallen} calls ran on the CPU for want of a kernel")


if __name__ == "__main__":
    run(main, "keras_digits.py")
