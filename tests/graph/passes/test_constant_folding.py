"""Ops of tensors that hold one number throughout become fills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.ir.graph import Operand, Value
from dl4all.graph.passes.constant_folding import EXACT, constant_folding
from dl4all.graph.passes.uniform_values import number_of, word_of
from dl4all.ops.core.op import REGISTRY
from tests.support.pass_results import SPECIAL, check_pass

pytestmark = pytest.mark.vulkan


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: x + dl.ones_like(x) * 3, "fill fill add"),
        (lambda x: x + (dl.zeros_like(x) - 2).relu(), "fill fill fill add"),
        (lambda x: x * (dl.ones_like(x) < 2), None),
        (lambda x: x + dl.where(dl.ones_like(x) > 0, 0.1, dl.zeros_like(x)), None),
        (lambda x: x + dl.zeros(1, device=x.device).expand(11).clone(), "fill fill add"),
        (lambda x: x + dl.ops.cast(dl.full((11,), 7, dtype="int32", device=x.device), "float32"), None),
        # Devices differ in the last bit, or take small numbers for 0
        (lambda x: x + dl.ones_like(x).exp(), "fill exp add"),
        (lambda x: x + dl.ones_like(x) * 1e-40, "fill mul add"),
        (lambda x: x + dl.ones_like(x) / 3, "fill true_divide add"),
        # Not one number throughout
        (lambda x: x + x * 0.0, "mul add"),
        (lambda x: x + dl.ones(11, 11, device=x.device).tril().sum(0), None),
        (lambda x: x + (dl.ones_like(x) * 2).add_(x), None),
    ],
)
def test_equal_to_computing(function: Callable[..., Any], left: str | None) -> None:
    before, after = check_pass(constant_folding, function, SPECIAL)
    if left is not None:
        assert after == left.split()
    assert len(after) == len(before)


def test_a_part_that_is_filled_is_not_all() -> None:
    def function(x: dl.Tensor) -> dl.Tensor:
        halves = dl.zeros_like(x)
        halves[4:] = 1.0
        return x + halves * 2

    before, after = check_pass(constant_folding, function, SPECIAL[:8])
    assert after == before


def test_all_exact_ops_exist() -> None:
    assert REGISTRY.keys() >= EXACT


@pytest.mark.parametrize(
    "number",
    [
        np.float32(-0.0),
        np.float32(2.5),
        np.int32(-7),
        np.bool_(True),
        np.uint8(9),
        np.int64(-1),
        np.float16(1),
    ],
)
def test_words_and_numbers(number: Any) -> None:
    word = word_of(number)
    assert word is not None
    operand = Operand(Value(0, 1), (3,), number.dtype.name, (1,))
    again = number_of({Value(0, 1): word}, operand)
    assert again.tobytes() == number.tobytes()


def test_a_word_may_stand_for_no_number() -> None:
    assert number_of({Value(0, 1): 0x01000000}, Operand(Value(0, 1), (3,), "uint8", (1,))) is None
    assert number_of({}, Operand(Value(0, 1), (3,), "uint8", (1,))) is None
