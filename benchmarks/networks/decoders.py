"""Networks that make images: for segmentation, and generative adversarial ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.networks.case import Batch, Case, Step, supervised

NOISE = 64
LABELS = 5


def unet(lib: Any) -> Any:
    """Three levels; the way up by transposed convolutions, joined with what came down."""
    nn = lib.nn

    def double(before: int, after: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
        )  # fmt: skip

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.MaxPool2d(2)
            self.down1, self.down2, self.bottom = double(3, 16), double(16, 32), double(32, 64)
            self.up2, self.join2 = nn.ConvTranspose2d(64, 32, 2, 2), double(64, 32)
            self.up1, self.join1 = nn.ConvTranspose2d(32, 16, 2, 2), double(32, 16)
            self.head = nn.Conv2d(16, LABELS, 1)

        def forward(self, x: Any) -> Any:
            first = self.down1(x)
            second = self.down2(self.pool(first))
            x = self.bottom(self.pool(second))
            x = self.join2(lib.cat([self.up2(x), second], 1))
            return self.head(self.join1(lib.cat([self.up1(x), first], 1)))

    return Net()


def segmentation(lib: Any) -> Any:
    """An encoder with group norm and SiLU, and a decoder that interpolates."""
    nn = lib.nn

    def layer(before: int, after: int, stride: int = 1) -> Any:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1), nn.GroupNorm(4, after), nn.SiLU(),
        )  # fmt: skip

    return nn.Sequential(
        layer(3, 16), layer(16, 32, 2), layer(32, 64, 2), layer(64, 64),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), layer(64, 32),
        nn.Upsample(scale_factor=2, mode="nearest"), layer(32, 16), nn.Conv2d(16, LABELS, 1),
    )  # fmt: skip


def labelled_pixels(rng: np.random.Generator) -> Batch:
    x = rng.standard_normal((4, 3, 64, 64)).astype(np.float32)
    return x, rng.integers(0, LABELS, (4, 64, 64))


def adversaries(lib: Any) -> Any:
    """DCGAN for images of 32x32: ``generator`` and ``discriminator``."""
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.generator = nn.Sequential(
                nn.ConvTranspose2d(NOISE, 64, 4, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
                nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh(),
            )  # fmt: skip
            self.discriminator = nn.Sequential(
                nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2),
                nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2),
                nn.Conv2d(32, 64, 4, 2, 1, bias=False), nn.BatchNorm2d(64), nn.LeakyReLU(0.2),
                nn.Conv2d(64, 1, 4), nn.Flatten(0),
            )  # fmt: skip

    return Net()


def contest(lib: Any, net: Any) -> Step:
    """A step of the discriminator, then one of the generator; the loss is both losses' sum."""
    judge = lib.nn.functional.binary_cross_entropy_with_logits
    descents = [
        lib.optim.Adam(part.parameters(), lr=2e-4, betas=(0.5, 0.999))
        for part in (net.discriminator, net.generator)
    ]

    def step(real: Any, noise: Any) -> Any:
        descents[0].zero_grad()
        made = net.generator(noise)
        on_real, on_made = net.discriminator(real), net.discriminator(made.detach())
        told_apart = judge(on_real, lib.ones_like(on_real)) + judge(on_made, lib.zeros_like(on_made))
        told_apart.backward()
        descents[0].step()
        descents[1].zero_grad()
        on_made = net.discriminator(made)
        deceived = judge(on_made, lib.ones_like(on_made))
        deceived.backward()
        descents[1].step()
        return (told_apart + deceived).detach()

    return step


def pictures_and_noise(rng: np.random.Generator) -> Batch:
    real = rng.uniform(-1, 1, (32, 3, 32, 32)).astype(np.float32)
    return real, rng.standard_normal((32, NOISE, 1, 1)).astype(np.float32)


CASES = {
    "unet": Case(unet, labelled_pixels, supervised(optimizer="Adam", lr=1e-4)),
    "segmentation": Case(segmentation, labelled_pixels, supervised(optimizer="AdamW", lr=1e-4)),
    "gan": Case(adversaries, pictures_and_noise, contest),
}
