"""One launch for all parameters does what one for each of them did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.ir.graph import (
    Binding,
    BoundFill,
    BoundLaunch,
    Graph,
    GraphBuffer,
    Kind,
    MultiTensorLaunch,
    Node,
    Operand,
    Value,
    VaryingWord,
)
from dl4all.graph.passes.fusion.optimizer_fusion import MOST_COPIED, STEP, optimizer_fusion
from dl4all.graph.run.multi_tensor_launches import expand
from dl4all.graph.tracing.recapture import Draft
from dl4all.ops.core.kernels.launch import ceil_div, pack
from dl4all.ops.core.kernels.multi_tensor import MultiTensor
from dl4all.ops.reduce.global_norm import SQUARES
from dl4all.optim.adam import ADAM, AMSGRAD
from dl4all.optim.ema import AVERAGE
from dl4all.scheduler.device.programs import Launch
from tests.support.graph_execution import Execution

RNG = np.random.default_rng(18)
DEVICE = "vulkan:0"
SIZES = (1, 7, 1024, 1025, 5003, 128, 3)
KERNELS: dict[str, tuple[Any, int, tuple[float, ...]]] = {
    "ema": (AVERAGE, 0, (0.1,)),
    "adam": (ADAM, 2, (1.0, 0.01, 1.0, 0.1, 0.99, 0.01, 0.001, 0.9, 1e-8)),
    "amsgrad": (AMSGRAD, 3, (-1.0, 0.0, 0.9, 0.1, 0.99, 0.01, 0.001, 0.9, 1e-8)),
}


class Updates:
    """The nodes of an optimizer's step, and what its buffers hold."""

    def __init__(self, kernel: str, sizes: tuple[int, ...] = SIZES, **options: Any) -> None:
        kernels, self.states, constants = KERNELS[kernel]
        self.shader, self.constants = kernels._single, constants
        self.buffers: dict[int, GraphBuffer] = {}
        self.contents: dict[int, Any] = {}
        self.nodes = [self.update(number, size, **options) for number, size in enumerate(sizes)]

    def buffer(self, words: int, kind: Kind = "captured") -> int:
        number = len(self.buffers)
        self.buffers[number] = GraphBuffer(number, 4 * words, kind)
        self.contents[number] = abs(RNG.standard_normal(words)).astype(np.float32)
        return number

    def update(self, number: int, size: int, varying: tuple[VaryingWord, ...] = ()) -> Node:
        """The gradient and the parameter begin at an offset."""
        gradient, parameter = self.buffer(size + number, "temporary"), self.buffer(size + 2 * number)
        used = [gradient, *([self.buffer(self.states * size)] if self.states else ()), parameter]
        push = pack(size, 2 * number, number, *self.constants)
        bindings = tuple(Binding(n, 0, self.buffers[n].nbytes) for n in used)
        writes = (False, *(True for _ in used[1:]))
        command = BoundLaunch(Launch(self.shader, (2, 1, 1), push), bindings, writes, varying)
        values = tuple(Value(n, 0) for n in used)
        return Node("update", reads=values, writes=tuple(Value(n, 1) for n in used[1:]), commands=(command,))

    def graph(self, *more: Node) -> Graph:
        return Graph(DEVICE, self.buffers, (*self.nodes, *more))


def launches(graph: Graph) -> list[MultiTensorLaunch]:
    found = (command for node in graph.nodes for command in node.commands)
    return [command for command in found if isinstance(command, MultiTensorLaunch)]


def assert_same(graph: Graph, fused: Graph, contents: dict[int, Any]) -> None:
    """That both leave the same in each buffer."""
    before, after = Execution(graph, contents), Execution(fused, contents)
    before.run()
    after.run()
    for number in fused.buffers:
        found, expected = after.contents(number), before.contents(number)
        np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("kernel", KERNELS)
def test_updates_are_the_same_bit_by_bit(kernel: str) -> None:
    updates = Updates(kernel)
    graph = updates.graph()
    fused = optimizer_fusion(graph)
    (node,) = fused.nodes
    assert node.parts == graph.nodes
    assert set(node.reads) == {value for part in graph.nodes for value in part.reads}
    assert set(node.writes) == {value for part in graph.nodes for value in part.writes}
    (launch,) = launches(fused)
    assert len(launch.jobs) == len(SIZES)
    assert_same(graph, fused, updates.contents)


def test_one_dispatch_for_tensors_of_few_buffers() -> None:
    updates = Updates("adam")
    (launch,) = launches(optimizer_fusion(updates.graph()))
    device = dl.device(DEVICE)
    memory = dl.zeros(300_000, device=device)
    starts = {number: 10_300 * number for number in updates.buffers}

    def side_by_side(binding: Binding) -> Any:
        return memory.strided_view((binding.nbytes // 4,), (1,), starts[binding.buffer] + binding.offset // 4)

    ((dispatch, storages),) = expand(launch, side_by_side, device, MultiTensor())
    assert dispatch.groups == (sum(ceil_div(size, 1024) for size in SIZES), 1, 1)
    assert [storage.buffer for storage in storages[1:]] == [memory.storage.buffer] * 3


def test_varying_words_follow_the_rows() -> None:
    word = VaryingWord(12 + 4 * 6, 0, 6)
    updates = Updates("adam", varying=(word,))
    (launch,) = launches(optimizer_fusion(updates.graph()))
    assert launch.varying == (word._replace(offset=4 * 6),)
    first, second, *_ = updates.nodes
    other = updates.update(1, 5, (word._replace(source=1),))
    apart = Graph(
        DEVICE, updates.buffers, (first, second, other, updates.update(2, 5, (word._replace(source=1),)))
    )
    assert [len(launch.jobs) for launch in launches(optimizer_fusion(apart))] == [2, 2]


def test_words_that_vary_do_not_keep_updates_apart() -> None:
    updates = Updates("adam", (5, 7), varying=(VaryingWord(12 + 4 * 6, 0, 6),))
    first, second = updates.nodes
    command: Any = second.commands[0]
    push = bytearray(command.launch.push)
    push[36:40] = pack(0.25)
    second = replace(second, commands=(replace(command, launch=replace(command.launch, push=bytes(push))),))
    assert len(launches(optimizer_fusion(Graph(DEVICE, updates.buffers, (first, second))))) == 1


def test_other_constants_are_another_launch() -> None:
    updates = Updates("ema", (5, 7, 9, 11))
    updates.constants = (0.5,)
    more = [updates.update(number, 13) for number in range(2)]
    graph = updates.graph(*more)
    fused = optimizer_fusion(graph)
    assert [len(launch.jobs) for launch in launches(fused)] == [4, 2]
    assert_same(graph, fused, updates.contents)


def test_one_update_stays_as_it_is() -> None:
    graph = Updates("adam", (5,)).graph()
    assert optimizer_fusion(graph) is graph


def test_what_runs_between_keeps_its_place() -> None:
    updates = Updates("ema", (5, 7, 9, 11))
    parameter = updates.nodes[0].writes[0].buffer

    def fill(number: int) -> Node:
        nbytes = updates.buffers[number].nbytes
        return Node("fill", writes=(Value(number, 2),), commands=(BoundFill(Binding(number, 0, nbytes), 0),))

    free = updates.buffer(3, "temporary")
    first, second, *rest = updates.nodes
    apart = Graph(DEVICE, updates.buffers, (first, second, fill(free), *rest))
    fused = optimizer_fusion(apart)
    assert [node.name for node in fused.nodes] == ["fill", "update of 4 tensors"]
    assert_same(apart, fused, updates.contents)
    dependent = Graph(DEVICE, updates.buffers, (first, second, fill(parameter), *rest))
    fused = optimizer_fusion(dependent)
    assert [node.name for node in fused.nodes] == ["update of 2 tensors", "fill", "update of 2 tensors"]
    assert_same(dependent, fused, updates.contents)


def test_two_updates_of_one_parameter_follow_each_other() -> None:
    updates = Updates("ema", (5, 7))
    twice = (*updates.nodes, *updates.nodes)
    graph = Graph(DEVICE, updates.buffers, twice)
    fused = optimizer_fusion(graph)
    assert [len(launch.jobs) for launch in launches(fused)] == [2, 2]
    assert_same(graph, fused, updates.contents)


# Gradient clipping


def squares(updates: Updates, sizes: tuple[int, ...], *, offset: int = 0) -> tuple[Node, ...]:
    """Nodes that leave partial sums of squares in one buffer."""
    counts = [ceil_div(size, STEP) for size in sizes]
    sums = updates.buffer(sum(counts), "temporary")
    nodes, start = list[Node](), 0
    for size, count in zip(sizes, counts, strict=True):
        tensor = updates.buffer(size + offset, "temporary")
        bindings = tuple(Binding(n, 0, updates.buffers[n].nbytes) for n in (tensor, sums))
        push = pack(size, offset, start)
        command = BoundLaunch(Launch(SQUARES, (count, 1, 1), push), bindings, (False, True))
        reads = (Value(tensor, 0), Value(sums, len(nodes)))
        nodes.append(Node("squares", reads=reads, writes=(Value(sums, len(nodes) + 1),), commands=(command,)))
        start += count
    return tuple(nodes)


@pytest.mark.parametrize("sizes", [(1, STEP, 130, 4095, 17), (3 * STEP + 5, 1, 2 * STEP)])
def test_sums_of_squares(sizes: tuple[int, ...]) -> None:
    """Which sum comes where depends on the memory, and the elements of each on the size of the tensor."""
    updates = Updates("ema", ())
    graph = updates.graph(*squares(updates, sizes, offset=3))
    fused = optimizer_fusion(graph)
    assert [len(launch.jobs) for launch in launches(fused)] == [len(sizes)]
    before, after = Execution(graph, updates.contents), Execution(fused, updates.contents)
    before.run()
    after.run()
    found, expected = np.sort(after.contents(0)), np.sort(before.contents(0))
    if max(sizes) <= STEP:
        np.testing.assert_array_equal(found, expected)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(), expected.sum(), rtol=1e-6)


def test_sums_that_leave_a_gap_stay() -> None:
    updates = Updates("ema", ())
    first, _, third = squares(updates, (5, 6, 7))
    graph = updates.graph(first, third)
    assert optimizer_fusion(graph) is graph


def test_scaling_by_a_tensor() -> None:
    updates = Updates("ema", ())
    factor = Operand(Value(updates.buffer(1), 0), (), "float32", ())
    draft = Draft(updates.graph())
    nodes = []
    for size in (5, 1030, 8):
        number = updates.buffer(size, "state")
        draft = Draft(updates.graph())
        x = Operand(Value(number, 0), (size,), "float32", (1,))
        nodes.append(draft.node("mul", (x, factor), result=replace(x, value=Value(number, 1))))
    graph = updates.graph(*nodes)
    fused = optimizer_fusion(graph)
    (launch,) = launches(fused)
    assert launch.before == (Binding(0, 0, 4),)
    assert len(launch.jobs) == 3
    assert_same(graph, fused, updates.contents)


def test_other_products_stay() -> None:
    updates = Updates("ema", ())
    numbers = [updates.buffer(size) for size in (1, 6, 6)]
    factor, x, y = (
        Operand(Value(n, 0), (size,), "float32", (1,)) for n, size in zip(numbers, (1, 6, 6), strict=True)
    )
    draft = Draft(updates.graph())
    nodes = [
        draft.node("mul", (x, factor)),  # to new memory
        draft.node("mul", (x, y), result=replace(x, value=Value(1, 1))),
        draft.node("add", (y, factor), result=replace(y, value=Value(2, 1))),
        draft.node("mul", (x, 2.0), result=replace(x, value=Value(1, 2))),
    ]
    graph = Graph(DEVICE, draft.buffers, tuple(nodes))
    assert optimizer_fusion(graph) is graph


def test_copies_to_memory_that_lasts() -> None:
    updates = Updates("ema", ())
    shared = updates.buffer(40, "temporary")
    nodes = []
    for first, size in ((5, 7), (12, 1), (13, 27)):
        target = updates.buffer(size, "state")
        source = Operand(Value(shared, 0), (size,), "float32", (1,), first)
        result = Operand(Value(target, 1), (size,), "float32", (1,))
        nodes.append(Draft(updates.graph()).node("clone", (source,), result=result))
    graph = updates.graph(*nodes)
    fused = optimizer_fusion(graph)
    assert [len(launch.jobs) for launch in launches(fused)] == [3]
    assert_same(graph, fused, updates.contents)


def test_other_copies_stay() -> None:
    updates = Updates("ema", ())
    source = Operand(Value(updates.buffer(12, "temporary"), 0), (3, 4), "float32", (4, 1))
    large = Operand(Value(updates.buffer(MOST_COPIED + 1), 0), (MOST_COPIED + 1,), "float32", (1,))
    targets = [updates.buffer(12, "state") for _ in range(2)]
    large_targets = [updates.buffer(MOST_COPIED + 1, "state") for _ in range(2)]
    draft = Draft(updates.graph())
    turned = replace(source, shape=(4, 3), strides=(1, 4))
    nodes = [
        *(draft.node("clone", (source,)) for _ in range(2)),  # to temporaries
        *(
            draft.node("clone", (turned,), result=Operand(Value(n, 1), (4, 3), "float32", (3, 1)))
            for n in targets
        ),
        *(draft.node("clone", (large,), result=replace(large, value=Value(n, 1))) for n in large_targets),
    ]
    graph = Graph(DEVICE, draft.buffers, tuple(nodes))
    assert optimizer_fusion(graph) is graph


def test_the_host_keeps_its_own_commands() -> None:
    buffers = {n: GraphBuffer(n, 24, "captured") for n in range(3)} | {3: GraphBuffer(3, 4, "captured")}
    factor = Operand(Value(3, 0), (), "float32", ())
    draft = Draft(Graph("cpu", buffers, ()))
    nodes = []
    for number in range(3):
        x = Operand(Value(number, 0), (6,), "float32", (1,))
        nodes.append(draft.node("mul", (x, factor), result=replace(x, value=Value(number, 1))))
    graph = Graph("cpu", draft.buffers, tuple(nodes))
    assert optimizer_fusion(graph) is graph
