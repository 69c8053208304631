"""Launches of different ops that compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.passes.common_launches import common_launches
from tests.conftest import need
from tests.support.operands import generator
from tests.support.traced_functions import Traced, commands_of, traced

F = dl.nn.functional


def _gradient(x: Any, g: Any, weight: Any) -> Any:
    with dl.enable_grad():
        leaf, factor = x.detach().requires_grad_(), weight.detach().requires_grad_()
        y = F.batch_norm(leaf, None, None, factor, None, training=True)
    dx, dw = dl.grad([y], [leaf, factor], [g])
    return dx + dw[0]


def _batch_norm(shape: tuple[int, ...]) -> Traced:
    rng = generator("common launches", *shape)
    arrays = [rng.standard_normal(size, np.float32) for size in (shape, shape, shape[1:2])]
    return traced(_gradient, *arrays)


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", [(3, 5, 7, 3), (7, 5)])
def test_scales_of_channels(shape: tuple[int, ...]) -> None:
    """Both parts of a batch norm's gradient begin with the mean and the deviation of the channels."""
    need("vulkan:0")
    before = _batch_norm(shape)
    after = common_launches(before.graph)
    assert commands_of(before.graph) - commands_of(after) == 1
    np.testing.assert_array_equal(before.outcome(after), before.result)
    assert commands_of(common_launches(after)) == commands_of(after)


@pytest.mark.vulkan
def test_launches_that_differ_stay() -> None:
    need("vulkan:0")

    def function(x: Any, y: Any) -> Any:
        first = x.sum(0)
        x.mul_(2)  # the second sum is another one
        return first * x.sum(0) + y.sum(0)

    rng = generator("launches that differ")
    x, y = (rng.standard_normal((5, 7), np.float32) for _ in range(2))

    def on_copies(x: Any, y: Any) -> Any:
        return function(x.clone(), y)

    before = traced(on_copies, x, y)
    after = common_launches(before.graph)
    assert commands_of(after) == commands_of(before.graph)
    np.testing.assert_array_equal(before.outcome(after), before.result)


@pytest.mark.vulkan
def test_equal_ops() -> None:
    """An op that another one repeats vanishes altogether, unless its result goes out."""
    need("vulkan:0")
    x = generator("equal ops").standard_normal((5, 7), np.float32)
    before = traced(lambda x: x.exp() * x.exp().sum(0), x)
    after = common_launches(before.graph)
    assert [node.name for node in after.nodes] == ["exp", "sum", "mul"]
    np.testing.assert_array_equal(before.outcome(after), before.result)
    twice = traced(lambda x: (x.exp() * 2, x.exp())[1], x)
    np.testing.assert_array_equal(twice.outcome(common_launches(twice.graph)), twice.result)
