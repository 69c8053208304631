"""Train a small GPT of PyTorch on any GPU to write as the project's documentation is written, byte by byte.

The network, the loop and the optimizer are PyTorch's own; only the device is dl4all's.

python examples/torch_gpt.py
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import click
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import dl4all.torch  # noqa: F401 - makes dlall a device of PyTorch
from dl4all.cli.run import run

sys.path.insert(0, str(Path(__file__).parents[1]))

from examples.char_lstm import TEXT, baseline, documentation, split

BLOCK, BATCH, RATE = 64, 16, 0.003
SHOWN = 100  # steps between two losses that are printed


class Block(nn.Module):
    """Causal attention and a perceptron, each after a layer norm (GPT-2)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        y: torch.Tensor = self.mlp(self.norm2(x))
        return x + y


class GPT(nn.Module):
    """Bytes to the logits of the byte after each; the last layer shares the embedding's weights."""

    def __init__(self, width: int = 96, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, width), nn.Embedding(BLOCK, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        logits: torch.Tensor = self.head(
            self.norm(self.blocks(self.tokens(tokens) + self.positions(positions)))
        )
        return logits


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy of all bytes, in nats."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(
    device: torch.device, steps: int, text: bytes | None = None, compiled: bool = False
) -> tuple[GPT, list[float]]:
    """The network, and the loss of each step."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    learned, _ = split(documentation() if text is None else text)
    tokens = torch.frombuffer(bytearray(learned), dtype=torch.uint8).long().to(device)
    net = GPT().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    forward = torch.compile(net, backend="dl4all") if compiled else net
    losses: list[float] = []
    for step in range(1, steps + 1):
        starts = rng.integers(len(tokens) - BLOCK, size=(BATCH, 1))
        windows = tokens[torch.from_numpy(starts + np.arange(BLOCK + 1)).to(device)]
        loss = loss_of(forward(windows[:, :-1]), windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % SHOWN == 0:
            print(f"step {step} of {steps}: loss {np.mean(losses[-SHOWN:]):.3f}")
    return net.eval(), losses


@torch.no_grad()
def bits_per_byte(net: nn.Module, held_out: bytes, device: torch.device) -> float:
    """How many the network needs to tell what comes next, in the mean over windows that begin anew."""
    tokens = torch.frombuffer(bytearray(held_out), dtype=torch.uint8).long()
    count = (len(tokens) - 1) // BLOCK * BLOCK
    inputs, targets = (part.view(-1, BLOCK).split(BATCH) for part in (tokens[:count], tokens[1 : count + 1]))
    losses = [loss_of(net(x.to(device)), y.to(device)).item() for x, y in zip(inputs, targets, strict=True)]
    return float(np.average(losses, weights=[len(x) for x in inputs])) / math.log(2)


@torch.no_grad()
def write(net: nn.Module, start: bytes, count: int, device: torch.device) -> bytes:
    """Go on after `start` with the likeliest byte each time."""
    text = list(start)
    for _ in range(count):
        logits = net(torch.tensor([text[-BLOCK:]], device=device))
        text.append(int(logits[0, -1].argmax().item()))
    return bytes(text)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="dlall", show_default=True, help="dlall, dlall:1, ..., or cpu")
@click.option("--compile", "compiled", is_flag=True, help="Compile the network.")
@click.option("--steps", type=click.IntRange(min=1), default=400, show_default=True)
@click.option("--text", "file", type=TEXT, metavar="FILE", help="To learn; by default README.md and docs/.")
def main(device: str, compiled: bool, steps: int, file: Path | None) -> None:
    """Learn nine tenths of a text, measure how well the last one is foretold, and write some."""
    place = torch.device(device)
    text = documentation() if file is None else file.read_bytes()
    net, _ = train(place, steps, text, compiled)
    print(write(net, b"The ", 100, place).decode(errors="replace"))
    bits = bits_per_byte(net, split(text)[1], place)
    print(f"{bits:.2f} bits per byte of the last tenth on {place}; {baseline(text)}")


if __name__ == "__main__":
    run(main, "torch_gpt.py")
