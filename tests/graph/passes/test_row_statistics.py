"""Statistics of rows that are kept for the gradients of weight and bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.passes.fusion.epilogues import epilogues
from dl4all.graph.passes.fusion.reduction_fusion import reduction_fusion
from dl4all.graph.passes.row_statistics import row_statistics
from tests.conftest import need
from tests.support.operands import generator
from tests.support.traced_functions import Traced, commands_of, traced

F = dl.nn.functional


def _layer_norm(shape: tuple[int, ...], eps: float = 1e-5, other_eps: float = 1e-5) -> Traced:
    """The gradients of a layer norm, or of another one of the same input."""

    def function(x: Any, g: Any, weight: Any, bias: Any) -> Any:
        with dl.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in (x, weight, bias)]
            y = F.layer_norm(leaves[0], shape[-1:], leaves[1], leaves[2], eps)
            z = (
                y
                if other_eps == eps
                else F.layer_norm(leaves[0], shape[-1:], leaves[1], leaves[2], other_eps)
            )
        dx, dw, db = dl.grad([z], leaves, [g])
        return (dx * 0.5 - g) * dw + db + y.detach()

    rng = generator("row statistics", *shape)
    sizes = (shape, shape, shape[-1:], shape[-1:])
    return traced(function, *(rng.standard_normal(size, np.float32) for size in sizes))


def _saved() -> int:
    """Launches: the kernel with weight and bias binds four buffers without the statistics."""
    return int(dl.device("vulkan:0").info.limits.storage_buffers > 4)


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", [(37, 13), (3, 5, 12), (6, 260), (5, 131)])
def test_layer_norm(shape: tuple[int, ...]) -> None:
    need("vulkan:0")
    before = _layer_norm(shape)
    after = row_statistics(before.graph)
    assert commands_of(before.graph) - commands_of(after) == _saved()
    scale = np.abs(before.result).max()
    np.testing.assert_allclose(before.outcome(after), before.result, rtol=2e-6, atol=2e-6 * scale)
    fused = reduction_fusion(row_statistics(epilogues(before.graph)))
    assert commands_of(fused) < commands_of(before.graph)
    np.testing.assert_allclose(before.outcome(fused), before.result, rtol=2e-6, atol=2e-6 * scale)


@pytest.mark.vulkan
def test_other_statistics_stay() -> None:
    need("vulkan:0")
    before = _layer_norm((7, 13), other_eps=0.5)
    after = row_statistics(before.graph)
    assert commands_of(before.graph) - commands_of(after) == _saved()  # those of the second norm
    np.testing.assert_allclose(before.outcome(after), before.result, rtol=2e-6, atol=1e-5)
