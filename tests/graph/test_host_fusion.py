"""Groups of elementwise calls on the CPU: what they take, what they leave alone, and blocks of any size."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.host import blocks
from dl4all.graph.host.calls import calls_of
from dl4all.graph.host.executable import HostExecutable
from dl4all.graph.host.fusion import fused
from dl4all.graph.ir.graph import Binding, Graph, GraphBuffer, HostCall, Node, Value
from dl4all.graph.tracing.trace import trace
from dl4all.nn import functional as F
from dl4all.ops import REGISTRY
from dl4all.ops.core.kernels.host_work import TENSOR, ArrayView, BodyCall, HostWork
from dl4all.runtime.cpu.llvm import provider
from dl4all.scheduler.push_constants import Mark, VaryingFloat


def draw(*shape: int) -> dl.Tensor:
    rng = np.random.default_rng(len(shape) + sum(shape))
    return dl.tensor(rng.standard_normal(shape).astype(np.float32), device="cpu")


def names(function: Callable[..., Any], *arguments: dl.Tensor) -> list[str]:
    """The calls that are left of a function."""
    with dl.no_grad():
        graph = trace(function, *arguments)
    return [call.name for call in fused(graph, calls_of(graph))[1]]


def check(function: Callable[..., Any], *arguments: dl.Tensor) -> None:
    """Compiled, it computes what it computes, on other values too."""
    compiled = dl.compile(function)
    others = [a.clone() * 3 - 1 if a.dtype == np.float32 else a for a in arguments]
    with dl.no_grad():
        for given in (arguments, arguments, others, arguments):
            expected = function(*(a.clone() for a in given))
            found = compiled(*(a.clone() for a in given))
            for one, other in zip(_each(found), _each(expected), strict=True):
                np.testing.assert_array_equal(one.numpy(), other.numpy(), strict=True)
    assert len(compiled.specializations) == 1


def _each(result: Any) -> Any:
    return result if isinstance(result, tuple) else (result,)


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether compiled kernels compute."""
    compiled = bool(request.param == "compiled")
    if compiled and not provider.available():
        pytest.skip("there is no compiler")
    monkeypatch.setattr(provider, "enabled", compiled)
    return compiled


@pytest.fixture(params=[(2**14, 2**18), (7, 30), (1, 1)], ids=str)
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements of a block, and of the images that a convolution has at a time."""
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", request.param[0])
    monkeypatch.setattr(blocks, "CHUNK_ELEMENTS", request.param[1])


@pytest.mark.usefixtures("sizes")
def test_chains_with_broadcast_and_other_results() -> None:
    def call(x: dl.Tensor, row: dl.Tensor, column: dl.Tensor) -> tuple[dl.Tensor, ...]:
        y = (x + row) * column
        z = dl.exp(-y) / 2.0
        return z, dl.sigmoid(y) - x, y

    arguments = draw(5, 3, 7), draw(7), draw(3, 1)
    assert names(call, *arguments) == ["add_mul_neg_exp_true_divide_sigmoid_sub"]
    check(call, *arguments)
    check(call, draw(3, 5, 7).transpose(0, 1), draw(7), draw(3, 1))
    check(call, draw(1, 1, 1), draw(1), draw(1, 1))


@pytest.mark.usefixtures("sizes")
def test_changes_in_place() -> None:
    def call(x: dl.Tensor, y: dl.Tensor) -> tuple[dl.Tensor, ...]:
        z = x * 2.0
        z.add_(y)
        z.relu_()
        y.mul_(z)
        return z, y + 1.0

    check(call, draw(4, 6), draw(4, 6))


def test_what_is_read_at_other_places_is_another_group() -> None:
    def call(x: dl.Tensor) -> dl.Tensor:
        y = x * 2.0 + 1.0
        return dl.exp(y.T) - y

    assert names(call, draw(5, 5)) == ["mul_add", "exp_sub"]
    check(call, draw(5, 5))

    def overlapping(x: dl.Tensor) -> dl.Tensor:
        x[1:] = x[:-1] * 2.0 + 1.0
        return x * 1.0

    check(overlapping, draw(6))


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_with_what_follows(stride: int, kernels: bool) -> None:
    weight, bias = draw(6, 4, 3, 3), draw(6)
    mean, variance, scale, shift = draw(6), draw(6) * draw(6) + 0.5, draw(6), draw(6)

    def call(x: dl.Tensor, residual: dl.Tensor) -> dl.Tensor:
        y = F.conv2d(x, weight, bias, stride=stride, padding=1)
        y = F.batch_norm(y, mean, variance, scale, shift)
        return F.relu(y + residual)

    arguments = draw(3, 4, 8, 6), draw(3, 6, 8 // stride, 6 // stride)
    one_by_one = ["conv2d", "batch_norm_apply", "add_relu"]
    together = ["batch_norm_scale", "conv2d_sub_mul_add_add_relu"]
    assert names(call, *arguments) == (one_by_one if kernels else together)
    compiled = dl.compile(call)
    for given in (arguments, arguments, (arguments[0] * 2, arguments[1])):
        with dl.no_grad():
            found, expected = compiled(*given).numpy(), call(*given).numpy()
        # BLAS may add in another order where a product has other columns.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


FOLLOWERS: dict[str, tuple[Callable[..., Any], str]] = {
    "relu": (lambda y, other: F.relu(y), "conv2d_relu"),
    "residual": (lambda y, other: F.relu(y + other), "conv2d_add_relu"),
    "limits": (lambda y, other: F.relu6(y) * 0.5, "conv2d_hardtanh_mul"),
    "of channels": (lambda y, other: y * other[:1, :, :1, :1] - 1.5, "conv2d_mul_sub"),
    "two results": (lambda y, other: (z := other - y, F.silu(z)), "conv2d_sub_silu"),
    "a result in its place": (lambda y, other: y.add_(other).relu_(), "conv2d_add_copy__relu_copy_"),
    "a result in an operand": (lambda y, other: other.clone().add_(y).relu_(), ""),
    "used by others, too": (lambda y, other: (F.relu(y), y.sum(1)), ""),
    "of one image": (lambda y, other: y + other[1:], ""),
}


@pytest.mark.parametrize("what", FOLLOWERS)
def test_what_follows_a_convolution_is_in_its_kernel(what: str, kernels: bool) -> None:
    function, name = FOLLOWERS[what]
    groups = 4 if what in ("residual", "two results") else 1
    weight = draw(8, 4 // groups, 3, 3)

    def call(x: dl.Tensor, other: dl.Tensor) -> Any:
        return function(F.conv2d(x, weight, padding=1, groups=groups), other)

    arguments = draw(2, 4, 9, 7), draw(2, 8, 9, 7)
    if kernels:
        check(call, *arguments)
        found = names(call, *arguments)
        assert (name in found) == bool(name) == (not any(one == "conv2d" for one in found)), found
        return
    with dl.no_grad():
        found, expected = dl.compile(call)(*arguments), call(*arguments)
    for one, other in zip(_each(found), _each(expected), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("sizes")
def test_batch_normalisation_and_its_gradient() -> None:
    norm = dl.nn.BatchNorm2d(3).to("cpu")

    def call(x: dl.Tensor) -> Any:
        x = x.detach().requires_grad_()
        with dl.enable_grad():
            loss = (F.relu(norm(x)) * x).sum()
        [gradient] = dl.autograd.grad(loss, [x])
        return gradient

    x = draw(4, 3, 5, 5)
    states = {name: value.clone() for name, value in norm.state_dict().items()}
    compiled = dl.compile(call)
    results = []
    for function in (call, compiled):
        norm.load_state_dict(states)
        results.append([function(x * factor).numpy() for factor in (1.0, 1.0, 1.0, 2.0)])
    assert compiled.specializations
    np.testing.assert_array_equal(results[0], results[1])


def test_numbers_that_vary_are_those_of_the_call() -> None:
    number = VaryingFloat.of(2.0, Mark(0, 0))
    view = ArrayView((3,), np.dtype(np.float32), (4,), 0)
    work = HostWork(BodyCall("mul", REGISTRY["mul"].body, (TENSOR, number), {}), (view, view))
    call = HostCall("mul", work, (Binding(0, 0, 12), Binding(1, 0, 12)), (False, True))
    node = Node("mul", reads=(Value(0, 0),), writes=(Value(1, 1),), commands=(call,))
    buffers = {0: GraphBuffer(0, 12, "input"), 1: GraphBuffer(1, 12, "output")}
    graph = Graph("cpu", buffers, (node,), (0,), sources=("number",))
    executable = HostExecutable(graph, dl.device("cpu"), {})
    x = dl.tensor([1.0, 2.0, 3.0], device="cpu")
    for factor in (2.0, 5.0):
        made = executable([x.storage], functools.partial(dict, [(0, (factor,))]))
        result = dl.Tensor(made[1], (3,), np.dtype(np.float32), x.device)
        assert result.tolist() == [factor, 2 * factor, 3 * factor]
