"""Draw the pictures of docs/gallery.md by running the examples, and write this machine's devices into it.

python tools/gallery.py [--device cpu]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
from matplotlib.figure import Figure

import dl4all as dl

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from examples import attention_map, digits_mlp, digits_vae, spiral  # noqa: E402  # found by the line above

PAGE, FOLDER = ROOT / "docs" / "gallery.md", ROOT / "docs" / "images" / "gallery"
SHOWN = 20
"""Digits whose predictions are shown."""


def draw_spiral(device: str, file: str) -> None:
    trainer, held_out = spiral.train(device, 60, progress=False)
    spiral.draw(trainer, held_out, file)


def draw_curves(device: str, file: str) -> None:
    digits_mlp.train(device, 30, progress=False).history.plot(file)


def draw_invented_digits(device: str, file: str) -> None:
    net, _ = digits_vae.train(device, 60, progress=False)
    digits_vae.draw(digits_vae.invented(net, 60), file)


def draw_attention(device: str, file: str) -> None:
    net, _ = attention_map.train(device, 400, progress=False)
    x = np.random.default_rng(1).integers(attention_map.LETTERS, size=(1, attention_map.LENGTH))
    with dl.no_grad():
        _, weights = net(dl.tensor(x, device=device))
    attention_map.draw(weights[0].numpy(), file)


def draw_predictions(device: str, file: str) -> None:
    """Held-out digits with what ResNet-18 takes them for, and how sure it is: its errors first."""
    held_out = dl.data.random_split(dl.data.digits(32), (0.8, 0.2))[1]
    x, labels = next(iter(dl.data.DataLoader(held_out, len(held_out), device=device)))
    with dl.no_grad():
        shares = dl.models.resnet18_digits().to(device)(x).softmax(1).numpy()
    classes, truth = shares.argmax(1), labels.numpy()
    order = np.argsort(classes == truth, kind="stable")[:SHOWN]
    figure = Figure(figsize=(7, 2.6), layout="constrained")
    for axes, i in zip(figure.subplots(2, SHOWN // 2).flat, order, strict=True):
        axes.imshow(x.numpy()[i, 0], cmap="gray_r")
        axes.set_title(
            f"{classes[i]}\n{shares[i].max():.0%}", color="black" if classes[i] == truth[i] else "red"
        )
        axes.set_axis_off()
    figure.savefig(file)


PICTURES = {
    "spiral": draw_spiral,
    "curves": draw_curves,
    "digits": draw_invented_digits,
    "attention": draw_attention,
    "predictions": draw_predictions,
}


def device_table() -> str:
    command = [sys.executable, "-c", "from dl4all.cli import main; main()", "devices"]
    wide = {**os.environ, "COLUMNS": "180", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=wide, capture_output=True, text=True, check=True).stdout.rstrip()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="cpu", show_default=True, help="What the examples run on.")
def main(device: str) -> None:
    """Draw the pictures of the gallery."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        draw(device, str(FOLDER / f"{name}.png"))
        print(f"{name}.png: {(FOLDER / f'{name}.png').stat().st_size / 1000:.0f} KB")
    text = f"<!-- devices -->\n```text\n{device_table()}\n```\n<!-- end -->"
    page = re.sub(r"<!-- devices -->.*?<!-- end -->", lambda _: text, PAGE.read_text("utf-8"), flags=re.S)
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
