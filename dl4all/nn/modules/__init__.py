"""The layers, in the modules that they have in PyTorch: ``dl4all.nn.modules.conv.Conv2d``."""

from __future__ import annotations

import sys

from dl4all.nn.modules import embedding, loss, normalization, upsampling

PATHS = {
    "batchnorm": normalization,
    "distance": loss,
    "fold": upsampling,
    "instancenorm": normalization,
    "pixelshuffle": upsampling,
    "sparse": embedding,
}
"""Modules of PyTorch's that are parts of others here."""

for _name, _module in PATHS.items():
    globals()[_name] = _module
    sys.modules[f"{__name__}.{_name}"] = _module
