"""Read handwritten digits of 8 x 8 pixels with a multi-layer perceptron.

python examples/digits_mlp.py
"""

from __future__ import annotations

import click

import dl4all as dl
from dl4all.cli.run import run


def train(device: str, epochs: int, progress: bool = True, compiled: bool = False) -> dl.Trainer:
    dl.manual_seed(0)
    learned, held_out = dl.data.random_split(dl.data.digits(), (0.8, 0.2))
    net = dl.models.MLP(64, hidden=[128], num_classes=10, dropout=0.2)
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.003)
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
    return trainer


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the steps of training.")
@click.option("--epochs", type=click.IntRange(min=1), default=30, show_default=True)
def main(device: str, compiled: bool, epochs: int) -> None:
    """Learn 1438 digits and read 359 others."""
    trainer = train(device, epochs, compiled=compiled)
    print(f"test accuracy {trainer.history['val_accuracy'][-1]:.2%} of 359 digits on {trainer.device}")


if __name__ == "__main__":
    run(main, "digits_mlp.py")
