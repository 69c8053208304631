"""Special numbers through every elementwise function, loss, reduction and normalisation, beside PyTorch.

The usual run takes every case with a part of the numbers, and on a device every second function of rows. The
full run takes all, and checks that each deliberate difference is one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import DeviceError
from tests.attacks import number_cases as cases
from tests.support.operands import generator
from tests.support.special_numbers import VALUES, Case, Deliberate, NDArray, differences, pairs, torch
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
    step = 2 if group == "rows" and device != "cpu" and not FULL else 1
    return list(GROUPS[group][0][::step])


@pytest.mark.sampled(2)
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
@pytest.mark.parametrize("entry", cases.DELIBERATE, ids=lambda entry: entry.reason[:40])
def test_deliberate_differences_exist(entry: Deliberate) -> None:
    """An entry, or an expression of one, that matches nothing any more is deleted: the list stays true."""
    for group, sets in GROUPS.values():
        for case in group:
            if case.expression not in entry.expressions:
                continue
            devices = ("cpu", "vulkan:0") if _has_vulkan() else ("cpu",)
            found = [d for x in sets for device in devices for d in differences(case, x, device)]
            assert {d.result for d in found} & set(entry.results.split()), case.expression
    known = {case.expression for group, _ in GROUPS.values() for case in group}
    assert set(entry.expressions) <= known


def _has_vulkan() -> bool:
    try:
        dl.device("vulkan:0")
    except DeviceError:
        return False
    return True


def test_wrong_results_are_found() -> None:
    """A wrong value, a wrong gradient and a nan in place of a number count, each for itself."""
    x = np.array([0.0, 1.0, -2.0, 1e30], np.float32)
    torch_only = "(2 if 'torch' in L.__name__ else 1)"
    value = differences(Case(f"{torch_only} * x"), [x], "cpu")
    assert [(d.result, d.operands) for d in value] == [
        *(("value", (element,)) for element in x[1:].tolist()),
        *(("x", (element,)) for element in x.tolist()),
    ]
    gradient = differences(Case(f"x + 0 * x.detach() + ({torch_only} - 1) * (x - x.detach())"), [x], "cpu")
    assert {d.result for d in gradient} == {"x"}
    undefined = differences(Case(f"L.where(x > 0, x * (nan if {torch_only} == 1 else 1), x)"), [x], "cpu")
    assert {d.operands for d in undefined if d.result == "value"} == {(1.0,), (float(x[3]),)}


BEYOND = np.array(
    [np.inf, -np.inf, np.nan, 1e10, -1e10, 3e9, -3e9, 300, -1.5, -0.5, 2.5, -0.0, 70000], np.float32
)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "bool", "float16"])
def test_conversions_of_what_does_not_fit(dtype: str, device: str) -> None:
    expected = torch.from_numpy(BEYOND).to(getattr(torch, dtype)).numpy()
    np.testing.assert_array_equal(dl.tensor(BEYOND, device=device).to(dtype).numpy(), expected)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integers_divided_by_zero_are_zero(dtype: str, device: str) -> None:
    """PyTorch's CPU raises; a device cannot, without waiting, and all give the same."""
    array = np.array([7, 0, 9, 200], dtype)
    divisor = np.array([0, 0, 2, 0], dtype)
    x, y = dl.tensor(array, device=device), dl.tensor(divisor, device=device)
    for results, quotient in (
        ((x // y, dl.div(x, y, rounding_mode="floor"), dl.div(x, y, rounding_mode="trunc")), 4),
        ((x % y, dl.fmod(x, y)), 1),
    ):
        assert [result.tolist() for result in results] == [[0, 0, quotient, 0]] * len(results)
    assert (x // 0).tolist() == (x % 0).tolist() == [0, 0, 0, 0]
    assert (x / y).tolist()[0] == np.inf


def test_the_smallest_integer(device: str) -> None:
    smallest = torch.tensor([-(2**31), 2**31 - 1, -5], dtype=torch.int32)
    ours = dl.tensor(smallest.numpy(), device=device)
    for expression in ("abs(x)", "-x", "x // -1", "x % -1", "x * x", "x ** 2", "x ** 3", "x + x", "x - 7"):
        expected, got = eval(expression, {"x": smallest}), eval(expression, {"x": ours})
        assert got.tolist() == expected.tolist(), expression
