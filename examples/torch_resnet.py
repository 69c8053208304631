"""Train a slim ResNet-18 of PyTorch to read handwritten digits on any GPU, save it, and read digits with it.

The network, the loop, the optimizer and the file are PyTorch's own; only the device is dl4all's.

python examples/torch_resnet.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import dl4all as dl
import dl4all.torch  # makes dlall a device of PyTorch
from dl4all.cli.run import run

BASE_CHANNELS = 16  # the published network has 64
BATCH = 64
LEARNING_RATE = 0.003


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut (He et al. 2015, https://arxiv.org/abs/1512.03385)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            convolution = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18(classes: int = 10, channels_in: int = 1, base: int = BASE_CHANNELS) -> nn.Module:
    """ResNet-18 for images of some 32 pixels: its first convolution has stride 1, and nothing is pooled."""
    layers: list[nn.Module] = [
        nn.Conv2d(channels_in, base, 3, 1, 1, bias=False), nn.BatchNorm2d(base), nn.ReLU(),
    ]  # fmt: skip
    before = base
    for stage in range(4):
        channels = base << stage
        layers += [Block(before, channels, 1 if stage == 0 else 2), Block(channels, channels, 1)]
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images and labels to learn from, and those of a fifth that is held out."""
    dl.manual_seed(0)
    parts = dl.data.random_split(dl.data.digits(32), (0.8, 0.2))
    pairs = [zip(*(part[i] for i in range(len(part))), strict=True) for part in parts]
    arrays = [np.stack([np.asarray(value) for value in values]) for pair in pairs for values in pair]
    images, labels, held_out, answers = map(torch.from_numpy, arrays)
    return images, labels.long(), held_out, answers.long()


def batches(count: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """The samples of an epoch in random order."""
    yield from torch.randperm(count, generator=generator).split(BATCH)


def train(
    device: torch.device, epochs: int, samples: int | None = None, compiled: bool = False
) -> tuple[nn.Module, list[float]]:
    """The network, and the loss of each step."""
    torch.manual_seed(0)
    images, labels, _, _ = digits()
    images, labels = images[:samples].to(device), labels[:samples].to(device)
    net = resnet18().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=LEARNING_RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    forward = torch.compile(net, backend="dl4all") if compiled else net
    generator = torch.Generator().manual_seed(0)
    losses = []
    for epoch in range(1, epochs + 1):
        net.train()
        for indices in batches(len(images), generator):
            indices = indices.to(device)
            loss = F.cross_entropy(forward(images[indices]), labels[indices])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        schedule.step()
        print(f"epoch {epoch} of {epochs}: loss {losses[-1].item():.3f}")
    return net, [loss.item() for loss in losses]


@torch.no_grad()
def accuracy(net: nn.Module, device: torch.device) -> float:
    """The share of the digits held out that the network reads right."""
    _, _, images, answers = digits()
    net.eval()
    read = torch.cat([net(part.to(device)).argmax(1).cpu() for part in images.split(256)])
    return (read == answers).float().mean().item()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="dlall", show_default=True, help="dlall, dlall:1, ..., or cpu")
@click.option("--compile", "compiled", is_flag=True, help="Compile the network.")
@click.option("--epochs", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--samples", type=click.IntRange(min=20), default=1438, show_default=True, help="To learn from."
)
@click.option("--save", metavar="FILE", default="torch_resnet.pth", show_default=True)
def main(device: str, compiled: bool, epochs: int, samples: int, save: str) -> None:
    """Learn 1438 digits, save the network, and read 359 others with what the file holds."""
    place = torch.device(device)
    name = torch.get_device_module(place).get_device_name(place) if place.type != "cpu" else "PyTorch's CPU"
    net, _ = train(place, epochs, samples, compiled)
    torch.save(net.state_dict(), save)
    loaded = resnet18()
    loaded.load_state_dict(torch.load(save, map_location="cpu", weights_only=True))
    print(f"test accuracy {accuracy(loaded.to(place), place):.2%} of 359 digits on {place} ({name})")
    print(f"{save} has {Path(save).stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    run(main, "torch_resnet.py")
