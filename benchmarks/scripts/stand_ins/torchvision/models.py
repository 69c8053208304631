"""Networks of torchvision's names and parts, with random weights."""

from __future__ import annotations

from typing import Any

from torchvision.framework import torch

nn = torch.nn


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Three convolutions, of 1 x 1, 3 x 3 and 1 x 1, around which the input is added."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(inputs, outputs, stride)

    def forward(self, x: Any) -> Any:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class BasicBlock(nn.Module):  # type: ignore[misc]
    """Two convolutions of 3 x 3 around which the input is added."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width, stride)

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def shortcut(inputs: int, outputs: int, stride: int) -> Any:
    """What fits the input to the output; None where it fits."""
    if inputs == outputs and stride == 1:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):  # type: ignore[misc]
    """A residual network (He et al., arXiv:1512.03385)."""

    def __init__(self, block: Any, counts: tuple[int, ...]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1, self.relu, self.maxpool = nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for number, count in enumerate(counts):
            width, blocks = 64 << number, []
            for place in range(count):
                blocks.append(block(inputs, width, 2 if number and not place else 1))
                inputs = width * block.expansion
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(inputs, 1000)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGG(nn.Module):  # type: ignore[misc]
    """A network of convolutions of 3 x 3 (Simonyan and Zisserman, arXiv:1409.1556), without its classifier."""

    def __init__(self, counts: tuple[int, ...]) -> None:
        super().__init__()
        layers, inputs = [], 3
        for width, count in zip((64, 128, 256, 512, 512), counts, strict=True):
            for _ in range(count):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = width
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)


def resnet18(**kwargs: Any) -> Any:
    """ResNet-18."""
    return ResNet(BasicBlock, (2, 2, 2, 2))


def resnet152(**kwargs: Any) -> Any:
    """ResNet-50 in the place of ResNet-152, which has three times its layers."""
    return ResNet(Bottleneck, (3, 4, 6, 3))


def vgg19(**kwargs: Any) -> Any:
    """VGG-19."""
    return VGG((2, 2, 4, 4, 4))
