"""Passes on graphs of real calls: inference with batch normalisation, and whole steps of training."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

import dl4all as dl
from dl4all.graph.ir.graph import Graph, MultiTensorLaunch
from dl4all.graph.passes.fusion.batch_norm_folding import batch_norm_folding
from dl4all.graph.passes.fusion.optimizer_fusion import optimizer_fusion
from dl4all.graph.passes.preamble import preamble
from dl4all.nn import functional as F
from tests.support.graph_execution import Execution, traced

DEVICE = "vulkan:0"


def ops(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes)


def randomized(module: Any) -> Any:
    """A network whose statistics and shifts are not the initial ones."""
    rng = np.random.default_rng(18)
    state = {
        name: (0.5 + rng.random(value.shape) * (0.1 if value.ndim > 1 else 1)).astype(np.float32)
        for name, value in module.state_dict().items()
        if "bn" in name and value.ndim
    }
    module.load_state_dict({**module.state_dict(), **state})
    return module.to(DEVICE)


def test_resnet_in_inference() -> None:
    net = randomized(dl.models.resnet18(10, base_channels=16)).eval()
    x = dl.randn(1, 3, 64, 64, device=DEVICE)
    with dl.no_grad():
        graph, contents = traced(net, x)
        expected = net(x).numpy()
    moved = preamble(batch_norm_folding(graph))
    assert ops(moved)["batch_norm_apply"] == 0
    assert ops(moved)["conv2d"] == 20
    assert len(moved.nodes) == 48
    assert {moved.buffers[n].kind for n in (v.buffer for p in moved.preamble for v in p.writes)} == {
        "derived",
        "temporary",
    }
    execution = Execution(moved, contents)
    execution.run(moved.preamble)
    for _ in range(2):
        execution.run(moved.nodes)
    found = execution.contents(moved.outputs[0].value.buffer).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * abs(expected).max())


def test_resnet_in_training_keeps_its_statistics() -> None:
    net = randomized(dl.models.resnet18(10, base_channels=8)).train()
    with dl.no_grad():
        graph, _ = traced(net, dl.randn(2, 3, 32, 32, device=DEVICE))
    assert batch_norm_folding(graph) is graph


def test_a_step_of_training() -> None:
    net = randomized(dl.models.resnet18(10, base_channels=8))
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.01)
    ema = dl.optim.EMA(net.parameters())

    def step(x: dl.Tensor, target: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), target)
        loss.backward()
        dl.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        ema.update()
        return loss.detach()

    x, target = dl.randn(2, 3, 32, 32, device=DEVICE), dl.tensor([1, 3], device=DEVICE)
    step(x, target)
    graph, contents = traced(step, x, target)
    fused = optimizer_fusion(graph)
    parameters = len(list(net.parameters()))
    merged = [node for node in fused.nodes if isinstance(node.commands[0], MultiTensorLaunch)]
    norms = 20  # whose two gradients share memory, until one is copied
    assert [len(node.parts) for node in merged] == [norms, *[parameters] * 4]  # squares, scaling, AdamW, EMA
    before, after = Execution(graph, contents), Execution(fused, contents)
    before.run()
    after.run()
    for value in graph.kept:
        if graph.buffers[value.buffer].kind in ("captured", "state", "output"):
            found, expected = after.contents(value.buffer), before.contents(value.buffer)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_folded_filters_follow_changes_of_what_they_are_made_of(device: str) -> None:
    net = dl.nn.Sequential(dl.nn.Conv2d(3, 5, 3), dl.nn.BatchNorm2d(5), dl.nn.ReLU()).to(device).eval()
    compiled = dl.compile(net)
    x = dl.randn(2, 3, 19, 17, device=device)
    with dl.no_grad():
        for change in (None, None, None, net[1].running_var, net[1].weight, net[0].weight, net[0].bias, None):
            if change is not None:
                change.mul_(1.5)
            expected = net(x).numpy()
            np.testing.assert_allclose(compiled(x).numpy(), expected, rtol=1e-5, atol=1e-5)
    [[specialization]] = compiled.specializations.values()
    folds = "batch_norm_folding" in specialization.graph.notes
    assert folds == (device != "cpu")  # whose results are those of immediate mode, bit by bit
