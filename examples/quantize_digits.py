"""Train a slim ResNet in float32 and in mixed precision, and read digits with it in 16 and in 8 bits.

python examples/quantize_digits.py
python examples/quantize_digits.py --data mnist    5,000 of MNIST's
"""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click

import dl4all as dl
from dl4all import nn
from dl4all.cli.run import run

sys.path.insert(0, str(Path(__file__).parents[1]))

from examples.prune_digits import accuracy, milliseconds
from examples.resnet_digits import BASE_CHANNELS

CALIBRATION = 8  # batches that observers see
QAT_RATE = 2e-4

Batches = dl.data.DataLoader
Precision = Literal["fp32", "bf16", "fp16"]


def digits(source: str, samples: int | None, device: str) -> tuple[Batches, Batches]:
    """Batches to learn from, each image also moved in four directions, and of others."""
    whole, pixels = (dl.data.digits(32), 2) if source == "digits" else (dl.data.mnist5k(), 1)
    learned, held_out = dl.data.random_split(whole, (0.8, 0.2))
    learned.indices = learned.indices[:samples]
    moved = dl.data.shifted(learned, pixels)
    return (
        dl.data.DataLoader(moved, batch_size=64, shuffle=True, device=device),
        dl.data.DataLoader(held_out, batch_size=256, device=device),
    )


def train(batches: Batches, epochs: int, device: str, precision: Precision) -> nn.Module:
    """A network that begins with the same weights whatever the precision."""
    dl.manual_seed(0)
    net = dl.models.resnet18(num_classes=10, in_channels=1, base_channels=BASE_CHANNELS)
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.003, weight_decay=0.05)
    trainer = dl.Trainer(
        net,
        nn.CrossEntropyLoss(),
        optimizer,
        device=device,
        scheduler=dl.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs),
        progress=False,
        precision=precision,
    )
    trainer.fit(batches, epochs)
    return net.eval()


def with_folded_norms(net: nn.Module) -> nn.Module:
    """A copy whose batch normalizations are part of the convolutions before them."""
    pairs: list[Sequence[str]] = []
    for name, part in net.named_modules():
        if isinstance(part, nn.Conv2d):
            stem, _, last = name.rpartition(".")
            norm = f"bn{last[4:]}" if last.startswith("conv") else "1"
            pairs.append((name, f"{stem}.{norm}".lstrip(".")))
    return dl.quantization.fuse_modules(copy.deepcopy(net), pairs)


def calibrated(net: nn.Module, batches: Batches) -> nn.Module:
    """The network in 8 bits, by steps for what its layers see of some batches."""
    prepared = dl.quantization.prepare(with_folded_norms(net))
    with dl.no_grad():
        for images, _ in itertools.islice(batches, CALIBRATION):
            prepared(images)
    return dl.quantization.convert(prepared)


def trained_in_8_bits(net: nn.Module, batches: Batches) -> nn.Module:
    """The network in 8 bits, after an epoch in which its layers computed with rounded numbers."""
    prepared = dl.quantization.prepare_qat(with_folded_norms(net)).train()
    optimizer = dl.optim.AdamW(prepared.parameters(), lr=QAT_RATE)
    for images, labels in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(prepared(images), labels).backward()
        optimizer.step()
    return dl.quantization.convert(prepared.eval())


class InBfloat16(nn.Module):
    """A network whose parameters are bfloat16, which takes and gives float32."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = copy.deepcopy(net).bfloat16()

    def forward(self, x: dl.Tensor) -> Any:
        return self.net(x.bfloat16()).float()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--data", "source", type=click.Choice(["digits", "mnist"]), default="digits", show_default=True)
@click.option("--epochs", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--samples", type=click.IntRange(min=64), help="To learn from; all unless given.")
def main(device: str, source: str, epochs: int, samples: int | None) -> None:
    """Train three times, convert the first network three times, and compare."""
    batches, tests = digits(source, samples, device)
    net = train(batches, epochs, device, "fp32")
    made: dict[str, nn.Module] = {
        "float32": net,
        "trained with bf16": train(batches, epochs, device, "bf16"),
        "trained with fp16": train(batches, epochs, device, "fp16"),
        "bfloat16": InBfloat16(net),
        "int8": calibrated(net, batches),
        "int8, trained so": trained_in_8_bits(net, batches),
    }
    took = milliseconds(list(made.values()), next(iter(tests))[0])
    for (name, network), ms in zip(made.items(), took, strict=True):
        size = sum(tensor.numel() * tensor.dtype.itemsize for tensor in network.state_dict().values())
        print(
            f"{name:17}  {size / 1e6:.2f} MB, {accuracy(network, tests):.2%} of {len(tests.dataset)} digits, "
            f"{ms:.1f} ms a batch"
        )


if __name__ == "__main__":
    run(main, "quantize_digits.py")
