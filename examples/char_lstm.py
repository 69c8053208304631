"""Learn to write as the project's documentation is written, byte by byte, with an LSTM.

python examples/char_lstm.py
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run

ROOT = Path(__file__).parents[1]
WINDOW = 64
TEXT = click.Path(exists=True, dir_okay=False, path_type=Path)


def documentation() -> bytes:
    """README.md and the pages of docs/, one behind the other."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return b"\n".join(page.read_bytes() for page in pages)


def split(text: bytes) -> tuple[bytes, bytes]:
    """What is learned, and the last tenth, which is not."""
    end = len(text) * 9 // 10
    return text[:end], text[end:]


def baseline(text: bytes) -> str:
    """The bits per byte of the last tenth for whoever knows only how often each byte comes in it."""
    held_out = split(text)[1]
    shares = np.bincount(np.frombuffer(held_out, np.uint8)) / len(held_out)
    shares = shares[shares > 0]
    return f"{-(shares * np.log2(shares)).sum():.2f} by how often each byte comes"


class Writer(dl.nn.Module):
    """From bytes (N, T) to scores (N, T, 256) of those that come next."""

    def __init__(self, features: int = 64, hidden: int = 256) -> None:
        super().__init__()
        self.embedding = dl.nn.Embedding(256, features)
        self.lstm = dl.nn.LSTM(features, hidden, batch_first=True)
        self.head = dl.nn.Linear(hidden, 256)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(self.embedding(x))[0])


@dl.no_grad()
def write(net: Any, start: bytes, count: int, temperature: float = 0.5) -> bytes:
    """Go on from `start` with so many bytes, one at a time: the states are all that is remembered."""
    written, given, states = start, start, None
    for _ in range(count):
        x = dl.tensor([list(given)], device=net.head.weight.device)
        y, states = net.lstm(net.embedding(x), states)
        chances = (net.head(y[0, -1]) / temperature).softmax(0)
        given = bytes([int(dl.multinomial(chances, 1).item())])
        written += given
    return written


def loss_of(scores: Any, targets: Any) -> Any:
    return dl.nn.functional.cross_entropy(scores.reshape(-1, 256), targets.reshape(-1))


def train(
    device: str, epochs: int, text: bytes | None = None, progress: bool = True, compiled: bool = False
) -> dl.Trainer:
    dl.manual_seed(0)
    parts = split(documentation() if text is None else text)
    learned, held_out = (dl.data.TextBytes(part, WINDOW) for part in parts)
    net = Writer()
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.004)
    trainer = dl.Trainer(
        net,
        loss_of,
        optimizer,
        device=device,
        scheduler=dl.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs),
        clip_norm=1.0,
        progress=progress,
        compile=compiled,
    )
    batches = dl.data.DataLoader(learned, batch_size=16, shuffle=True, device=device)
    trainer.fit(batches, epochs, dl.data.DataLoader(held_out, batch_size=64, device=device))
    return trainer


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the steps of training.")
@click.option("--epochs", type=click.IntRange(min=1), default=12, show_default=True)
@click.option("--text", "file", type=TEXT, metavar="FILE", help="To learn; by default README.md and docs/.")
def main(device: str, compiled: bool, epochs: int, file: Path | None) -> None:
    """Learn nine tenths of a text, measure how well the last one is foretold, and write some."""
    text = documentation() if file is None else file.read_bytes()
    trainer = train(device, epochs, text, compiled=compiled)
    dl.manual_seed(0)
    print(write(trainer.model, b"The ", 300).decode(errors="replace"))
    bits = trainer.history["val_loss"][-1] / math.log(2)
    print(f"{bits:.2f} bits per byte of the last tenth on {trainer.device}; {baseline(text)}")


if __name__ == "__main__":
    run(main, "char_lstm.py")
