"""Rules of several statements: what each printer makes of them, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dl4all.errors import ShaderError
from dl4all.ops.core.expressions.statements import parse_statements, print_glsl_statements, run_statements

RULE = """
    step = rate == 0.0 ? g : rate * g - mean
    mean = larger(mean, step)

    p = p - step * (mean > 0.5 ? 2.0 : -1.0)
"""


def test_glsl_declares_what_is_not_given() -> None:
    names = {"p": "e.p", "g": "e.g", "mean": "e.s[0]", "rate": "c.rate"}
    assert print_glsl_statements(RULE, names) == (
        "float step = c.rate == 0.0 ? e.g : c.rate * e.g - e.s[0]; e.s[0] = larger(e.s[0], step); "
        "e.p = e.p - step * (e.s[0] > 0.5 ? 2.0 : -1.0);"
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_values(rate: float, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    p, g, mean = (rng.standard_normal(11).astype(dtype) for _ in range(3))
    got = run_statements(RULE, {"p": p, "g": g, "mean": mean, "rate": rate})
    step = g if rate == 0 else dtype(rate) * g - mean
    largest = np.maximum(mean, step)
    np.testing.assert_array_equal(got["mean"], largest)
    np.testing.assert_array_equal(got["p"], p - step * np.where(largest > 0.5, dtype(2), dtype(-1)))
    assert got["p"].dtype == dtype


def test_values_go_into_arrays_that_are_there() -> None:
    p, g, mean = (np.linspace(1, 2, 5) + shift for shift in range(3))
    expected = run_statements(RULE, {"p": p, "g": g, "mean": mean, "rate": 0.5})
    given, kept = {"p": p.copy(), "mean": mean.copy()}, g.copy()
    got = run_statements(RULE, {"g": g, **given, "rate": 0.5}, given)
    for name, array in given.items():
        assert got[name] is array
        np.testing.assert_array_equal(array, expected[name])
    np.testing.assert_array_equal(g, kept)  # nothing else is written


def test_one_value_in_the_place_of_two() -> None:
    p, mean = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    run_statements(
        "p = p + 1.0\nmean = w == 1.0 ? p : mean\np = p * 2.0",
        {"p": p, "mean": mean, "w": 1.0},
        ("p", "mean"),
    )
    assert (p.tolist(), mean.tolist()) == ([4.0, 6.0], [2.0, 3.0])


def test_a_branch_that_is_not_taken_is_not_computed() -> None:
    """An infinite parameter without decay: 0 * inf is nan."""
    g, p = np.array([1.0]), np.array([np.inf])
    assert run_statements("g = w == 0.0 ? g : w * p", {"g": g, "p": p, "w": 0.0})["g"] == 1.0


@pytest.mark.parametrize("text", ["p - g", "p += g", "p = ", "2 = p", "p = p -", "e.p = g"])
def test_what_is_no_statement_is_refused(text: str) -> None:
    with pytest.raises(ShaderError, match=r"^\[(statements|expression)\] expected"):
        parse_statements(text)
