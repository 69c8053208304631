"""MobileNet V2 (Sandler et al., arXiv:1801.04381), with torchvision's parameter names."""

from __future__ import annotations

from dl4all import nn
from dl4all.models.init import Layer, initialize
from dl4all.tensor.tensor import Tensor

STAGES = (  # of each: expansion factor, output channels, number of blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _conv_bn_relu6(
    in_channels: int, channels: int, size: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, channels, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU6(),
    )


class InvertedResidual(nn.Module):
    """Inverted residual block: 1x1 expansion, 3x3 depthwise convolution, 1x1 projection.

    The input is added to the output if they have the same shape.

    Args:
        in_channels, channels: channels of the input and the output.
        stride: the stride of the depthwise convolution.
        expand_ratio: how many times the input's channels there are between the 1x1 convolutions.
    """

    def __init__(self, in_channels: int, channels: int, stride: int, expand_ratio: int) -> None:
        super().__init__()
        hidden = in_channels * expand_ratio
        self.use_residual = stride == 1 and in_channels == channels
        self.conv = nn.Sequential(
            *([_conv_bn_relu6(in_channels, hidden, 1)] if expand_ratio != 1 else []),
            _conv_bn_relu6(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_residual else self.conv(x)  # type: ignore[no-any-return]


class MobileNetV2(nn.Module):
    """A stem, seventeen inverted residual blocks and a classifier.

    Args:
        num_classes: size of the output.
        in_channels: how many channels the images have.
        width_mult: factor on the published numbers of channels, which are rounded to multiples of 8.
        dropout: the dropout probability before the classifier in training.

    Shape:
        (N, in_channels, H, W) to logits (N, num_classes).

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.MobileNetV2(num_classes=5).eval()
        >>> net(dl.rand(1, 3, 32, 32)).shape
        (1, 5)
    """

    def __init__(
        self, num_classes: int = 1000, in_channels: int = 3, width_mult: float = 1.0, dropout: float = 0.2
    ) -> None:
        super().__init__()
        channels = _round_channels(32 * width_mult)
        last = _round_channels(1280 * max(1.0, width_mult))
        features: list[nn.Module] = [_conv_bn_relu6(in_channels, channels, 3, 2)]
        for expand_ratio, published, blocks, stride in STAGES:
            out_channels = _round_channels(published * width_mult)
            for block in range(blocks):
                features.append(
                    InvertedResidual(channels, out_channels, stride if block == 0 else 1, expand_ratio)
                )
                channels = out_channels
        features.append(_conv_bn_relu6(channels, last, 1))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, num_classes))
        initialize(self, "fan_out", linear_std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))  # type: ignore[no-any-return]

    def layers(self) -> list[tuple[str, Layer]]:
        """The modules that ``forward`` calls in turn, by name: a pipeline can be cut between them."""
        return [
            ("features", self.features),
            ("avgpool", self.avgpool),
            ("flatten", nn.Flatten()),
            ("classifier", self.classifier),
        ]


def _round_channels(channels: float) -> int:
    """The nearest multiple of 8 that is at least 8 and not less than nine tenths of `channels`.

    >>> [_round_channels(16 * 0.75), _round_channels(24 * 0.35), _round_channels(4)]
    [16, 8, 8]
    """
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def mobilenet_v2(num_classes: int = 1000, in_channels: int = 3, width_mult: float = 1.0) -> MobileNetV2:
    """MobileNet V2: 3.5 million parameters; the weights are random. Arguments as in :class:`MobileNetV2`.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.mobilenet_v2(num_classes=5).eval()
        >>> net(dl.rand(1, 3, 32, 32)).shape
        (1, 5)
    """
    return MobileNetV2(num_classes, in_channels, width_mult)
