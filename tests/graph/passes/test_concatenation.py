"""Gradients of slices are copied to their places, where the slices cover a tensor and do not overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.graph.passes.concatenation import concatenation
from tests.support.pass_results import check_pass

pytestmark = pytest.mark.vulkan
put: Callable[..., dl.Tensor] = dl.ops.index_backward
ALL = slice(None)


def _drawn(*shape: int) -> npt.NDArray[Any]:
    return np.random.default_rng(len(shape)).uniform(1, 2, shape).astype(np.float32)


def _thirds(a: dl.Tensor, b: dl.Tensor) -> dl.Tensor:
    """Three slices of (3, 5, 7)."""
    return (
        put(a, key=(0,), shape=(3, 5, 7))
        + put(b, key=(1,), shape=(3, 5, 7))
        + put(a, key=(2,), shape=(3, 5, 7))
    )


def _columns(a: dl.Tensor, b: dl.Tensor) -> dl.Tensor:
    """Columns, the second half of which has every other one."""
    left, even = (ALL, slice(0, 7)), (ALL, slice(7, 21, 2))
    odd = (ALL, slice(8, 21, 2))
    return (put(a, key=left, shape=(5, 21)) + put(b, key=even, shape=(5, 21))) + put(
        a, key=odd, shape=(5, 21)
    )


def _kept(a: dl.Tensor, b: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor]:
    first = put(a, key=(0,), shape=(2, 5, 7))
    return first + put(b, key=(1,), shape=(2, 5, 7)), first.exp()


def _changed(a: dl.Tensor, b: dl.Tensor) -> dl.Tensor:
    a = a.exp()
    first = put(a, key=(0,), shape=(2, 5, 7))
    a.add_(1.0)
    return (first + put(b, key=(1,), shape=(2, 5, 7))) * a


def _copied_source(a: dl.Tensor, b: dl.Tensor) -> dl.Tensor:
    turned = b.reshape(7, 5).t().clone().reshape(1, 5, 7)
    return put(a, key=(0,), shape=(2, 5, 7)) + put(turned, key=(slice(1, 2),), shape=(2, 5, 7))


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda a, b: _thirds(a, b).exp(), "concatenation exp"),
        (lambda a, b: _thirds(a, b), "concatenation"),
        (lambda a, b: _columns(a, b).exp(), "concatenation exp"),
        # A copy behind it, whose axes have another order, and one that is no copy of all
        (lambda a, b: _thirds(a, b).transpose(0, 1).clone().exp(), "concatenation exp"),
        (lambda a, b: _thirds(a, b).permute(2, 0, 1).clone() * 2, "concatenation mul"),
        (lambda a, b: _thirds(a, b)[:, 1:].clone().exp(), "concatenation clone exp"),
        (lambda a, b: _thirds(a, b).expand(2, 3, 5, 7).clone().exp(), "concatenation clone exp"),
        # A copy in front of it
        (_copied_source, "concatenation"),
        # Two sums
        (lambda a, b: _thirds(a.exp(), b) * _thirds(b, a), "exp concatenation concatenation mul"),
    ],
)
def test_equal_to_adding(function: Callable[..., Any], left: str) -> None:
    _, after = check_pass(concatenation, function, _drawn(5, 7), _drawn(5, 7))
    assert after == left.split()


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: put(a, key=(0,), shape=(3, 5, 7)) + put(b, key=(1,), shape=(3, 5, 7)),  # a hole
        lambda a, b: put(a, key=(0,), shape=(1, 5, 7)) + put(b, key=(0,), shape=(1, 5, 7)),  # an overlap
        lambda a, b: put(a, key=(0,), shape=(2, 5, 7)).add(put(b, key=(1,), shape=(2, 5, 7)), alpha=2),
        lambda a, b: put(a, key=(0,), shape=(2, 5, 7)) + b,
        lambda a, b: put(a, key=(0,), shape=(2, 5, 7)) * put(b, key=(1,), shape=(2, 5, 7)),
        _kept,
        _changed,
    ],
)
def test_left_as_it_is(function: Callable[..., Any]) -> None:
    before, after = check_pass(concatenation, function, _drawn(5, 7), _drawn(5, 7))
    assert after == before


def test_the_gradient_of_queries_keys_and_values() -> None:
    def gradient(x: dl.Tensor) -> dl.Tensor:
        x = x.detach().requires_grad_()
        with dl.enable_grad():
            q, k, v = (x[:, start : start + 3] for start in (0, 3, 6))
            loss = (q * k).sum() + (v * v).sum()
        gradient: dl.Tensor = dl.autograd.grad(loss, [x])[0]
        return gradient

    before, after = check_pass(concatenation, gradient, _drawn(4, 9))
    assert before.count("index_backward") == 3
    assert after.count("concatenation") == 1
    assert len(after) == len(before) - 4
