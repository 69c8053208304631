"""Comparison of functions with PyTorch's: values, and gradients with random weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.ops.core.dtypes import kind_of
from tests.support.operands import LAYOUTS, close, generator, numbers

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")

NDArray = npt.NDArray[Any]
LibraryCall = Callable[..., Any]
"""A function of a library, dl4all or torch, and of its tensors."""

TOLERANCE = 1e-5  # as in tests/support/operands.py


def check_against_torch(
    device: str,
    f: Callable[..., Any],
    *arrays: NDArray,
    g: Callable[..., Any] | None = None,
    layout: str = "contiguous",
) -> None:
    """Raise unless ``f`` has the values and gradients of ``g`` (default ``f``) with PyTorch's tensors."""
    our_inputs, torch_inputs = list[Any](), list[Any]()
    for array in arrays:
        tensor, elements = LAYOUTS[layout](array, device)
        our_inputs.append(tensor.detach())
        torch_inputs.append(torch.from_numpy(elements.copy()))
        if kind_of(array.dtype) == "f":
            our_inputs[-1].requires_grad_()
            torch_inputs[-1].requires_grad_()
    results, expected = f(*our_inputs), (g or f)(*torch_inputs)
    results, expected = (x if isinstance(x, (tuple, list)) else (x,) for x in (results, expected))
    assert len(results) == len(expected)
    for a, b in zip(results, expected, strict=True):
        assert str(a.device) == device
        assert (a.shape, f"torch.{a.dtype}") == (tuple(b.shape), str(b.dtype))
        close(a.detach().numpy().astype(np.float64), b.detach().numpy().astype(np.float64), TOLERANCE)
    rng = generator(str(arrays[0].shape), "weights")
    roots = [(a, b) for a, b in zip(results, expected, strict=True) if b.requires_grad]
    assert all(a.requires_grad == b.requires_grad for a, b in zip(results, expected, strict=True))
    if not roots:
        return
    weights = [numbers(rng, tuple(b.shape)).astype(a.dtype) for a, b in roots]
    dl.autograd.backward([a for a, _ in roots], [dl.tensor(w, device=device) for w in weights])
    torch.autograd.backward([b for _, b in roots], [torch.from_numpy(w) for w in weights])
    for a, b in zip(our_inputs, torch_inputs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            close(a.grad.numpy().astype(np.float64), b.grad.numpy().astype(np.float64), TOLERANCE)


def compare_libraries(device: str, call: LibraryCall, *arrays: NDArray) -> None:
    """:func:`check_against_torch` for a function that takes the library as its first argument."""
    check_against_torch(device, functools.partial(call, dl), *arrays, g=functools.partial(call, torch))


def values(*shape: int, dtype: str = "float32") -> NDArray:
    """The same random numbers in each run, see :func:`~tests.support.operands.numbers`."""
    return numbers(generator(shape, dtype), shape, dtype)


def index_tensor(library: Any, device: str, array: NDArray) -> Any:
    """An array of indices or bools as a tensor of a library."""
    return torch.from_numpy(array) if library is torch else dl.tensor(array, device=device)
