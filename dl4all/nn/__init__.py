"""Layers, with PyTorch's names and parameter names."""

from __future__ import annotations

from dl4all.nn import functional, init, utils
from dl4all.nn.activation import ReLU, Softmax
from dl4all.nn.container import Sequential
from dl4all.nn.convolution import Conv2d
from dl4all.nn.linear import Flatten, Identity, Linear
from dl4all.nn.module import Module, Parameter
from dl4all.nn.normalization import BatchNorm2d
from dl4all.nn.pooling import AdaptiveAvgPool2d, MaxPool2d

__all__ = [
    "AdaptiveAvgPool2d",
    "BatchNorm2d",
    "Conv2d",
    "Flatten",
    "Identity",
    "Linear",
    "MaxPool2d",
    "Module",
    "Parameter",
    "ReLU",
    "Sequential",
    "Softmax",
    "functional",
    "init",
    "utils",
]
