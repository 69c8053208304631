"""Stories of compiled functions, played twice: with the function as it is, and compiled."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl

Wrap = Callable[[Callable[..., Any]], Any]
Story = Callable[[Wrap, Callable[..., dl.Tensor]], list[Any]]
CALLS = 4  # of which the first two are traced

on_each_device = pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param("vulkan:0", marks=pytest.mark.vulkan),
        pytest.param("kompute:0", marks=[pytest.mark.vulkan, pytest.mark.full]),
    ],
    indirect=True,
)


def play(story: Story, device: str, *, compiles: bool = True) -> None:
    """Compare the results of a story with and without compilation; it compiles something, if said so."""
    made: list[Any] = []

    def compiled(function: Callable[..., Any]) -> Any:
        made.append(dl.compile(function))
        return made[-1]

    def uncompiled(function: Callable[..., Any]) -> Any:
        return function

    plain, other = (_results(story, wrap, device) for wrap in (uncompiled, compiled))
    assert len(plain) == len(other)
    for one, two in zip(other, plain, strict=True):
        assert (one is None) == (two is None)
        if two is not None:
            assert one.dtype == two.dtype
            np.testing.assert_allclose(one, two, rtol=2e-5, atol=1e-6)
    assert any(function.specializations for function in made) == compiles


def _results(story: Story, wrap: Wrap, device: str) -> list[Any]:
    rng = np.random.default_rng(18)
    random.seed(18)
    np.random.seed(18)  # noqa: NPY002 - the global generator is what is asked about
    dl.manual_seed(18)

    def tensor(*shape: int) -> dl.Tensor:
        return dl.tensor(rng.uniform(0.5, 2, shape).astype(np.float32), device=device)

    return [t.detach().numpy().copy() if isinstance(t, dl.Tensor) else t for t in story(wrap, tensor)]
