"""Elementwise nodes in the kernels of reductions and normalisations, against the same ops with NumPy."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.ir.graph import Graph
from dl4all.graph.passes.fusion.epilogues import epilogues
from dl4all.graph.passes.fusion.reduction_fusion import reduction_fusion
from tests.conftest import need
from tests.support.operands import generator
from tests.support.traced_functions import traced

F = dl.nn.functional
Function = Callable[..., Any]
TOLERANCE = 2e-5


def _fused(function: Function, *shapes: tuple[int, ...], with_epilogues: bool = True) -> Graph:
    """The graph of a function after the passes, which gives what the function gives with NumPy."""
    rng = generator("reduction fusion", *shapes)
    arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
    expected = function(*(dl.tensor(array, device="cpu") for array in arrays)).numpy()
    before = traced(function, *arrays)
    merged = reduction_fusion(epilogues(before.graph) if with_epilogues else before.graph)
    got, scale = before.outcome(merged), np.abs(expected).max()
    assert scale > 0.01
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE * scale)
    np.testing.assert_allclose(got, before.result, rtol=2e-6, atol=2e-6 * scale)
    return merged


def _expect(graph: Graph, *names: str) -> None:
    """Check the names of a graph's nodes, "*" for any of them, where a device binds buffers enough."""
    if dl.device(graph.device).info.limits.storage_buffers >= 8:
        assert fnmatch.fnmatch(" ".join(node.name for node in graph.nodes), " ".join(names))


REDUCTIONS: dict[str, Function] = {
    "sum": lambda x, dim: x.sum(dim),
    "mean": lambda x, dim: x.mean(dim),
    "amax": lambda x, dim: x.amax(dim),
    "prod": lambda x, dim: x.prod(dim),
    "var": lambda x, dim: x.var(dim),
    "logsumexp": lambda x, dim: x.logsumexp(dim),
    "norm": lambda x, dim: x.norm(2, dim),
    "cubic norm": lambda x, dim: x.norm(3, dim),
}


@pytest.mark.vulkan
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_part_that_was_changed_in_place_is_not_all_that_is_read(name: str) -> None:
    def function(x: dl.Tensor) -> dl.Tensor:
        y = x.tanh()
        y[:1].add_(0.25)
        result: dl.Tensor = REDUCTIONS[name](y, 1)
        return result

    _fused(function, (5, 7))


# Rows, rows of vectors of four, columns, several axes, everything, slices that are merged.
AXES: list[tuple[tuple[int, ...], Any]] = [
    ((5, 37), 1),
    ((5, 68), 1),
    ((5, 37), 0),
    ((3, 4, 5, 7), (0, 2)),
    ((3, 4, 5, 8), (1, 3)),
    ((13, 7), None),
    ((3, 67, 129), None),
    ((1031, 3), 0),
]


@pytest.mark.vulkan
@pytest.mark.parametrize(("shape", "dim"), AXES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions(reduction: str, shape: tuple[int, ...], dim: Any) -> None:
    need("vulkan:0")
    reduce = REDUCTIONS[reduction]

    def function(a: Any, b: Any, row: Any) -> Any:
        shrunk = 1 + 0.1 * (a * b - row)  # so that products stay finite
        return reduce(shrunk, dim) * 2 + 0.5

    merged = _fused(function, shape, shape, shape[-1:])
    _expect(merged, "mul_sub_mul_add_*")


@pytest.mark.vulkan
@pytest.mark.parametrize(
    ("shape", "other"),
    [
        ((13, 7), (13, 7)),
        ((13, 8), (8,)),
        ((13, 7), (7,)),
        ((13, 8), (13, 1)),
        ((3, 5, 7), (5, 1)),
        ((5, 4), ()),
    ],
)
def test_where_the_second_source_lies(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    need("vulkan:0")
    merged = _fused(lambda a, b: (a * b).sum(-1), shape, other)
    _expect(merged, "mul_sum")


@pytest.mark.vulkan
@pytest.mark.parametrize("rank", range(2, 5))
def test_axes_that_do_not_merge(rank: int) -> None:
    need("vulkan:0")
    shape = (3, 2, 5, 4)[-rank:]
    merged = _fused(lambda a, b: (a - b).permute(*reversed(range(rank))).sum(0), shape, shape)
    _expect(merged, "sub_sum")


LOSSES: dict[str, Function] = {
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
    "binary_cross_entropy_with_logits": lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid()),
}


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", [(13, 7), (4, 12)])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(loss: str, shape: tuple[int, ...]) -> None:
    need("vulkan:0")
    merged = _fused(LOSSES[loss], shape, shape)
    _expect(merged, "*_mean")
    assert len(merged.nodes) <= 2


ROWS = [(3, 5, 13), (3, 5, 12), (2, 3, 260), (2, 3, 131)]


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("function", [dl.softmax, dl.log_softmax])
def test_softmax(function: Function, shape: tuple[int, ...]) -> None:
    need("vulkan:0")
    merged = _fused(lambda a, mask: function(a * 0.125 + mask, -1) * 3 - mask, shape, shape[1:])
    _expect(merged, f"mul_add_{function.__name__}_mul_sub")
    merged = _fused(lambda a, scale: function(a - scale, 1), shape, shape)
    _expect(merged, f"sub_{function.__name__}")


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_gradient_of_softmax(function: Function, shape: tuple[int, ...]) -> None:
    need("vulkan:0")

    def gradient(a: Any, g: Any, h: Any) -> Any:
        with dl.enable_grad():
            x = a.detach().requires_grad_()
            y = function(x, -1)
        [result] = dl.grad([y], [x], [g * h])
        return result * 0.25

    merged = _fused(gradient, shape, shape, shape[1:])
    _expect(merged, "*", f"mul_{function.__name__}_backward_mul")


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("has_weight", [False, True])
def test_layer_norm(has_weight: bool, shape: tuple[int, ...]) -> None:
    need("vulkan:0")
    size = shape[-1:]

    def function(a: Any, b: Any, weight: Any, bias: Any) -> Any:
        parameters = (weight, bias) if has_weight else ()
        return F.layer_norm(a.relu() + b, size, *parameters).relu() - a

    merged = _fused(function, shape, size, size, size)
    _expect(merged, "relu_add_grouped_norm_relu_sub")


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", ROWS)
def test_gradient_of_layer_norm(shape: tuple[int, ...]) -> None:
    need("vulkan:0")

    def gradient(a: Any, g: Any, h: Any, weight: Any) -> Any:
        with dl.enable_grad():
            x = a.detach().requires_grad_()
            y = F.layer_norm(x, shape[-1:], weight)
        [result] = dl.grad([y], [x], [g * h])
        return result + h

    merged = _fused(gradient, shape, shape, shape, shape[-1:])
    _expect(merged, "*", "mul_grouped_norm_backward_add")


IMAGES = [(3, 5, 7, 3), (2, 5, 4, 4), (7, 5), (8, 4), (2, 3, 31, 33)]


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", IMAGES)
def test_batch_norm(shape: tuple[int, ...]) -> None:
    need("vulkan:0")

    def function(a: Any, b: Any, weight: Any, bias: Any) -> Any:
        y = F.batch_norm(a.relu() + b, None, None, weight, bias, training=True)
        return (y + b).relu()

    merged = _fused(function, shape, shape, shape[1:2], shape[1:2])
    _expect(merged, "relu_add_batch_norm_stats", "relu_add_batch_norm_apply_add_relu")


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", IMAGES)
def test_gradient_of_batch_norm(shape: tuple[int, ...]) -> None:
    """The gradient of the activation is computed where the sums and the gradient of the input need it."""
    need("vulkan:0")

    def gradient(a: Any, g: Any, h: Any) -> Any:
        with dl.enable_grad():
            x = a.detach().requires_grad_()
            y = F.batch_norm(x, None, None, training=True).relu()
        [result] = dl.grad([y], [x], [g])
        return result + h

    merged = _fused(gradient, shape, shape, shape, with_epilogues=False)
    _expect(
        merged,
        "*",
        "relu_relu_backward_batch_norm_sums",
        "relu_relu_backward_batch_norm_backward",
        "add",
    )
    merged = _fused(gradient, shape, shape, shape)
    _expect(merged, "*", "batch_norm_sums", "batch_norm_backward_add")


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", [(7, 13), (6, 12)])
def test_gradient_of_cross_entropy(shape: tuple[int, ...]) -> None:
    """The mean's gradient, one number, is divided and spread over the rows where they read it."""
    need("vulkan:0")
    labels = generator("labels").integers(0, shape[1], shape[0])

    def gradient(a: Any) -> Any:
        with dl.enable_grad():
            x = a.detach().requires_grad_()
            loss = F.cross_entropy(x, dl.tensor(labels, device=a.device))
        [result] = dl.grad([loss], [x])
        return result * 64

    merged = _fused(gradient, shape)
    _expect(merged, "*clone_cross_entropy_backward_mul")


# What stays


@pytest.mark.vulkan
@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: (y := a * b).sum() + y[0, 0],  # somebody else reads the product
        lambda a, b: (a * b).sum(0) + (a * b).cumsum(0)[-1],
        lambda a, b: F.softmax(a * b, -1) + (a * b)[0],
    ],
    ids=["element", "scan", "row"],
)
def test_what_others_read_stays(function: Function) -> None:
    need("vulkan:0")
    merged = _fused(function, (5, 7), (5, 7))
    assert "mul" in [node.name for node in merged.nodes]


@pytest.mark.vulkan
def test_a_source_that_changes_is_read_before() -> None:
    need("vulkan:0")

    def function(a: Any, b: Any) -> Any:
        copy = a.clone()
        product = copy * b
        copy.add_(b)
        return product.sum(1) + copy.amax(1)

    merged = _fused(function, (5, 7), (5, 7))
    assert "mul" in [node.name for node in merged.nodes]


@pytest.mark.vulkan
def test_expensive_functions_are_computed_once() -> None:
    """A softmax reads each element three times."""
    need("vulkan:0")
    _expect(_fused(lambda a: F.softmax(a.tanh(), -1), (5, 7)), "tanh", "softmax")
    _expect(_fused(lambda a: a.tanh().sum(-1), (5, 7)), "tanh_sum")


@pytest.mark.vulkan
def test_many_operands_stay_apart() -> None:
    """Nothing is bound beyond what a device allows."""
    need("vulkan:0")
    shapes = [(5, 7)] * 9
    merged = _fused(lambda *x: sum(x[1:], x[0]).sum(0), *shapes)
    limit = dl.device("vulkan:0").info.limits.storage_buffers
    for node in merged.nodes:
        for command in node.commands:
            assert len(getattr(command, "bindings", ())) <= limit
    assert len(merged.nodes) < 9


@pytest.mark.vulkan
def test_other_dtypes_stay_apart() -> None:
    need("vulkan:0")

    merged = _fused(lambda a, b: dl.where(a > b, a, b).sum(1), (5, 7), (5, 7))
    _expect(merged, "gt", "where", "sum")
