"""The random weights that torchvision's networks begin with."""

from __future__ import annotations

from typing import Literal

from dl4all import nn


def initialise(network: nn.Module, mode: Literal["fan_in", "fan_out"], linear_std: float | None) -> None:
    """Draw convolutions' weights for rectifiers (He et al., arXiv:1502.01852), and set their biases to 0.

    Args:
        network: whose layers are changed in place; normalisations begin with 1 and 0 as they are.
        mode: whether the variance is kept forwards or backwards.
        linear_std: of the linear layers, whose biases become 0; None leaves PyTorch's own beginning.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear) and linear_std is not None:
            nn.init.normal_(module.weight, 0.0, linear_std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
