"""The layers under the paths that they have in PyTorch: ``dl4all.nn.modules.conv.Conv2d``.

Each module here is the one of :mod:`dl4all.nn` that defines the layers.
"""

from __future__ import annotations

import sys

from dl4all.nn import (
    activation,
    attention,
    container,
    conv,
    dropout,
    embedding,
    flatten,
    lazy,
    linear,
    loss,
    normalization,
    padding,
    pooling,
    rnn,
    transformer,
    upsampling,
)
from dl4all.nn.modules import module as module
from dl4all.nn.modules import utils as utils

PATHS = {
    "activation": activation,
    "attention": attention,
    "batchnorm": normalization,
    "container": container,
    "conv": conv,
    "distance": loss,
    "dropout": dropout,
    "flatten": flatten,
    "fold": upsampling,
    "instancenorm": normalization,
    "lazy": lazy,
    "linear": linear,
    "loss": loss,
    "normalization": normalization,
    "padding": padding,
    "pixelshuffle": upsampling,
    "pooling": pooling,
    "rnn": rnn,
    "sparse": embedding,
    "transformer": transformer,
    "upsampling": upsampling,
}
"""PyTorch's names of the modules."""

for _name, _module in PATHS.items():
    globals()[_name] = _module
    sys.modules[f"{__name__}.{_name}"] = _module
