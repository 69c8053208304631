"""Elementwise arithmetic: which dl4all op each ATen op is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all import ops
from dl4all.torch.registration import declare

POINTWISE: dict[str, Callable[..., Any]] = {
    "add.Tensor": ops.add,
    "sub.Tensor": ops.sub,
    "mul.Tensor": ops.mul,
    "div.Tensor": ops.true_divide,
    "neg": ops.neg,
    "abs": ops.abs,
    "exp": ops.exp,
    "tanh": ops.tanh,
}

for _name, _function in POINTWISE.items():
    declare(_name, _function, pointwise=True)
