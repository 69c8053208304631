"""Residual networks (He et al., arXiv:1512.03385), with torchvision's parameter names."""

from __future__ import annotations

from typing import ClassVar

from dl4all import nn
from dl4all.errors import ArgumentError
from dl4all.models.init import Layer, initialize
from dl4all.nn.utils import fuse_conv_bn_eval
from dl4all.tensor.tensor import Tensor


class _ResidualBlock(nn.Module):
    """Base class of residual blocks: the shortcut connection.

    Args:
        in_channels: channels of the input.
        channels: channels of the convolutions; the output has `expansion` times as many.
        stride: the stride of the block. If it changes the shape, the shortcut has a 1x1 convolution.
    """

    expansion: ClassVar[int]

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self._add_convolutions(in_channels, channels, stride)
        self.relu = nn.ReLU()
        out_channels = channels * self.expansion
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def _add_convolutions(self, in_channels: int, channels: int, stride: int) -> None:
        """Add the convolutions and normalizations as attributes; each kind of block has its own."""
        raise NotImplementedError


class BasicBlock(_ResidualBlock):
    """Two 3x3 convolutions with a shortcut."""

    expansion = 1

    def _add_convolutions(self, in_channels: int, channels: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1: nn.Module = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2: nn.Module = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + shortcut)  # type: ignore[no-any-return]


class Bottleneck(_ResidualBlock):
    """A 3x3 convolution between two 1x1 convolutions, the second with four times the channels.

    The stride is that of the 3x3 convolution, as in torchvision ("ResNet v1.5"), not of the first one.
    """

    expansion = 4

    def _add_convolutions(self, in_channels: int, channels: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn1: nn.Module = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.bn2: nn.Module = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels * self.expansion, 1, bias=False)
        self.bn3: nn.Module = nn.BatchNorm2d(channels * self.expansion)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + shortcut)  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """A stem, four stages of blocks that halve the image and double the channels, and a classifier.

    Args:
        block: :class:`BasicBlock` or :class:`Bottleneck`.
        blocks: how many blocks each stage has.
        num_classes: size of the output.
        in_channels: how many channels the images have.
        base_channels: channels of the stem and the first stage; the published networks have 64.

    Shape:
        (N, in_channels, H, W) to logits (N, num_classes); designed for 224 x 224, works for any size from 1.

    Raises:
        ArgumentError: a number is less than 1.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.resnet18(num_classes=5, base_channels=8).eval()
        >>> isinstance(net, dl.models.ResNet), net(dl.rand(1, 3, 32, 32)).shape
        (True, (1, 5))
    """

    def __init__(
        self,
        block: type[_ResidualBlock],
        blocks: tuple[int, int, int, int],
        num_classes: int = 1000,
        in_channels: int = 3,
        base_channels: int = 64,
    ) -> None:
        super().__init__()
        if min(num_classes, in_channels, base_channels) < 1:
            raise ArgumentError(
                f"[ResNet] num_classes {num_classes}, in_channels {in_channels} and base_channels "
                f"{base_channels} must be at least 1"
            )
        widths = [base_channels * factor for factor in (1, 2, 4, 8)]
        outputs = [width * block.expansion for width in widths]
        self.conv1 = nn.Conv2d(in_channels, base_channels, 7, 2, 3, bias=False)
        self.bn1: nn.Module = nn.BatchNorm2d(base_channels)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _stage(block, base_channels, widths[0], blocks[0], 1)
        self.layer2 = _stage(block, outputs[0], widths[1], blocks[1], 2)
        self.layer3 = _stage(block, outputs[1], widths[2], blocks[2], 2)
        self.layer4 = _stage(block, outputs[2], widths[3], blocks[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(outputs[3], num_classes)
        initialize(self, "fan_out", linear_std=None)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))  # type: ignore[no-any-return]

    def layers(self) -> list[tuple[str, Layer]]:
        """The modules that ``forward`` calls in turn, by name: a pipeline can be cut between them."""
        names = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4", "avgpool")
        return [*((name, getattr(self, name)) for name in names), ("flatten", nn.Flatten()), ("fc", self.fc)]

    def fold_batch_norm(self) -> ResNet:
        """Fold every batch normalization into the convolution before it, for inference, in place.

        Load weights first: afterwards the network has other parameters, which a state dict of the original
        network does not fit.
        """
        for module in self.modules():
            if isinstance(module, nn.Sequential):
                continue
            for suffix in ("1", "2", "3"):
                conv, bn = getattr(module, f"conv{suffix}", None), getattr(module, f"bn{suffix}", None)
                if isinstance(conv, nn.Conv2d) and isinstance(bn, nn.BatchNorm2d):
                    setattr(module, f"conv{suffix}", fuse_conv_bn_eval(conv, bn))
                    setattr(module, f"bn{suffix}", nn.Identity())
            if isinstance(module, _ResidualBlock) and module.downsample is not None:
                conv, bn = module.downsample
                if isinstance(conv, nn.Conv2d) and isinstance(bn, nn.BatchNorm2d):
                    module.downsample = nn.Sequential(fuse_conv_bn_eval(conv, bn))
        return self


def _stage(
    block: type[_ResidualBlock], in_channels: int, channels: int, blocks: int, stride: int
) -> nn.Sequential:
    first = block(in_channels, channels, stride)
    out_channels = channels * block.expansion
    return nn.Sequential(first, *(block(out_channels, channels, 1) for _ in range(blocks - 1)))


def resnet18(num_classes: int = 1000, in_channels: int = 3, base_channels: int = 64) -> ResNet:
    """ResNet-18: 11.7 million parameters, 1.8 billion multiply-adds for a 224 x 224 image.

    The weights are random; load trained ones with
    ``net.load_state_dict(dl.io.load_weights("resnet18.pth"))``. Arguments as in :class:`ResNet`.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.resnet18(num_classes=5, base_channels=8).eval()
        >>> net(dl.rand(1, 3, 32, 32)).shape
        (1, 5)
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, in_channels, base_channels)


def resnet34(num_classes: int = 1000, in_channels: int = 3, base_channels: int = 64) -> ResNet:
    """ResNet-34: 21.8 million parameters; the weights are random. Arguments as in :class:`ResNet`.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.resnet34(num_classes=5, base_channels=8)
        >>> len(list(net.parameters()))
        110
    """
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes, in_channels, base_channels)


def resnet50(num_classes: int = 1000, in_channels: int = 3, base_channels: int = 64) -> ResNet:
    """ResNet-50: 25.6 million parameters; the weights are random. Arguments as in :class:`ResNet`.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.resnet50(num_classes=5, base_channels=8)
        >>> len(list(net.parameters()))
        161
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, in_channels, base_channels)
