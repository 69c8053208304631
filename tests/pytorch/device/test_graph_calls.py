"""Calls of compiled graphs: aliases, changed arguments, results that stay, parameters, random numbers."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the PyTorch device needs PyTorch")

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import dl4all.torch  # noqa: E402
from dl4all.errors import ArgumentError  # noqa: E402
from dl4all.graph.run.compiled import CompileWarning  # noqa: E402
from dl4all.pytorch.device import compiler, devices  # noqa: E402
from dl4all.pytorch.device.graphs import parts as graph_parts  # noqa: E402

CALLS = 4  # the third one is the first that is replayed


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(7)
    torch._dynamo.reset()
    compiler.calls.clear()
    dl4all.torch.set_fallback("silent")
    yield
    dl4all.torch.set_fallback(None)
    torch._dynamo.reset()


def ways() -> list[int]:
    """How many recordings each graph has."""
    return [call.recordings() for call in compiler.calls]


def compile_function(function: Callable[..., Any], **options: Any) -> Any:
    return torch.compile(function, backend=compiler.backend, **options)


def shifted(x: Any, y: Any) -> Any:
    x.mul_(2)
    x[1].add_(y[0])
    return x * y


def shared(x: Any, y: Any) -> Any:
    product = x * y
    return product, product[0], product.t(), product, x.t(), y


def constants(x: Any, y: Any) -> Any:
    return torch.arange(5, device=x.device), x.new_zeros(3), torch.tensor([2, 3], device=x.device), len(x)


FUNCTIONS = (
    shifted,
    shared,
    constants,
    lambda x, y: x[:0] * y[:0],
    lambda x, y: (x.sum(1), (x > y).any(), x.half() @ y.half().t()),
)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("place", ["cpu", devices.NAME])
def test_results_and_arguments(function: Any, place: str) -> None:
    compiled, kept = compile_function(function), []
    for _ in range(CALLS):
        own = [torch.randn(3, 5), torch.randn(5, 3).t()]
        given = [x.clone().to(place) for x in own]
        expected, got = function(*own), compiled(*given)
        kept.append((expected, got))
        for before, after in zip(own, given, strict=True):
            torch.testing.assert_close(after.cpu(), before)
    for expected, got in kept:  # no replay has written over what an earlier call returned
        if not isinstance(expected, tuple):
            expected, got = (expected,), (got,)
        for one, other in zip(expected, got, strict=True):
            if isinstance(one, torch.Tensor):
                assert (other.device.type, other.stride()) == (place, one.stride())
                torch.testing.assert_close(other.cpu(), one, check_device=False)
            else:
                assert other == one
    assert ways() == [1]


def test_results_share_memory_as_they_do_without() -> None:
    compiled = compile_function(shared)
    for _ in range(CALLS):
        x, y = (torch.randn(3, 3, device=devices.NAME) for _ in range(2))
        product, row, turned, same, x_turned, y_itself = compiled(x, y)
        product.fill_(5.0)
        x.fill_(6.0)
        y.fill_(7.0)
        values = [float(t.min()) for t in (row, turned, same, x_turned, y_itself)]
        assert values == [5.0, 5.0, 5.0, 6.0, 7.0]


def test_one_tensor_twice_and_a_view_of_it() -> None:
    def function(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2

    views: list[Callable[[Any], Any]] = [lambda x: x, lambda x: x.view(24), lambda x: x[1:].t()]
    for view in views:
        compiled = compile_function(function)
        for _ in range(CALLS):
            own = torch.randn(4, 6)
            given = own.to(devices.NAME)
            result = compiled(given, view(given))
            torch.testing.assert_close(result.cpu(), function(own, view(own)))
            torch.testing.assert_close(given.cpu(), own)


@pytest.mark.parametrize("place", ["cpu", devices.NAME])
def test_parameters_that_change(place: str) -> None:
    own = nn.Linear(4, 3)
    other = copy.deepcopy(own).to(place)
    compiled = compile_function(other)

    def replace_parameter(model: Any, value: Any) -> None:
        model.weight = nn.Parameter(value.to(model.weight.device))

    def replace_data(model: Any, value: Any) -> None:
        model.weight.data = value.to(model.weight.device)

    changes: list[Callable[[Any, Any], Any]] = [
        lambda model, value: None,
        lambda model, value: model.weight.mul_(2),
        lambda model, value: model.weight.data.add_(1),
        lambda model, value: model.load_state_dict({"weight": value, "bias": value[:, 0]}),
        replace_parameter,
        replace_data,
    ]
    with torch.no_grad():
        for change in changes:
            value = torch.randn(3, 4)
            change(own, value)
            change(other, value)
            for _ in range(CALLS):
                x = torch.randn(2, 4)
                torch.testing.assert_close(compiled(x.to(place)).cpu(), own(x))


def test_a_compiled_model_can_be_moved() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    own = copy.deepcopy(model)
    compiled = compile_function(model)
    for place in ("cpu", devices.NAME, "cpu"):
        model.to(place)
        for _ in range(CALLS):
            x = torch.randn(2, 4)
            result = compiled(x.to(place))
            assert result.device.type == place
            torch.testing.assert_close(result.cpu(), own(x))
            result.sum().backward()


def test_layers_that_share_a_graph() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 5)

        def forward(self, x: Any) -> Any:
            return self.linear(x).tanh()

    own = nn.ModuleList(Layer() for _ in range(3))
    other = copy.deepcopy(own).to(devices.NAME)
    for layer in other:
        layer.compile(backend=compiler.backend)
    with torch.no_grad():
        for _ in range(CALLS + 2):
            x = torch.randn(2, 5)
            y = x.to(devices.NAME)
            for one, same in zip(own, other, strict=True):
                x, y = one(x), same(y)
            torch.testing.assert_close(y.cpu(), x)
    assert ways() == [1]


def test_dropout_draws_anew_and_as_without_compilation() -> None:
    dropout = nn.Dropout(0.5)
    compiled = compile_function(dropout)
    x = torch.ones(997, device=devices.NAME, requires_grad=True)
    masks = []
    for _ in range(CALLS):
        result = compiled(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(gradient, result.detach())  # of the same elements
        masks.append(result.detach().cpu())
    assert all(not torch.equal(one, other) for one, other in itertools.pairwise(masks))
    torch.manual_seed(3)
    replayed = compiled(x)
    torch.manual_seed(3)
    torch.testing.assert_close(replayed, dropout(x))
    assert ways() == [1, 1]


def test_gradients_of_calls_in_turn() -> None:
    compiled = compile_function(lambda x, w: (x @ w).relu())
    own = torch.randn(4, 4, requires_grad=True)
    other = own.detach().to(devices.NAME).requires_grad_()
    for _ in range(CALLS):
        inputs = [torch.randn(3, 4) for _ in range(3)]
        results = [((x @ own).relu(), compiled(x.to(devices.NAME), other)) for x in inputs]
        for expected, got in reversed(results):
            expected.sum().backward()
            got.sum().backward(retain_graph=True)
    torch.testing.assert_close(other.grad.cpu(), own.grad)


def test_code_between_graphs() -> None:
    def function(x: Any) -> Any:
        y = (x * 2).relu()
        torch._dynamo.graph_break()
        return (y + y.mean(1, keepdim=True)).tanh()

    compiled = compile_function(function)
    for _ in range(CALLS):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x.to(devices.NAME)).cpu(), function(x))
    assert ways() == [1, 1]


def test_what_runs_on_the_cpu_is_left_out() -> None:
    def function(x: Any, total: Any) -> Any:
        total.add_(x.sum(0))
        y = torch.special.bessel_j0(x * 2)  # which dl4all does not have
        z = torch.special.bessel_j1(x.exp())
        return (y + z).tanh() * x.cos(), F.dropout(y.relu() + x, 0.0)

    compiled = compile_function(function)
    own, other = torch.zeros(5), torch.zeros(5, device=devices.NAME)
    for call in range(CALLS + 1):
        x = torch.randn(3, 5)
        expected = function(x, own)
        with pytest.warns(CompileWarning, match="in 2 parts.*bessel_j") if not call else nullcontext():
            got = compiled(x.to(devices.NAME), other)
        for one, result in zip(expected, got, strict=True):
            torch.testing.assert_close(result.cpu(), one)
        torch.testing.assert_close(other.cpu(), own)
    assert ways() == [2]


def test_parts_keep_the_order_of_draws_and_writes() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x).graph
    graph.erase_node(next(iter(reversed(graph.nodes))))
    [x] = graph.nodes
    aten = torch.ops.aten
    first = graph.call_function(aten.rand_like.default, (x,))
    host = graph.call_function(aten.special_bessel_j0.default, (first,))
    second = graph.call_function(aten.rand_like.default, (host,))
    third = graph.call_function(aten.rand_like.default, (x,))
    early = graph.call_function(aten.exp.default, (x,))
    write = graph.call_function(aten.copy_.default, (x, second))
    late = graph.call_function(aten.neg.default, (x,))
    graph.output((third, early, write, late))
    parts = graph_parts.cut(torch.fx.GraphModule(torch.nn.Module(), graph), [host.name])
    names = [[node.name for node in part.module.graph.nodes if node.op == "call_function"] for part in parts]
    assert names == [[first.name, early.name], [host.name], [n.name for n in (second, third, write, late)]]
    assert [part.on_host for part in parts] == [False, True, False]


def test_a_number_of_the_cpu_is_read_in_each_call() -> None:
    compiled = compile_function(lambda x, scale: x * scale)
    for _ in range(CALLS):
        x, scale = torch.randn(5), torch.rand(())
        torch.testing.assert_close(compiled(x.to(devices.NAME), scale).cpu(), x * scale)
    assert ways() == [1]


def test_modes_and_options() -> None:
    model = nn.Conv2d(2, 3, 3)
    compiled = compile_function(copy.deepcopy(model).to(devices.NAME), mode="reduce-overhead")
    for _ in range(CALLS):
        x = torch.randn(1, 2, 9, 7)
        torch.testing.assert_close(compiled(x.to(devices.NAME)).cpu(), model(x))
    assert {call.compiled.mode for call in compiler.calls} == {"reduce-overhead"}
    with pytest.raises(Exception, match="expected a mode of 'default'"):
        compile_function(model, mode="fastest")(x)
    with pytest.raises(ArgumentError, match="no options, got trace"):
        compiler.backend(torch.fx.symbolic_trace(model), [x], options={"trace": True})
