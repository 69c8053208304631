"""Equal nodes become one, unless memory changes between them or they draw random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.passes.common_subexpressions import common_subexpressions
from dl4all.nn import functional as F
from tests.support.pass_results import SPECIAL, check_pass, traced_on_device

pytestmark = pytest.mark.vulkan


def _changed_between(x: dl.Tensor) -> dl.Tensor:
    y = x.abs()
    first = y.exp()
    y.add_(1.0)
    return first + y.exp()


def _first_changed(x: dl.Tensor) -> dl.Tensor:
    first = x.exp()
    first.add_(1.0)
    return first + x.exp()


def _second_changed(x: dl.Tensor) -> dl.Tensor:
    first, second = x.exp(), x.exp()
    second.add_(1.0)
    return first * second


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: x.exp() + x.exp(), "exp add"),
        (lambda x: x.exp() * x.exp().neg(), "exp neg mul"),
        (lambda x: x.exp().neg() + x.exp().neg(), "exp neg add"),
        (lambda x: (x * dl.ones_like(x)) + dl.ones_like(x), "fill mul add"),
        (lambda x: (x.reshape(1, 11) @ x.reshape(11, 1)) * (x.reshape(1, 11) @ x.reshape(11, 1)), None),
        # Not equal
        (lambda x: x.exp() + x[:].neg(), "exp neg add"),
        (lambda x: (x * 2) + (x * 3), "mul mul add"),
        (lambda x: (x * 0.0) + (x * -0.0), "mul mul add"),
        (lambda x: x[1:].exp() + x[:-1].exp(), "exp exp add"),
        (lambda x: x.sum(0) + x.sum(0, keepdim=True), "sum sum add"),
        (lambda x: (x.exp(), x.exp()), "exp exp"),
        (_changed_between, None),
        (_first_changed, None),
        (_second_changed, None),
    ],
)
def test_equal_to_computing_twice(function: Callable[..., Any], left: str | None) -> None:
    before, after = check_pass(common_subexpressions, function, SPECIAL)
    if left is not None:
        assert after == left.split()
    elif "matmul" in before:
        assert len(after) < len(before)
    else:
        assert after == before


def test_dropout_is_not_shared() -> None:
    graph = traced_on_device(lambda x: F.dropout(x) + F.dropout(x), np.ones(64, np.float32))
    assert len(common_subexpressions(graph).nodes) == len(graph.nodes)
