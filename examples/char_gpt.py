"""Learn to write as the project's documentation is written, byte by byte, with a small GPT and a plain loop.

python examples/char_gpt.py
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run

sys.path.insert(0, str(Path(__file__).parents[1]))

from examples.char_lstm import TEXT, baseline, documentation, loss_of, split

BLOCK, BATCH, RATE = 64, 16, 0.003
WEIGHTS = {
    8: dl.quantization.Int8WeightOnlyConfig(),
    4: dl.quantization.Int4WeightOnlyConfig(group_size=32),
}
SHOWN = 100  # steps between two losses that are printed


def train(
    device: str,
    steps: int,
    text: bytes | None = None,
    progress: bool = True,
    compiled: bool = False,
    precision: Literal["fp32", "bf16"] = "fp32",
) -> tuple[dl.models.GPT, list[float]]:
    """The network, and the loss of each step."""
    place = dl.device(device)
    dl.manual_seed(0)
    rng = np.random.default_rng(0)
    learned, _ = split(documentation() if text is None else text)
    tokens = dl.from_numpy(dl.data.TextBytes(learned, BLOCK).tokens, place)
    net = dl.models.GPT(256, BLOCK, n_layer=3, n_head=4, n_embd=96).to(place)
    optimizer = dl.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.1)
    schedule = dl.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)

    def update(x: dl.Tensor, targets: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        with dl.autocast(place.type, dtype=dl.bfloat16, enabled=precision == "bf16"):
            loss: dl.Tensor = loss_of(net(x), targets)
        loss.backward()
        dl.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    take = dl.compile(update) if compiled else update
    losses = []
    for step in range(1, steps + 1):
        starts = rng.integers(len(tokens) - BLOCK, size=(BATCH, 1))
        windows = tokens[dl.from_numpy(starts + np.arange(BLOCK + 1), place)]
        loss = take(windows[:, :-1], windows[:, 1:])
        schedule.step()
        losses.append(float(loss.item()))
        if progress and step % SHOWN == 0:
            print(f"step {step} of {steps}: loss {np.mean(losses[-SHOWN:]):.3f}")
    return net.eval(), losses


@dl.no_grad()
def bits_per_byte(net: Any, held_out: dl.data.TextBytes) -> float:
    """How many the network needs to tell what comes next, in the mean over windows that begin anew."""
    place = net.lm_head.weight.device
    batches = dl.data.DataLoader(held_out, batch_size=64, device=place)
    losses, counts = zip(*((loss_of(net(x), targets).item(), len(x)) for x, targets in batches), strict=True)
    return float(np.average(losses, weights=counts)) / math.log(2)


def size(net: Any) -> int:
    """The bytes of all weights; of one with two names only once."""
    tensors = {id(tensor.storage): tensor for tensor in net.state_dict().values()}
    return sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors.values())


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the steps of training.")
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), default="fp32", help="Of training.")
@click.option("--bits", type=click.Choice(["32", "8", "4"]), default="32", help="Of weights, after training.")
@click.option("--steps", type=click.IntRange(min=1), default=1200, show_default=True)
@click.option("--text", "file", type=TEXT, metavar="FILE", help="To learn; by default README.md and docs/.")
def main(
    device: str,
    compiled: bool,
    precision: Literal["fp32", "bf16"],
    bits: str,
    steps: int,
    file: Path | None,
) -> None:
    """Learn nine tenths of a text, measure how well the last one is foretold, and write some."""
    text = documentation() if file is None else file.read_bytes()
    held_out = dl.data.TextBytes(split(text)[1], BLOCK)  # a text that is too short is refused before the work
    net, _ = train(device, steps, text, compiled=compiled, precision=precision)
    if bits != "32":
        before, kilobytes = bits_per_byte(net, held_out), size(net) / 1e3
        dl.quantization.quantize_(net, WEIGHTS[int(bits)])
        print(
            f"bits per byte: {before:.3f} before, {bits_per_byte(net, held_out):.3f} with weights of {bits} "
            f"bits; kB: {kilobytes:.0f} and {size(net) / 1e3:.0f}"
        )
    place = net.lm_head.weight.device
    dl.manual_seed(0)
    written = net.generate(dl.tensor([list(b"The ")], device=place), 300, temperature=0.5)
    print(bytes(written[0].tolist()).decode(errors="replace"))
    print(f"{bits_per_byte(net, held_out):.2f} bits per byte of the last tenth on {place}; {baseline(text)}")


if __name__ == "__main__":
    run(main, "char_gpt.py")
