"""Gradients of slices that lie in one tensor, against those that are added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.ir.graph import Graph
from dl4all.graph.passes.slice_gradients import slice_gradients
from tests.conftest import need
from tests.support.operands import generator
from tests.support.traced_functions import commands_of, traced


def _joined(function: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[Graph, Graph]:
    """The graph of a function, and that after the pass, which computes the same."""
    rng = generator("slice gradients", *shapes)
    before = traced(function, *(rng.standard_normal(shape, np.float32) for shape in shapes))
    after = slice_gradients(before.graph)
    np.testing.assert_array_equal(before.outcome(before.graph), before.result)
    np.testing.assert_array_equal(before.outcome(after), before.result)
    return before.graph, after


def _gradient(parts: Callable[[Any], list[Any]], after: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of x and of each part's gradient that gives a function of the gradient of x."""

    def function(x: Any, *gradients: Any) -> Any:
        with dl.enable_grad():
            leaf = x.detach().requires_grad_()
            results = parts(leaf * 1.5)
        [gradient] = dl.grad(results, [leaf], list(gradients))
        return after(gradient)

    return function


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 4), (3, 5)])
def test_slices_of_all_of_a_tensor(shape: tuple[int, ...]) -> None:
    """Nothing is filled with zeros and nothing added: one copy for each slice."""
    need("vulkan:0")
    function = _gradient(lambda x: [x[0], x[1], x[2]], lambda g: g)
    before, after = _joined(function, shape, *[shape[1:]] * 3)
    names = [node.name for node in after.nodes]
    assert names.count("add") == 0
    assert names.count("index_backward") == 1
    assert commands_of(before) - commands_of(after) == 5


@pytest.mark.vulkan
def test_slices_of_a_part() -> None:
    """What no slice covers is filled with zeros, once."""
    need("vulkan:0")
    function = _gradient(lambda x: [x[3], x[0]], lambda g: g * 2)
    before, after = _joined(function, (5, 7), (7,), (7,))
    assert commands_of(before) - commands_of(after) == 2


@pytest.mark.vulkan
def test_overlapping_slices_are_added() -> None:
    need("vulkan:0")
    function = _gradient(lambda x: [x[:3], x[2:]], lambda g: g)
    before, after = _joined(function, (5, 7), (3, 7), (3, 7))
    assert "add" in [node.name for node in after.nodes]
    assert commands_of(before) == commands_of(after)


@pytest.mark.vulkan
def test_slices_that_are_no_piece_of_memory_are_added() -> None:
    need("vulkan:0")
    function = _gradient(lambda x: [x[:, 0], x[:, 1:]], lambda g: g)
    before, after = _joined(function, (5, 3), (5,), (5, 2))
    assert commands_of(before) == commands_of(after)


@pytest.mark.vulkan
def test_a_gradient_that_somebody_else_reads_is_added() -> None:
    need("vulkan:0")

    def function(g: Any, h: Any) -> Any:
        first = dl.ops.index_backward(g, (0,), (2, 7))
        return (first + dl.ops.index_backward(h, (1,), (2, 7))) * first

    before, after = _joined(function, (7,), (7,))
    assert commands_of(before) == commands_of(after)


@pytest.mark.vulkan
@pytest.mark.parametrize("size", [5, 8])
def test_what_lies_in_one_tensor_already_is_read_there(size: int) -> None:
    """As the gradients of query, key and value do: the readers read them where they are."""
    need("vulkan:0")

    def function(flat: Any) -> Any:
        whole = flat.tanh()
        parts = [whole[i + 1] for i in range(3)]
        total = dl.ops.index_backward(parts[0], (0,), (3, 4, size))
        for i in (2, 1):
            total = total + dl.ops.index_backward(parts[i], (i,), (3, 4, size))
        return total.permute(1, 0, 2).clone() * 2

    _, after = _joined(function, (5, 4, size))
    assert [node.name for node in after.nodes] == ["tanh", "clone", "mul"]
    assert commands_of(after) == 3


@pytest.mark.vulkan
def test_what_changes_in_between_is_copied() -> None:
    need("vulkan:0")

    def function(x: Any) -> Any:
        whole = x.tanh()
        total = dl.ops.index_backward(whole[0], (0,), (2, 7)) + dl.ops.index_backward(whole[1], (1,), (2, 7))
        whole.mul_(3)
        return total.t().clone() + whole.t()

    _, after = _joined(function, (2, 7))
    assert "index_backward" in [node.name for node in after.nodes]
