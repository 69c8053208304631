"""Ops that change nothing are left out, and those that change the sign of a zero are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.algebraic_simplification import algebraic_simplification
from dl4all.ops.core.op import REGISTRY
from tests.support.pass_results import SPECIAL, check_pass, results, traced_on_device

pytestmark = pytest.mark.vulkan
INTEGERS = np.array([0, 1, -1, 7, 2**31 - 1, -(2**31)], np.int32)
Function = Callable[..., Any]


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: (x * 1.0).reciprocal(), "reciprocal"),
        (lambda x: (1 * x).reciprocal(), "reciprocal"),
        (lambda x: (x / 1.0).reciprocal(), "reciprocal"),
        (lambda x: (x + -0.0).reciprocal(), "reciprocal"),
        (lambda x: (x - 0.0).reciprocal(), "reciprocal"),
        (lambda x: x.neg().neg().reciprocal(), "neg reciprocal"),
        (lambda x: x.relu().relu().reciprocal(), "relu reciprocal"),
        (lambda x: x.floor().floor().reciprocal(), "floor reciprocal"),
        (lambda x: x.clone().reciprocal(), "reciprocal"),
        (lambda x: dl.ops.cast(dl.ops.cast(x > 0, "float32"), "bool").logical_not(), "gt cast logical_not"),
        (lambda x: (x * dl.ones_like(x)).reciprocal(), "fill reciprocal"),
        (lambda x: dl.where(dl.ones_like(x) > 0, x, -x).reciprocal(), "fill gt neg where reciprocal"),
        (lambda x: dl.where(dl.zeros_like(x, dtype="bool"), x, x.abs()).reciprocal(), "fill abs reciprocal"),
        (lambda x: (((x * 1.0) / 1.0) - 0.0).reciprocal(), "reciprocal"),
        # Not the same in every bit
        (lambda x: (x + 0.0).reciprocal(), "add reciprocal"),
        (lambda x: (0.0 - x).reciprocal(), "sub reciprocal"),
        (lambda x: (x - -0.0).reciprocal(), "sub reciprocal"),
        (lambda x: (x * 0.0).reciprocal(), "mul reciprocal"),
        (lambda x: (x * -1.0).reciprocal(), "mul reciprocal"),
        (lambda x: (1.0 / x).reciprocal(), None),
        (lambda x: (x + dl.zeros_like(x)).reciprocal(), "fill add reciprocal"),
        (lambda x: dl.ops.cast(dl.ops.cast(x, "int32"), "float32").reciprocal(), "cast cast reciprocal"),
        # A result of the call, and memory that changes
        (lambda x: x * 1.0, "mul"),
        (lambda x: (x.clone(), x.add_(1.0))[0].reciprocal(), None),
        (lambda x: (x * 1.0).add_(1.0).reciprocal(), None),
        # Another shape, or another place in memory
        (lambda x: (x[1:] * 1.0).reciprocal(), "mul reciprocal"),
        (lambda x: (x.reshape(1, 11) * dl.ones(3, 1, device=x.device)).reciprocal(), "fill mul reciprocal"),
        (lambda x: x[::2].clone().reciprocal(), "clone reciprocal"),
    ],
)  # fmt: skip
def test_on_special_numbers(function: Function, left: str | None) -> None:
    before, after = check_pass(algebraic_simplification, function, SPECIAL)
    assert after == (before if left is None else left.split())


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: -(x + 0), "neg"),
        (lambda x: -(0 + x), "neg"),
        (lambda x: -(x * 1), "neg"),
        (lambda x: ~(~x) * 2, "bitwise_not mul"),
        (lambda x: -(x / 1), "true_divide neg"),
    ],
)
def test_on_integers(function: Function, left: str) -> None:
    _, after = check_pass(algebraic_simplification, function, INTEGERS)
    assert after == left.split()


def test_a_sum_over_no_axis() -> None:
    """Kernels begin sums with 0.0 and so lose the sign of -0.0; the op's body, which defines it, does not."""
    graph = traced_on_device(lambda x: dl.ops.sum_to(x, shape=(11,)).reciprocal(), SPECIAL)
    assert np.array_equal(REGISTRY["sum_to"].body(SPECIAL, shape=(11,)), SPECIAL, equal_nan=True)
    after = algebraic_simplification(graph)
    verify(after)
    assert [node.name for node in after.nodes] == ["reciprocal"]
    direct = traced_on_device(lambda x: x.reciprocal(), SPECIAL)
    assert results(after, SPECIAL) == results(direct, SPECIAL)
