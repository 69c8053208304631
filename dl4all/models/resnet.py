"""Residual networks (He et al., arXiv:1512.03385), with torchvision's parameter names."""

from __future__ import annotations

from dl4all import nn
from dl4all.nn.utils import fuse_conv_bn_eval
from dl4all.tensor.tensor import Tensor


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around which the input is led and added.

    Args:
        in_channels, channels: of the input and the output.
        stride: of the first convolution; where the shape changes, the way around gets a 1x1
            convolution.
    """

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1: nn.Module = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2: nn.Module = nn.BatchNorm2d(channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        around = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + around)  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """A stem, four stages of blocks that halve the image and double the channels, and a classifier.

    Args:
        blocks: how many in each stage.
        num_classes: size of the output.

    Shape:
        (N, 3, H, W) to logits (N, num_classes); trained for 224 x 224, works for any size.
    """

    def __init__(self, blocks: tuple[int, int, int, int], num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1: nn.Module = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _stage(64, 64, blocks[0], 1)
        self.layer2 = _stage(64, 128, blocks[1], 2)
        self.layer3 = _stage(128, 256, blocks[2], 2)
        self.layer4 = _stage(256, 512, blocks[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))  # type: ignore[no-any-return]

    def fold_batch_norm(self) -> ResNet:
        """Fold every batch normalisation into the convolution before it, for inference, in place.

        Afterwards the network has other parameters and no longer takes a state dict of the
        original's names: load weights first.
        """
        for module in self.modules():
            if isinstance(module, nn.Sequential):
                continue
            for suffix in ("1", "2"):
                conv, bn = getattr(module, f"conv{suffix}", None), getattr(module, f"bn{suffix}", None)
                if isinstance(conv, nn.Conv2d) and isinstance(bn, nn.BatchNorm2d):
                    setattr(module, f"conv{suffix}", fuse_conv_bn_eval(conv, bn))
                    setattr(module, f"bn{suffix}", nn.Identity())
            if isinstance(module, BasicBlock) and module.downsample is not None:
                conv, bn = module.downsample
                if isinstance(conv, nn.Conv2d) and isinstance(bn, nn.BatchNorm2d):
                    module.downsample = nn.Sequential(fuse_conv_bn_eval(conv, bn))
        return self


def _stage(in_channels: int, channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(in_channels, channels, stride)
    return nn.Sequential(first, *(BasicBlock(channels, channels, 1) for _ in range(blocks - 1)))


def resnet18(num_classes: int = 1000) -> ResNet:
    """ResNet-18: 11.7 million parameters, 1.8 billion multiply-adds for a 224 x 224 image.

    The weights are random; load trained ones with
    ``net.load_state_dict(dl.io.load_weights("resnet18.pth"))``.
    """
    return ResNet((2, 2, 2, 2), num_classes)
