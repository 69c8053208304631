"""Work of the host: immediate runs, and what a capture is told of it."""

from __future__ import annotations

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.graph.ir.graph import Graph, HostCall
from dl4all.graph.tracing.trace import trace
from dl4all.ops.core.kernels.host_work import BodyCall, HostWork, host_work


def commands(graph: Graph) -> list[HostCall]:
    found = [command for node in graph.nodes for command in node.commands]
    assert all(isinstance(command, HostCall) for command in found)
    return found  # type: ignore[return-value]


def test_work_runs_at_once_on_the_memory_of_tensors() -> None:
    x, y = dl.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu"), dl.zeros(2, 2, device="cpu")
    host_work("halve", lambda x, y, factor: np.multiply(x, factor, out=y), [x.T], [y], [0.5])
    assert y.tolist() == [[0.5, 1.5], [1.0, 2.0]]


def test_captured_work_runs_again_on_other_memory() -> None:
    x = dl.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device="cpu")
    [command] = commands(trace(lambda x: x[:, 1:].T + 1.0, x))
    assert isinstance(command.run, HostWork)
    assert isinstance(command.run.function, BodyCall)
    out = np.zeros((3, 2), np.float32)
    memory = np.arange(10, 16, dtype=np.float32).view(np.uint8)
    source, target = command.bindings
    command.run(memory[source.offset :][: source.nbytes], out.reshape(-1).view(np.uint8)[: target.nbytes])
    assert out.reshape(-1)[:4].tolist() == [12.0, 15.0, 13.0, 16.0]


def test_indices_are_operands_of_captured_calls_and_are_checked_when_they_run() -> None:
    table, index = dl.randn(5, 3, device="cpu"), dl.tensor([4, 0, 1], device="cpu")
    check, take = commands(trace(lambda t, i: dl.nn.functional.embedding(i, t), table, index))
    assert (check.name, take.name) == ("check_indices", "take_rows")
    assert check.bindings[1] == take.bindings[1]
    places = np.zeros(3, np.int32)
    memory = places.view(np.uint8)
    check.run(np.array([2, 3, 0]).view(np.uint8), memory)
    assert places.tolist() == [2, 3, 0]
    with pytest.raises(ArgumentError, match="index 5 is out of range"):
        check.run(np.array([2, 5, 0]).view(np.uint8), memory)


def test_random_numbers_and_steps_are_marked() -> None:
    layer = dl.nn.Linear(4, 3).to("cpu")
    optimizer = dl.optim.Adam(layer.parameters())

    def step(x: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        loss = dl.nn.functional.dropout(layer(x), 0.5).sum()
        loss.backward()
        optimizer.step()
        return loss

    x = dl.randn(2, 4, device="cpu")
    step(x)
    graph = trace(step, x)
    marked = {c.name: {mark.source for mark in c.run.marks} for c in commands(graph) if c.run.marks}  # type: ignore[attr-defined]
    assert [graph.sources[source] for source in marked["random_dropout"]] == ["random"]
    assert [graph.sources[source] for source in marked["Adam"]] == ["Adam"]


def test_reading_elements_in_another_way_is_refused() -> None:
    with pytest.raises(ArgumentError, match="reads elements of a tensor on the host"):
        trace(lambda x: x * float(x.sum()), dl.ones(3, device="cpu"))


def test_contents_that_the_cpu_makes_for_another_device_are_its_constants() -> None:
    def call(x: dl.Tensor) -> dl.Tensor:
        return x + dl.full((3,), 7, dtype="int32", device=x.device)

    graph = trace(call, dl.ones(3, dtype="int32", device="null:0"))
    assert [node.op for node in graph.nodes if node.op] == ["add"]
    with pytest.raises(ArgumentError, match="uses a second device, cpu"):
        trace(lambda x: x + dl.ones(3, device="cpu").exp().to(x.device), dl.ones(3, device="null:0"))
