"""Special numbers through every elementwise function, loss, reduction and normalisation, beside PyTorch.

The usual run takes every case on the CPU, and on a device every third of them, with a part of the numbers. The
full run takes all, and checks that each deliberate difference is one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.attacks import number_cases as cases
from tests.support.operands import generator
from tests.support.special_numbers import VALUES, Case, NDArray, differences, pairs
from tests.support.subcases import FULL

FEW = VALUES if FULL else VALUES[[0, 1, 2, 4, 8, 10, 11, 14, 20, 23, 26, 28, 31, 32, 34, 35, 36]]
NORMAL = VALUES[(np.abs(VALUES) > 1e-37) | (VALUES == 0) | np.isnan(VALUES)]
TRIPLES = [generator("triples", name).choice(NORMAL, 2000 if FULL else 400) for name in "xyz"]
SHUFFLED = generator("pairs of rows").permutation(len(cases.SHORT_ROWS))
GROUPS: dict[str, tuple[Sequence[Case], list[list[NDArray]]]] = {
    "unary": (cases.UNARY, [[VALUES]]),
    "binary": (cases.BINARY, [pairs(FEW)]),
    "logits": (cases.ON_LOGITS, [cases.LOGITS]),
    "probabilities": (cases.ON_PROBABILITIES, [pairs(cases.SHARES)]),
    "ternary": (cases.TERNARY, [TRIPLES]),
    "rows": (cases.ROWS, [[cases.SHORT_ROWS], *([rows] for rows in map(cases.long_rows, (64, 67)))]),
    "pairs of rows": (cases.ROW_PAIRS, [[cases.SHORT_ROWS, cases.SHORT_ROWS[SHUFFLED]]]),
}


def chosen(group: str, device: str) -> list[Case]:
    """The cases of a group that a device takes."""
    if device.startswith("kompute") and not FULL:
        pytest.skip("the vulkan backend's shaders, which run there")
    step = 1 if device == "cpu" or FULL else 3
    return list(GROUPS[group][0][::step])


@pytest.mark.parametrize("group", GROUPS)
def test_values_and_gradients_of_special_numbers(group: str, device: str) -> None:
    sets = GROUPS[group][1] if FULL else GROUPS[group][1][:2]
    found = [
        difference
        for case in chosen(group, device)
        for operands in sets
        for difference in differences(case, operands, device, deliberate=cases.DELIBERATE)
    ]
    shown = "\n".join(map(str, found[:20]))
    assert not found, f"{len(found)} results differ from PyTorch's, the first of them:\n{shown}"


@pytest.mark.full
def test_deliberate_differences_exist() -> None:
    """An entry that matches nothing any more is deleted, so that the list stays true."""
    by_expression = {
        case.expression: (case, sets) for all_cases, sets in GROUPS.values() for case in all_cases
    }
    for entry in cases.DELIBERATE:
        found = [
            difference
            for expression in entry.expressions
            for case, sets in [by_expression[expression]]
            for operands in sets
            for device in ("cpu", "vulkan:0")
            for difference in differences(case, operands, device)
            if difference.result in entry.results.split()
        ]
        assert found, f"nothing differs any more: {entry}"


def test_a_wrong_gradient_is_found() -> None:
    """The machinery sees one wrong element, and a mask hides no others."""
    wrong = Case("L.sign(x) * x.detach() + 0 * x.exp()", exact="L.abs(x)")
    found = differences(wrong, [VALUES], "cpu")
    assert not [d for d in found if d.result == "value" and np.isfinite(d.operands[0])]
    close = Case("L.expm1(x)", exact="L.expm1(x)")
    assert not differences(close, [VALUES], "cpu", deliberate=cases.DELIBERATE)
