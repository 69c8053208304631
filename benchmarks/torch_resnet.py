"""ResNet-18 in plain PyTorch, with torchvision's structure and names: what dl4all is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Mapping


class BasicBlock(nn.Module):
    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        result: torch.Tensor = self.relu(out)
        return result


class ResNet18(nn.Module):
    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: torch.Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


@torch.no_grad()
def resnet18(seed: int = 0) -> ResNet18:
    """The network for inference, with every weight and statistic drawn so that activations keep their size.

    PyTorch's own initial statistics are zeros and ones, and would hide a wrong batch normalisation.
    Here the statistics are those of a random batch, layer by layer, each times a random factor; scales
    and shifts spread around 1 and 0.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(like: torch.Tensor, low: float, high: float) -> torch.Tensor:
        return torch.rand(like.shape, generator=generator) * (high - low) + low

    net = ResNet18()
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            fan_in = module.weight[0].numel()
            module.weight.copy_(torch.randn(module.weight.shape, generator=generator) * (2 / fan_in) ** 0.5)
        elif isinstance(module, nn.BatchNorm2d):
            module.weight.copy_(uniform(module.weight, 0.4, 1.2))
            module.bias.copy_(uniform(module.bias, -0.4, 0.4))
            module.momentum = 1.0  # the statistics of the one batch below
        elif isinstance(module, nn.Linear):
            module.weight.copy_(
                torch.randn(module.weight.shape, generator=generator) / module.in_features**0.5
            )
            module.bias.copy_(uniform(module.bias, -0.5, 0.5))
    net.train()
    net(torch.randn(4, 3, 96, 96, generator=generator))
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            assert module.num_batches_tracked is not None
            module.running_mean.mul_(uniform(module.running_mean, 0.7, 1.4))
            module.running_var.mul_(uniform(module.running_var, 0.6, 1.6))
            module.num_batches_tracked.fill_(int(torch.randint(1, 10**6, (), generator=generator)))
    return net.eval()


def stages(net: ResNet18, x: torch.Tensor) -> Mapping[str, torch.Tensor]:
    """What comes out of the stem, of each stage and of the whole network."""
    found: dict[str, torch.Tensor] = {}

    def keep(name: str) -> object:
        return lambda module, given, result: found.__setitem__(name, result.detach().clone())

    names = ("maxpool", "layer1", "layer2", "layer3", "layer4", "fc")
    hooks = [getattr(net, name).register_forward_hook(keep(name)) for name in names]
    with torch.no_grad():
        net(x)
    for hook in hooks:
        hook.remove()
    return found


def images(batch: int, height: int, width: int, seed: int = 0) -> torch.Tensor:
    """Random pictures of the size that normalised ones have."""
    generator = torch.Generator().manual_seed(1000 * seed + batch + height)
    return torch.randn(batch, 3, height, width, generator=generator)
