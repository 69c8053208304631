"""Activations and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all import ops
from dl4all.torch.registration import declare

POINTWISE: dict[str, Callable[..., Any]] = {
    "relu": ops.relu,
    "sigmoid": ops.sigmoid,
}

for _name, _function in POINTWISE.items():
    declare(_name, _function, pointwise=True)
