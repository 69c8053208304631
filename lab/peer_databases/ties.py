"""Elements that an op leaves open: indices of equal elements, and gradients that are nan by accident."""

from __future__ import annotations

from typing import Any

import torch

AXES = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "mode": 0}
"""The ops, and which of their further operands is the axis."""

UNDEFINED_GRADIENTS = ("nn.functional.poisson_nll_loss",)
"""Entries whose nan may be a number: PyTorch's, for counts up to 0, is of a term that is left out."""


def leaves_open(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether an op may name any of equal elements."""
    return name in AXES and not kwargs.get("stable")


def named_elements(name: str, operands: Any, results: list[torch.Tensor]) -> list[torch.Tensor]:
    """The results, with the elements that indices name in the indices' place.

    Of ops that name all elements, the indices in ascending order come too: no element is named twice.
    """
    value, args, kwargs = operands
    at = AXES[name]
    axis = kwargs.get("dim", args[at] if len(args) > at else -1)
    *values, indices = results
    if not value.dim():
        return results
    along = indices if indices.dim() == value.dim() else indices.unsqueeze(axis)
    named = value.detach().gather(axis, along).reshape(indices.shape)
    return [*values, named, *([indices.sort(axis).values] if "sort" in name else [])]
