"""VGG (Simonyan and Zisserman, arXiv:1409.1556), with torchvision's parameter names."""

from __future__ import annotations

from dl4all import nn
from dl4all.models.init import Layer, initialize
from dl4all.tensor.tensor import Tensor

STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3)}
"""The number of convolutions of each of the five stages, by depth."""

WIDTH_FACTORS = (1, 2, 4, 8, 8)
"""The channels of the stages as multiples of `base_channels`."""


class VGG(nn.Module):
    """3x3 convolutions in five stages that halve the image, and three linear layers.

    Args:
        depth: how many layers have weights: 11, 13 or 16.
        batch_norm: whether a normalization follows each convolution.
        num_classes: size of the output.
        in_channels: how many channels the images have.
        base_channels: channels of the first stage, 64 as published; linear layers have 64 times as many
            features.
        dropout: the dropout probability of the linear layers in training.

    Shape:
        (N, in_channels, H, W) to logits (N, num_classes); H and W at least 32.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.vgg11(num_classes=5, base_channels=4)
        >>> isinstance(net, dl.models.VGG), len(list(net.parameters()))
        (True, 22)
    """

    def __init__(
        self,
        depth: int,
        batch_norm: bool = False,
        num_classes: int = 1000,
        in_channels: int = 3,
        base_channels: int = 64,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        features: list[nn.Module] = []
        for count, factor in zip(STAGES[depth], WIDTH_FACTORS, strict=True):
            for _ in range(count):
                features.append(nn.Conv2d(in_channels, base_channels * factor, 3, padding=1))
                in_channels = base_channels * factor
                features += [nn.BatchNorm2d(in_channels)] if batch_norm else []
                features.append(nn.ReLU())
            features.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        hidden = 64 * base_channels
        self.classifier = nn.Sequential(
            nn.Linear(in_channels * 49, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )
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


def vgg11(num_classes: int = 1000, in_channels: int = 3, base_channels: int = 64) -> VGG:
    """VGG with 11 layers, 133 million parameters; the weights are random. Arguments as in :class:`VGG`.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.vgg11(num_classes=5, base_channels=4)
        >>> len(list(net.parameters()))
        22
    """
    return VGG(11, False, num_classes, in_channels, base_channels)


def vgg11_bn(num_classes: int = 1000, in_channels: int = 3, base_channels: int = 64) -> VGG:
    """:func:`vgg11` with batch normalization.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.vgg11_bn(num_classes=5, base_channels=4)
        >>> len(list(net.parameters()))
        38
    """
    return VGG(11, True, num_classes, in_channels, base_channels)


def vgg13(num_classes: int = 1000, in_channels: int = 3, base_channels: int = 64) -> VGG:
    """VGG with 13 layers, 133 million parameters; the weights are random. Arguments as in :class:`VGG`.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.vgg13(num_classes=5, base_channels=4)
        >>> len(list(net.parameters()))
        26
    """
    return VGG(13, False, num_classes, in_channels, base_channels)


def vgg13_bn(num_classes: int = 1000, in_channels: int = 3, base_channels: int = 64) -> VGG:
    """:func:`vgg13` with batch normalization.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.vgg13_bn(num_classes=5, base_channels=4)
        >>> len(list(net.parameters()))
        46
    """
    return VGG(13, True, num_classes, in_channels, base_channels)


def vgg16(num_classes: int = 1000, in_channels: int = 3, base_channels: int = 64) -> VGG:
    """VGG with 16 layers, 138 million parameters; the weights are random. Arguments as in :class:`VGG`.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.vgg16(num_classes=5, base_channels=4)
        >>> len(list(net.parameters()))
        32
    """
    return VGG(16, False, num_classes, in_channels, base_channels)


def vgg16_bn(num_classes: int = 1000, in_channels: int = 3, base_channels: int = 64) -> VGG:
    """:func:`vgg16` with batch normalization.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.vgg16_bn(num_classes=5, base_channels=4)
        >>> len(list(net.parameters()))
        58
    """
    return VGG(16, True, num_classes, in_channels, base_channels)
