"""MobileNet V2 (Sandler et al., arXiv:1801.04381), with torchvision's parameter names."""

from __future__ import annotations

from dl4all import nn
from dl4all.models.init import initialise
from dl4all.tensor.tensor import Tensor

# Of each stage: by how much a block widens its input, its output's channels, blocks, the first one's stride.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _convolution(
    in_channels: int, channels: int, size: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, channels, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU6(),
    )


class InvertedResidual(nn.Module):
    """A block that is wide within and narrow at its ends; where the shape stays, the input is added.

    Args:
        in_channels, channels: of the input and the output.
        stride: of the 3x3 convolution, which takes each channel by itself.
        widen: how many times the input's channels there are within.
    """

    def __init__(self, in_channels: int, channels: int, stride: int, widen: int) -> None:
        super().__init__()
        inner = in_channels * widen
        self.around = stride == 1 and in_channels == channels
        self.conv = nn.Sequential(
            *([_convolution(in_channels, inner, 1)] if widen != 1 else []),
            _convolution(inner, inner, 3, stride, groups=inner),
            nn.Conv2d(inner, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.around else self.conv(x)  # type: ignore[no-any-return]


class MobileNetV2(nn.Module):
    """A stem, seventeen inverted residual blocks and a classifier.

    Args:
        num_classes: size of the output.
        in_channels: of the images.
        width_mult: times the published number of channels, rounded to multiples of 8.
        dropout: the share of features that is left out before the classifier in training.

    Shape:
        (N, in_channels, H, W) to logits (N, num_classes).
    """

    def __init__(
        self, num_classes: int = 1000, in_channels: int = 3, width_mult: float = 1.0, dropout: float = 0.2
    ) -> None:
        super().__init__()
        channels = _rounded(32 * width_mult)
        last = _rounded(1280 * max(1.0, width_mult))
        features: list[nn.Module] = [_convolution(in_channels, channels, 3, 2)]
        for widen, published, blocks, stride in STAGES:
            out_channels = _rounded(published * width_mult)
            for block in range(blocks):
                features.append(InvertedResidual(channels, out_channels, stride if block == 0 else 1, widen))
                channels = out_channels
        features.append(_convolution(channels, last, 1))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, num_classes))
        initialise(self, "fan_out", linear_std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))  # type: ignore[no-any-return]


def _rounded(channels: float) -> int:
    """The nearest multiple of 8 that is at least 8 and not less than nine tenths of `channels`.

    >>> [_rounded(16 * 0.75), _rounded(24 * 0.35), _rounded(4)]
    [16, 8, 8]
    """
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def mobilenet_v2(num_classes: int = 1000, in_channels: int = 3, width_mult: float = 1.0) -> MobileNetV2:
    """MobileNet V2: 3.5 million parameters; the weights are random. Arguments as in :class:`MobileNetV2`."""
    return MobileNetV2(num_classes, in_channels, width_mult)
