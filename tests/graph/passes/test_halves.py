"""Elementwise nodes of 16 bits in the kernels before and behind them: the same bits as one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.codegen.elementwise_kernel import HALVES
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.fusion.elementwise_fusion import elementwise_fusion
from dl4all.graph.passes.fusion.epilogues import epilogues
from dl4all.graph.passes.fusion.reduction_fusion import reduction_fusion
from dl4all.graph.tracing.trace import trace
from tests.conftest import need
from tests.graph.replay import replay, same_bits
from tests.support.operands import generator, numbers

pytestmark = pytest.mark.vulkan
NAME = "vulkan:0"
F = dl.nn.functional

# h and g are of 16 bits, w is a matrix of them, b a row; f is float32.
FUNCTIONS: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "gelu of a linear layer": (lambda h, g, w, b, f: F.gelu(F.linear(h, w, b)), ["linear_gelu_exact"]),
    "relu, which rounds nothing": (lambda h, g, w, b, f: F.linear(h, w, b).relu(), ["linear_relu"]),
    "residual of float32": (lambda h, g, w, b, f: f + F.linear(h, w, b), ["linear_add"]),
    "residual of 16 bits": (lambda h, g, w, b, f: F.linear(h, w) * g - b, ["linear_mul_sub"]),
    "gradient as float32": (lambda h, g, w, b, f: (h.T @ g).float() * 0.5, ["matmul_cast_mul"]),
    "a product of float32": (lambda h, g, w, b, f: (f @ f.T).to(h.dtype), ["matmul_cast"]),
    "normalised": (lambda h, g, w, b, f: F.layer_norm(f, (12,)).to(h.dtype), ["grouped_norm_cast"]),
    "normalisation of": (
        lambda h, g, w, b, f: F.layer_norm((h * g).float(), (12,)),
        ["mul", "cast_grouped_norm"],
    ),
    "softmax": (lambda h, g, w, b, f: (h * 0.3 + g).softmax(1) * g, ["fused_mul_add", "softmax_mul"]),
    "sums": (lambda h, g, w, b, f: (h * g).sum(1) + 1.0, ["mul_sum_add"]),
    "sums as float32": (lambda h, g, w, b, f: (h * f).sum(0), ["mul_sum"]),
    "convolution": (
        lambda h, g, w, b, f: F.conv2d(
            h.view(1, 2, 5, 12), w.view(6, 2, 3, 4)[:, :, :3, :3], padding=1
        ).relu(),
        ["conv2d_relu"],
    ),
    "several": (
        lambda h, g, w, b, f: (F.silu(F.linear(h, w)) * g).float() * f,
        ["linear_silu_mul_cast_mul"],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", HALVES)
def test_the_bits_are_the_same(name: str, dtype: str) -> None:
    need(NAME)
    function, wanted = FUNCTIONS[name]
    rng = generator("halves", name)
    shapes = ((10, 12), (10, 12), (12, 12), (12,), (10, 12))
    arrays = [numbers(rng, shape) for shape in shapes]
    tensors = [dl.tensor(a, device=NAME).to(dtype if i < 4 else "float32") for i, a in enumerate(arrays)]
    graph = trace(function, *tensors)
    merged = elementwise_fusion(reduction_fusion(epilogues(graph)))
    verify(merged)
    device = dl.device(NAME)
    if "storage16" in device.features and device.info.limits.storage_buffers >= 8:
        assert [node.name for node in merged.nodes if node.op != "clone"] == wanted
    same_bits(replay(merged, *tensors), replay(graph, *tensors))


@pytest.mark.parametrize("dtype", HALVES)
def test_steps_of_mixed_precision_are_compiled_to_the_same_losses(dtype: str) -> None:
    """A network whose layers are products, norms, activations and residual sums of both dtypes."""
    need(NAME)

    class Block(dl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = dl.nn.LayerNorm(16), dl.nn.Linear(16, 32), dl.nn.Linear(32, 16)

        def forward(self, x: dl.Tensor) -> dl.Tensor:
            changed: dl.Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
            return changed

    rng = generator("steps")
    x, y = dl.tensor(numbers(rng, (9, 16)), device=NAME), dl.tensor(np.arange(9) % 4, device=NAME)

    def losses(*, compiled: bool) -> list[float]:
        dl.manual_seed(3)
        net = dl.nn.Sequential(Block(), Block(), dl.nn.Dropout(0.1), dl.nn.Linear(16, 4)).to(NAME)
        optimizer = dl.optim.AdamW(net.parameters(), lr=1e-2)

        def step() -> dl.Tensor:
            optimizer.zero_grad()
            with dl.autocast("vulkan", dtype=dtype):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = dl.compile(step) if compiled else step
        return [run().item() for _ in range(6)]

    wanted = losses(compiled=False)
    assert losses(compiled=True) == pytest.approx(wanted, rel=2e-3)
    assert wanted[-1] < wanted[0]
