"""Functions of tensors beside PyTorch's: values, and gradients with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from tests.support.operands import LAYOUTS, close, generator, numbers

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")

NDArray = npt.NDArray[Any]
TOLERANCE = 1e-5  # as in tests/support/operands.py


def both(
    device: str,
    f: Callable[..., Any],
    *arrays: NDArray,
    g: Callable[..., Any] | None = None,
    layout: str = "contiguous",
) -> None:
    """Raise unless ``f`` gives what ``g`` does with PyTorch's tensors (by default ``f``), gradients too."""
    ours, theirs = list[Any](), list[Any]()
    for array in arrays:
        tensor, elements = LAYOUTS[layout](array, device)
        ours.append(tensor.detach())
        theirs.append(torch.from_numpy(elements.copy()))
        if array.dtype.kind == "f":
            ours[-1].requires_grad_()
            theirs[-1].requires_grad_()
    got, expected = f(*ours), (g or f)(*theirs)
    got, expected = (x if isinstance(x, (tuple, list)) else (x,) for x in (got, expected))
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert str(a.device) == device
        assert (a.shape, f"torch.{a.dtype}") == (tuple(b.shape), str(b.dtype))
        close(a.detach().numpy().astype(np.float64), b.detach().numpy().astype(np.float64), TOLERANCE)
    rng = generator(str(arrays[0].shape), "weights")
    roots = [(a, b) for a, b in zip(got, expected, strict=True) if b.requires_grad]
    assert all(a.requires_grad == b.requires_grad for a, b in zip(got, expected, strict=True))
    if not roots:
        return
    weights = [numbers(rng, tuple(b.shape)).astype(a.dtype) for a, b in roots]
    dl.autograd.backward([a for a, _ in roots], [dl.tensor(w, device=device) for w in weights])
    torch.autograd.backward([b for _, b in roots], [torch.from_numpy(w) for w in weights])
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            close(a.grad.numpy().astype(np.float64), b.grad.numpy().astype(np.float64), TOLERANCE)


def values(*shape: int, dtype: str = "float32") -> NDArray:
    return numbers(generator(shape, dtype), shape, dtype)
