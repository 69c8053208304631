"""Factors of batch norm's channels that the launches before them write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.ir.graph import BoundLaunch, Graph
from dl4all.graph.passes.channel_factors import channel_factors
from dl4all.graph.passes.common_commands import common_commands
from dl4all.graph.passes.fusion.epilogues import epilogues
from dl4all.graph.passes.fusion.reduction_fusion import reduction_fusion
from tests.conftest import need
from tests.support.operands import generator
from tests.support.traced_functions import Traced, commands_of, traced

F = dl.nn.functional
# Shapes whose statistics and sums are combined of several parts on most devices.
SHAPES = [(3, 5, 7, 3), (4, 70, 3, 3), (2, 3, 64, 65), (9000, 5)]


def _batch_norm(shape: tuple[int, ...], has_weight: bool) -> Traced:
    """The result of a batch norm and the gradient of its input, in one tensor."""

    def function(x: Any, g: Any, weight: Any, bias: Any) -> Any:
        parameters = (weight, bias) if has_weight else (None, None)
        with dl.enable_grad():
            leaf = x.detach().requires_grad_()
            y = F.batch_norm(leaf, None, None, parameters[0], parameters[1], training=True)
        [gradient] = dl.grad([y], [leaf], [g])
        return y.detach() * 2 + gradient

    rng = generator("channel factors", *shape)
    sizes = (shape, shape, shape[1:2], shape[1:2])
    return traced(function, *(rng.standard_normal(size, np.float32) for size in sizes))


def _paths(graph: Graph) -> list[str]:
    commands = [command for node in graph.nodes for command in node.commands]
    return [command.launch.shader.path for command in commands if isinstance(command, BoundLaunch)]


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_weight", [False, True])
def test_batch_norm(has_weight: bool, shape: tuple[int, ...]) -> None:
    """Three launches vanish, and one number after another is the same."""
    need("vulkan:0")
    before = _batch_norm(shape, has_weight)
    shared = common_commands(before.graph)
    after = channel_factors(shared)
    np.testing.assert_array_equal(before.outcome(after), before.result)
    paths, left = _paths(shared), _paths(after)
    in_parts = sum("combine" in path for path in paths) == 2
    if in_parts and dl.device("vulkan:0").info.limits.storage_buffers >= 8:
        assert not any("fold" in path for path in left)
        # Without a weight the factors for the result are those for the gradient.
        assert len(paths) - len(left) == (3 if has_weight else 2)
    fused = channel_factors(common_commands(reduction_fusion(epilogues(before.graph))))
    scale = np.abs(before.result).max()
    np.testing.assert_allclose(before.outcome(fused), before.result, rtol=2e-6, atol=2e-6 * scale)
    assert channel_factors(after).nodes == after.nodes


@pytest.mark.vulkan
def test_a_weight_that_changes_in_between() -> None:
    need("vulkan:0")

    def function(x: Any, weight: Any) -> Any:
        factor = weight.clone()
        stats = dl.ops.batch_norm_stats(x)
        mean, var = stats[0], stats[1]
        factor.mul_(3)
        return F.batch_norm(x, mean, var, factor, weight)

    rng = generator("a weight that changes")
    before = traced(function, *(rng.standard_normal(size, np.float32) for size in ((3, 5, 7, 3), (5,))))
    after = channel_factors(before.graph)
    np.testing.assert_array_equal(before.outcome(after), before.result)
    assert commands_of(after) == commands_of(before.graph)
