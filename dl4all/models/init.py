"""The initialization of torchvision's networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from dl4all import nn

Layer: TypeAlias = Callable[[Any], Any]
"""A module, or a function without parameters, that takes what the one before it returned."""


def initialize(network: nn.Module, mode: Literal["fan_in", "fan_out"], linear_std: float | None) -> None:
    """He initialization of convolutions (arXiv:1502.01852), with biases of 0.

    Args:
        network: the network, which changes in place; normalizations keep their weights of 1 and biases of 0.
        mode: ``"fan_in"`` keeps the variance of activations, ``"fan_out"`` that of gradients.
        linear_std: the standard deviation of linear layers, whose biases become 0; None leaves them
            unchanged.
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
