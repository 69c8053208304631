"""Graphs of training steps as programs, against the kernels that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.graph.ir.graph import Binding, BoundFill, BoundLaunch, Graph, Node, Value, VaryingWord
from dl4all.graph.ir.verifier import verify
from dl4all.graph.op_codes.disassembler import disassemble
from dl4all.graph.op_codes.elementwise_rules import RULES
from dl4all.graph.op_codes.instruction import words_of
from dl4all.graph.op_codes.interpreter import VARIANTS, InterpreterVariant, variant_for
from dl4all.graph.op_codes.op_rules import OPS
from dl4all.graph.op_codes.simulator import steps
from dl4all.graph.op_codes.translator import Lowered, lower
from dl4all.graph.passes.fusion.optimizer_fusion import optimizer_fusion
from dl4all.graph.tracing.trace import trace
from dl4all.nn import functional as F
from dl4all.ops import REGISTRY
from tests.conftest import need
from tests.support.graph_execution import Execution

Array = npt.NDArray[Any]
Function = Callable[..., Any]


def _tensor(*shape: int, seed: int = 0) -> dl.Tensor:
    values = np.random.default_rng(seed).uniform(0.1, 1, shape).astype(np.float32)
    return dl.tensor(values, device="vulkan:0")


def _contents(graph: Graph, classes: int) -> dict[int, Array]:
    """Something for every buffer that is there before a call."""
    rng = np.random.default_rng(1)
    found: dict[int, Array] = {}
    for number, buffer in graph.buffers.items():
        if buffer.kind in ("input", "captured"):
            found[number] = rng.uniform(0.1, 1, buffer.nbytes // 4).astype(np.float32)
    for node in graph.nodes:
        if node.name == "indexing/check_indices.comp":
            [command] = node.commands
            source, noted, _ = command.bindings  # type: ignore[union-attr]
            found[source.buffer] = rng.integers(0, classes, graph.buffers[source.buffer].nbytes // 8)
            found[noted.buffer] = np.zeros(graph.buffers[noted.buffer].nbytes, np.uint8)
    return found


def check(
    graph: Graph,
    variant: InterpreterVariant | None = None,
    *,
    classes: int = 10,
    rtol: float = 2e-5,
    runs: int = 2,
) -> Lowered:
    """Compare what a graph and its programs leave in every buffer that anybody sees."""
    lowered = lower(graph, variant or variant_for(dl.device(graph.device).info))
    verify(lowered.graph)
    contents = _contents(graph, classes)
    expected, got = Execution(graph, contents), Execution(lowered.graph, contents)
    for _ in range(runs):
        expected.run()
        got.run()
    seen = {value.buffer for value in graph.kept} | {operand.value.buffer for operand in graph.outputs}
    assert seen
    for number in sorted(seen):
        np.testing.assert_allclose(
            got.contents(number), expected.contents(number), rtol, 2e-6, err_msg=str(graph.buffers[number])
        )
    return lowered


def _training(loss: Function, activation: dl.nn.Module, optimizer: Function) -> Function:
    dl.manual_seed(0)
    model = dl.nn.Sequential(dl.nn.Linear(3, 7), activation, dl.nn.Linear(7, 5)).to("vulkan:0")
    steps_of_training = optimizer(model.parameters())

    def step(x: dl.Tensor, target: dl.Tensor) -> dl.Tensor:
        steps_of_training.zero_grad()
        result = loss(model(x), target)
        result.backward()
        steps_of_training.step()
        return result  # type: ignore[no-any-return]

    return step


OPTIMIZERS: dict[str, Function] = {
    "sgd": lambda p: dl.optim.SGD(p, lr=0.1),
    "sgd maximize decay": lambda p: dl.optim.SGD(p, lr=0.1, weight_decay=0.3, maximize=True),
    "sgd momentum": lambda p: dl.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2),
    "sgd nesterov": lambda p: dl.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: dl.optim.Adam(p, lr=1e-2),
    "adamw": lambda p: dl.optim.AdamW(p, lr=1e-2, weight_decay=0.2),
    "amsgrad": lambda p: dl.optim.Adam(p, lr=1e-2, amsgrad=True),
    "rmsprop": lambda p: dl.optim.RMSprop(p, lr=1e-2),
    "rmsprop centered momentum": lambda p: dl.optim.RMSprop(p, lr=1e-2, centered=True, momentum=0.5),
    "adagrad": lambda p: dl.optim.Adagrad(p, lr=0.1, weight_decay=0.1),
    "adadelta": lambda p: dl.optim.Adadelta(p),
    "adamax": lambda p: dl.optim.Adamax(p, lr=1e-2),
    "nadam": lambda p: dl.optim.NAdam(p, lr=1e-2),
    "radam": lambda p: dl.optim.RAdam(p, lr=1e-2),
    "asgd": lambda p: dl.optim.ASGD(p, lr=0.1),
    "rprop": lambda p: dl.optim.Rprop(p, lr=1e-2),
}


@pytest.mark.vulkan
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step(name: str) -> None:
    need("vulkan:0")
    step = _training(F.mse_loss, dl.nn.Tanh(), OPTIMIZERS[name])
    x, y = _tensor(4, 3), _tensor(4, 5, seed=1)
    step(x, y)
    lowered = check(trace(step, x, y))
    assert not lowered.reasons
    [node] = lowered.graph.nodes
    assert len(node.parts) >= 18
    reach = variant_for(dl.device("vulkan:0").info).buffers
    assert len(node.commands) < len(node.parts) * (0.3 if reach == 6 else 0.7)


@pytest.mark.vulkan
def test_a_rule_without_an_instruction_stays_a_kernel() -> None:
    need("vulkan:0")
    step = _training(F.mse_loss, dl.nn.Tanh(), lambda p: dl.optim.Lion(p, lr=1e-2))
    x, y = _tensor(4, 3), _tensor(4, 5, seed=1)
    step(x, y)
    assert any("is_nan" in reason for reason in check(trace(step, x, y)).reasons.values())


@pytest.mark.vulkan
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_interpreter(variant: InterpreterVariant) -> None:
    need("vulkan:0")
    if variant.buffers > dl.device("vulkan:0").info.limits.storage_buffers - 2:
        pytest.skip("the device binds fewer buffers")
    step = _training(F.mse_loss, dl.nn.ReLU(), OPTIMIZERS["adam"])
    x, y = _tensor(9, 3), _tensor(9, 5, seed=1)
    step(x, y)
    [node] = check(trace(step, x, y), variant).graph.nodes
    for command in node.commands:
        assert len({binding.buffer for binding in command.bindings}) <= 2 + variant.buffers  # type: ignore[union-attr]


@pytest.mark.vulkan
def test_a_classifier() -> None:
    """The check of the targets is no instruction; all else is one program behind it."""
    need("vulkan:0")
    step = _training(F.cross_entropy, dl.nn.ReLU(), OPTIMIZERS["sgd"])
    target = dl.tensor(np.array([0, 4, 2, 2, 1, 3]), device="vulkan:0")
    x = _tensor(6, 3)
    step(x, target)
    lowered = check(trace(step, x, target), classes=5)
    assert [node.name for node in lowered.graph.nodes] == ["indexing/check_indices.comp", "op codes"]
    assert list(lowered.reasons.values()) == ["is the command indexing/check_indices.comp"]


@pytest.mark.vulkan
def test_targets_that_do_not_count() -> None:
    need("vulkan:0")
    step = _training(lambda x, t: F.cross_entropy(x, t, ignore_index=3), dl.nn.ReLU(), OPTIMIZERS["sgd"])
    target = dl.tensor(np.array([0, 3, 2, 3, 1, 3]), device="vulkan:0")
    x = _tensor(6, 3)
    step(x, target)
    check(trace(step, x, target), classes=5)


@pytest.mark.vulkan
@pytest.mark.parametrize("name", RULES)
def test_every_elementwise_rule(name: str) -> None:
    """With an operand that is transposed, one that broadcasts, and negative elements."""
    need("vulkan:0")
    op = REGISTRY[name]
    count = len(op.arrays)
    signed = name not in ("log", "log1p", "sqrt", "rsqrt", "pow", "true_divide", "addcdiv")

    def call(*tensors: dl.Tensor) -> tuple[dl.Tensor, ...]:
        moved = [t - 0.5 if signed else t for t in tensors]
        first = op(*moved)
        turned = op(*[t.T for t in moved])
        return first, turned, op(first, *moved[1:]) + 0

    lowered = check(trace(call, *(_tensor(5, 13, seed=seed) for seed in range(count))), rtol=1e-4)
    assert not lowered.reasons
    if count > 1:

        def repeat(*tensors: dl.Tensor) -> tuple[dl.Tensor, ...]:
            return op(*tensors), op(*tensors[1:], tensors[0])

        shapes = ((5, 13), (13,), (5, 1))[:count]
        assert not check(trace(repeat, *(_tensor(*shape) for shape in shapes)), rtol=1e-4).reasons


@pytest.mark.vulkan
def test_arguments_and_numbers() -> None:
    need("vulkan:0")

    def call(x: dl.Tensor, y: dl.Tensor) -> tuple[dl.Tensor, ...]:
        return (
            dl.add(x, y, alpha=0.5),
            dl.sub(x, 2.0, alpha=3),
            2.0 / x,
            dl.ops.addcmul(x, y, y, value=-0.25),
            F.leaky_relu(x - 0.5, 0.3),
            x**2.5,
        )

    assert not check(trace(call, _tensor(3, 7), _tensor(3, 7, seed=1))).reasons


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", [(7,), (5, 13), (3, 5, 7)], ids=str)
def test_reductions(shape: tuple[int, ...]) -> None:
    need("vulkan:0")

    def call(x: dl.Tensor) -> tuple[dl.Tensor, ...]:
        last = len(shape) - 1
        found = [x.sum(), x.mean(), x.sum(-1), x.mean(0), x.sum(0, keepdim=True), x.mean(last, keepdim=True)]
        found += [x.softmax(-1), x.log_softmax(0), x.softmax(0), dl.ops.sum_to(x, shape[-1:])]
        return tuple(found)

    assert not check(trace(call, _tensor(*shape))).reasons


@pytest.mark.vulkan
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_rows_of_operands_with_strides_of_their_own(dim: int) -> None:
    need("vulkan:0")

    def call(x: dl.Tensor) -> tuple[dl.Tensor, ...]:
        turned = x.permute(2, 0, 1)
        soft = turned.softmax(dim)
        return soft, turned.sum(dim), turned.mean(dim), dl.ops.softmax_backward(x, soft.permute(1, 2, 0), dim)

    lowered = check(trace(call, _tensor(3, 5, 7)))
    assert not lowered.reasons


@pytest.mark.vulkan
@pytest.mark.parametrize("name", ["softmax_backward", "log_softmax_backward"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gradients_of_softmax(name: str, dim: int) -> None:
    need("vulkan:0")
    graph = trace(lambda g, y: REGISTRY[name](g, y, dim=dim), _tensor(3, 5, 7), _tensor(3, 5, 7, seed=1))
    assert not check(graph).reasons


@pytest.mark.vulkan
def test_products() -> None:
    need("vulkan:0")

    def call(x: dl.Tensor, w: dl.Tensor, b: dl.Tensor, batch: dl.Tensor) -> tuple[dl.Tensor, ...]:
        return (
            x @ w.T,
            F.linear(x, w, b),
            F.linear(x, w),
            x.T @ x,
            batch @ batch.transpose(1, 2),
            F.linear(batch, w, b),
            batch @ w.T,
        )

    tensors = _tensor(5, 13), _tensor(3, 13, seed=1), _tensor(3, seed=2), _tensor(2, 5, 13, seed=3)
    assert not check(trace(call, *tensors)).reasons


@pytest.mark.vulkan
def test_what_has_no_instructions_stays() -> None:
    """Nodes around one that stays become two programs, which share memory outside."""
    need("vulkan:0")

    def call(x: dl.Tensor) -> dl.Tensor:
        y = (x * 2 + 1).tanh()
        return (y.cumsum(0) * y).relu().sum()

    lowered = check(trace(call, _tensor(7, 5)))
    assert [node.op or node.name for node in lowered.graph.nodes] == ["op codes", "cumsum", "op codes"]
    assert list(lowered.reasons.values()) == ["is the op cumsum"]
    nothing = trace(lambda x: x.cumsum(0), _tensor(3))
    assert lower(nothing, VARIANTS[0]).graph == nothing
    integers = trace(lambda x: (x + 1) * 2, dl.tensor(np.arange(4, dtype=np.int32), device="vulkan:0"))
    assert set(lower(integers, VARIANTS[0]).reasons.values()) == {"computes with other elements than float32"}


@pytest.mark.vulkan
def test_a_tensor_that_is_changed_in_place() -> None:
    need("vulkan:0")
    state = _tensor(5, 3, seed=4)

    def call(x: dl.Tensor) -> dl.Tensor:
        state.mul_(0.5)
        state.add_(x)
        state[1:3].add_(1)
        return (state * 2).sum()

    check(trace(call, _tensor(5, 3)), runs=3)


@pytest.mark.vulkan
@pytest.mark.parametrize("name", ["sgd momentum", "adam"])
def test_launches_for_many_parameters(name: str) -> None:
    """What the optimizers' steps became in a pass is taken apart like the steps."""
    need("vulkan:0")
    step = _training(F.mse_loss, dl.nn.Tanh(), OPTIMIZERS[name])
    x, y = _tensor(4, 3), _tensor(4, 5, seed=1)
    step(x, y)
    graph = trace(step, x, y)
    [node] = check(replace(graph, nodes=optimizer_fusion(graph).nodes)).graph.nodes
    assert node.parts[-1].name.endswith("of 4 tensors")


@pytest.mark.vulkan
def test_a_parameter_that_is_a_part_of_its_memory() -> None:
    need("vulkan:0")
    both = _tensor(8)
    [half, _] = both.split(4)
    half = half.detach().requires_grad_()
    optimizer = dl.optim.SGD([half], lr=0.1)

    def step(x: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        loss = (half * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    x = _tensor(4, seed=3)
    step(x)
    assert "updates a part of a tensor" in check(trace(step, x)).reasons.values()


@pytest.mark.vulkan
def test_what_is_not_written_of_a_tensor_stays() -> None:
    need("vulkan:0")
    graph = trace(lambda x: x.tanh(), _tensor(8))
    [tanh] = graph.nodes
    assert tanh.result is not None
    number = tanh.result.value.buffer
    part = replace(tanh, operands=(replace(tanh.tensors[0], shape=(3,)),))
    part = replace(part, result=replace(tanh.result, shape=(3,), offset=2))
    fill = Node("fill", writes=(Value(number, 1),), commands=(BoundFill(Binding(number, 0, 8), 0x3F800000),))
    program = lower(replace(graph, nodes=(fill, part)), VARIANTS[2]).programs[0]
    text = disassemble(words_of(program)).splitlines()
    assert [line for line in text if line.startswith("load")] == ["load r0, b0", "load r1, b1"]


@pytest.mark.vulkan
def test_the_simulator_runs_the_same_program() -> None:
    """All of a program in NumPy, with the tensors outside as the dispatches bind them."""
    need("vulkan:0")
    graph = trace(lambda x, y: ((x @ y).tanh() * 2, x.sum(0)), _tensor(3, 5), _tensor(5, 2, seed=1))
    lowered = lower(graph, VARIANTS[2])
    [node], [program] = lowered.graph.nodes, lowered.programs
    [command] = node.commands
    contents = _contents(graph, 0)
    names = [binding.buffer for binding in command.bindings[2:]]  # type: ignore[union-attr]
    buffers = [contents.get(number, np.zeros(256, np.float32)) for number in names]
    arena = np.zeros(command.bindings[1].nbytes // 4, np.float32)  # type: ignore[union-attr]
    trail = list(steps(words_of(program), arena, buffers))
    assert len(trail) == len(program.instructions)
    x, y = (contents[number] for number in graph.inputs)
    product, total = (buffers[names.index(operand.value.buffer)] for operand in graph.outputs)
    expected = np.tanh(x.reshape(3, 5) @ y.reshape(5, 2)) * 2
    np.testing.assert_allclose(product[:6], expected.reshape(-1), 1e-5)
    np.testing.assert_allclose(total[:5], x.reshape(3, 5).sum(0), 1e-5)


@pytest.mark.vulkan
def test_numbers_that_change_from_call_to_call_do_not_become_constants() -> None:
    need("vulkan:0")
    graph = trace(lambda x: (x * 2).tanh(), _tensor(3))
    double, tanh = graph.nodes
    [command] = double.commands
    assert isinstance(command, BoundLaunch)
    moving = replace(command, varying=(VaryingWord(16, 0, 0),))
    changed = replace(graph, nodes=(replace(double, commands=(moving,)), tanh), sources=("a number",))
    assert lower(changed, VARIANTS[0]).reasons == {0: "takes numbers that change from call to call"}


@pytest.mark.vulkan
def test_elements_that_are_read_after_they_were_written() -> None:
    need("vulkan:0")
    graph = trace(lambda x: (x * 2).tanh(), _tensor(3, 3))
    double, tanh = graph.nodes
    assert double.result is not None
    turned = replace(double.result, strides=(1, 3))
    in_place = replace(tanh, operands=(turned,), result=double.result, writes=double.writes)
    nodes = (double, in_place)
    why = "writes over elements that it has yet to read"
    assert lower(replace(graph, nodes=nodes), VARIANTS[0]).reasons == {1: why}
    same = replace(in_place, operands=(double.result,))
    assert not lower(replace(graph, nodes=(double, same)), VARIANTS[0]).reasons


def test_every_rule_is_of_an_op() -> None:
    assert {*RULES, *OPS} <= set(REGISTRY)
