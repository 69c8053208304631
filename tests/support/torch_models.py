"""The networks of ``dl4all.models`` in plain PyTorch, with torchvision's structure and names."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

VGG: dict[int, list[Any]] = {
    11: [1, "M", 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M"],
    13: [1, 1, "M", 2, 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M"],
    16: [1, 1, "M", 2, 2, "M", 4, 4, 4, "M", 8, 8, 8, "M", 8, 8, 8, "M"],
}


class Block(nn.Module):
    """A residual block of torchvision: basic, or a bottleneck, whose 3x3 convolution has the stride."""

    def __init__(self, given: int, planes: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        last = planes * 4 if bottleneck else planes
        if bottleneck:
            self.conv1 = nn.Conv2d(given, planes, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(planes)
            self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(planes)
            self.conv3 = nn.Conv2d(planes, last, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(last)
        else:
            self.conv1 = nn.Conv2d(given, planes, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(planes)
            self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(planes)
        self.bottleneck = bottleneck
        self.downsample: nn.Sequential | None = None
        if stride != 1 or given != last:
            self.downsample = nn.Sequential(
                nn.Conv2d(given, last, 1, stride, bias=False), nn.BatchNorm2d(last)
            )

    def forward(self, x: Any) -> Any:
        around = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        if self.bottleneck:
            out = self.bn3(self.conv3(out.relu()))
        return (out + around).relu()


class ResNet(nn.Module):
    def __init__(self, layers: list[int], bottleneck: bool, classes: int, channels: int, base: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, base, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(base)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        given = base
        for number, count in enumerate(layers):
            planes = base * 2**number
            blocks = []
            for i in range(count):
                blocks.append(Block(given, planes, 2 if number and i == 0 else 1, bottleneck))
                given = planes * (4 if bottleneck else 1)
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(given, classes)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        for number in range(1, 5):
            x = getattr(self, f"layer{number}")(x)
        return self.fc(x.mean((2, 3)))


class Vgg(nn.Module):
    def __init__(self, depth: int, batch_norm: bool, classes: int, channels: int, base: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for entry in VGG[depth]:
            if isinstance(entry, str):
                layers.append(nn.MaxPool2d(2, 2))
                continue
            layers.append(nn.Conv2d(channels, entry * base, 3, padding=1))
            channels = entry * base
            layers += [nn.BatchNorm2d(channels), nn.ReLU()] if batch_norm else [nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        wide = 64 * base
        self.classifier = nn.Sequential(
            *(nn.Linear(channels * 49, wide), nn.ReLU(), nn.Dropout()),
            *(nn.Linear(wide, wide), nn.ReLU(), nn.Dropout(), nn.Linear(wide, classes)),
        )

    def forward(self, x: Any) -> Any:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def _conv(given: int, planes: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(given, planes, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm2d(planes),
        nn.ReLU6(),
    )


class InvertedResidual(nn.Module):
    def __init__(self, given: int, planes: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = given * expand
        layers: list[nn.Module] = [_conv(given, wide, 1)] if expand != 1 else []
        layers += [_conv(wide, wide, 3, stride, wide), nn.Conv2d(wide, planes, 1, bias=False)]
        self.conv = nn.Sequential(*layers, nn.BatchNorm2d(planes))
        self.residual = stride == 1 and given == planes

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    """With the channels of each stage as torchvision computes them for a width, here given."""

    def __init__(self, planes: list[int], classes: int, channels: int) -> None:
        super().__init__()
        settings = zip((1, 6, 6, 6, 6, 6, 6), (1, 2, 3, 4, 3, 3, 1), (1, 2, 2, 2, 1, 2, 1), strict=True)
        layers: list[nn.Module] = [_conv(channels, planes[0], 3, 2)]
        given = planes[0]
        for stage, (expand, count, stride) in zip(planes[1:-1], settings, strict=True):
            for i in range(count):
                layers.append(InvertedResidual(given, stage, stride if i == 0 else 1, expand))
                given = stage
        self.features = nn.Sequential(*layers, _conv(given, planes[-1], 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(planes[-1], classes))

    def forward(self, x: Any) -> Any:
        return self.classifier(self.features(x).mean((2, 3)))


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Any) -> Any:
        for conv in (self.conv1, self.conv2):
            x = torch.max_pool2d(conv(x).relu(), 2)
        return self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())


def mlp() -> nn.Module:
    """The layout of torchvision's ops.MLP."""
    hidden = (nn.Linear(12, 7), nn.ReLU(), nn.Dropout(0.1), nn.Linear(7, 5), nn.ReLU(), nn.Dropout(0.1))
    return nn.Sequential(*hidden, nn.Linear(5, 3))


@torch.no_grad()
def lively(net: nn.Module, images: Any, seed: int = 0) -> nn.Module:
    """Every parameter and statistic is drawn, so that none can be left out without being seen."""
    generator = torch.Generator().manual_seed(seed)

    def spread(like: torch.Tensor, low: float, high: float) -> torch.Tensor:
        return torch.rand(like.shape, generator=generator) * (high - low) + low

    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            fan_in = module.weight[0].numel()
            module.weight.copy_(torch.randn(module.weight.shape, generator=generator) * (2 / fan_in) ** 0.5)
            if module.bias is not None:
                module.bias.copy_(spread(module.bias, -0.3, 0.3))
        elif isinstance(module, nn.BatchNorm2d):
            module.weight.copy_(spread(module.weight, 0.5, 1.5))
            module.bias.copy_(spread(module.bias, -0.4, 0.4))
            module.momentum = 1.0  # the statistics of the one batch below
        elif isinstance(module, nn.Dropout):
            module.p = 0.0
    net.train()
    net(images)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.mul_(spread(module.running_mean, 0.7, 1.4))
            module.running_var.mul_(spread(module.running_var, 0.6, 1.6))
    return net.eval()
