"""Learn exclusive or: four points that no straight line divides.

python examples/xor.py
"""

from __future__ import annotations

import click

import dl4all as dl
from dl4all.cli.run import run


def train(device: str, epochs: int, progress: bool = True, compiled: bool = False) -> dl.Trainer:
    dl.manual_seed(0)
    net = dl.models.MLP(2, hidden=[8], num_classes=1)
    trainer = dl.Trainer(
        net,
        dl.nn.BCEWithLogitsLoss(),
        dl.optim.Adam(net.parameters(), lr=0.05),
        metrics=["binary_accuracy"],
        device=device,
        progress=progress,
        compile=compiled,
    )
    trainer.fit(dl.data.DataLoader(dl.data.xor(), batch_size=4, shuffle=True, device=device), epochs)
    return trainer


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the steps of training.")
@click.option("--epochs", type=click.IntRange(min=1), default=200, show_default=True)
def main(device: str, compiled: bool, epochs: int) -> None:
    """Learn exclusive or."""
    trainer = train(device, epochs, compiled=compiled)
    points, _ = dl.data.xor().arrays
    with dl.no_grad():
        answers = trainer.model(dl.from_numpy(points, trainer.device)).sigmoid()
    for (a, b), answer in zip(points.astype(int).tolist(), answers[:, 0].tolist(), strict=True):
        print(f"{a} xor {b} = {round(answer)}  ({answer:.3f})")
    print(f"accuracy {trainer.history['binary_accuracy'][-1]:.2%} on {trainer.device}")


if __name__ == "__main__":
    run(main, "xor.py")
