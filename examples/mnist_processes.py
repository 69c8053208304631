"""Read 28 x 28 pixel digits with a network that several processes train together.

dl4all launch -n 2 examples/mnist_processes.py
"""

from __future__ import annotations

import click

import dl4all as dl
from dl4all.cli.run import run


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="Of this process: auto, cpu, vulkan:0, ...")
@click.option("--backend", type=click.Choice(["gloo", "mpi"]), default="gloo", show_default=True)
@click.option("--epochs", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--samples", type=click.IntRange(min=1), default=4000, show_default=True, help="To learn from.")
@click.option("--folder", metavar="DIR", help="Where checkpoints go, from which a restarted launch goes on.")
def main(device: str, backend: str, epochs: int, samples: int, folder: str | None) -> None:
    """Learn 4,000 of MNIST's digits and read 1,000 others."""
    dl.distributed.init_process_group(backend)
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
        folder=folder,
        distributed=True,
    )
    # Batches of 128 rows, whatever the number of processes: each computes its part of them.
    batches = dl.data.DataLoader(learned, batch_size=128, shuffle=True, device=None)
    validation = dl.data.DataLoader(held_out, batch_size=256, device=None)
    history = trainer.fit(batches, epochs, validation, resume=folder is not None)
    if dl.distributed.get_rank() == 0:
        count = dl.distributed.get_world_size()
        print(f"test accuracy {history['val_accuracy'][-1]:.2%} of 1000 digits by {count} processes")
    dl.distributed.destroy_process_group()


if __name__ == "__main__":
    run(main, "mnist_processes.py")
