"""The expressions of elementwise ops: parsed, printed and computed, for every op that there is."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dl4all.errors import ShaderError
from dl4all.ops import REGISTRY
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.expressions.expression import (
    FUNCTIONS,
    Conditional,
    Constant,
    Name,
    evaluate,
    functions_of,
    parse,
    print_glsl,
    substitute,
)
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.ops.memory.conversion import CASTABLE_DTYPES, conversion_expression
from tests.support.operands import close, completed, draw, generator

DECLARED = [(op, dtype) for op in REGISTRY.values() if isinstance(op, Elementwise) for dtype in op.by_dtype]
IDS = [f"{op.name}-{dtype}" for op, dtype in DECLARED]
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.5, -100.0, 1e-40], np.float32)


@pytest.mark.parametrize(("op", "dtype"), DECLARED, ids=IDS)
def test_every_expression_is_printed_as_what_it_was_parsed_from(op: Elementwise[...], dtype: str) -> None:
    tree = op.expression(dtype)
    assert tree is not None
    assert parse(print_glsl(tree)) == tree
    assert functions_of(tree) <= FUNCTIONS.keys()
    text = dict(op.by_dtype[dtype].contiguous.shader.defines)
    assert parse(next(value for name, value in text.items() if name.startswith("OP("))) == tree


@pytest.mark.parametrize(("op", "dtype"), DECLARED, ids=IDS)
def test_every_expression_computes_what_the_body_computes(op: Elementwise[...], dtype: str) -> None:
    rng = generator("expression", op.name, dtype)
    operands = [draw(op, name, rng, (5, 7), dtype) for name in op.arrays]
    arguments = completed(op, {"beta": 1.5} if op.name.startswith("smooth") else {}, dtype)
    _compare(op, dtype, operands, arguments)


@pytest.mark.parametrize("op", [op for op, dtype in DECLARED if dtype == "float32"], ids=lambda op: op.name)
def test_special_values(op: Elementwise[...]) -> None:
    operands: list[Any] = [
        np.array(values, bool if condition else np.float32)
        for values, condition in zip(
            zip(*itertools.product(SPECIAL, repeat=len(op.arrays)), strict=True), op.conditions, strict=True
        )
    ]
    # Bodies that compute in another order than kernels have nan in place of inf, or the other way round.
    if op.name in (
        "hardswish",
        "smooth_error",
        "smooth_error_backward",
        "silu_backward",
        "gelu_tanh_backward",
    ):
        keep = np.logical_and.reduce([np.isfinite(operand) for operand in operands])
        operands = [operand[keep] for operand in operands]
    _compare(op, "float32", operands, completed(op, {}))


def _compare(op: Elementwise[...], dtype: str, operands: list[Any], arguments: dict[str, Any]) -> None:
    tree = op.expression(dtype)
    assert tree is not None
    names = ("x",) if len(operands) == 1 else ("a", "b", "c")
    values = dict(zip(names, operands, strict=False)) | {f"p.{n}": v for n, v in arguments.items()}
    with np.errstate(all="ignore"):
        expected = np.asarray(op.body(*operands, **arguments))
    got = np.broadcast_to(evaluate(tree, values), expected.shape).astype(expected.dtype)
    if kind_of(expected.dtype) == "f":
        close(got, expected, 1e-5)
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("source", CASTABLE_DTYPES)
@pytest.mark.parametrize("target", CASTABLE_DTYPES)
def test_conversions(source: str, target: str) -> None:
    values = np.array([0, 1, -3, 100, 2.75, -0.5], np.float32)
    array = np.abs(values).astype(source) if source in ("uint8", "bool") else values.astype(source)
    if target == "uint8":
        array = np.abs(array)
    got = evaluate(conversion_expression(source, target), {"x": array}).astype(target)
    np.testing.assert_array_equal(got, array.astype(target))


def test_precedence() -> None:
    assert parse("a + b * c") == parse("a + (b * c)") != parse("(a + b) * c")
    assert parse("a - b - c") == parse("(a - b) - c") != parse("a - (b - c)")
    assert parse("a < b ? a : b < c ? b : c") == parse("(a < b) ? a : ((b < c) ? b : c)")
    assert parse("!a == b") == parse("(!a) == b")
    assert print_glsl(parse("a - (b - c)")) == "a - (b - c)"
    assert print_glsl(parse("(a < b ? a : b) * 2.0")) == "(a < b ? a : b) * 2.0"
    assert print_glsl(parse("-(-x)")) == "-(-x)"
    assert print_glsl(parse("(a ? b : c) ? d : e")) == "(a ? b : c) ? d : e"
    assert isinstance(parse("a ? b : c"), Conditional)


def test_names_and_substitution() -> None:
    tree = parse("a + p.alpha * b")
    assert print_glsl(tree, {"a": "v0", "p.alpha": "p.k1"}) == "v0 + p.k1 * b"
    assert print_glsl(substitute(tree, {"b": parse("c - d"), "p.alpha": Constant("2.0")})) == (
        "a + 2.0 * (c - d)"
    )
    assert substitute(parse("expf(-x) ? !x : x"), {"x": Name("y")}) == parse("expf(-y) ? !y : y")


@pytest.mark.parametrize("text", ["", "a +", "a b", "(a", "f(a", "f(a b)", "a ? b", "a = b", "a ; b", "a[0]"])
def test_text_that_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ShaderError, match=r"\[expression\] expected"):
        parse(text)


def test_numbers_take_the_dtype_of_the_arrays() -> None:
    result = evaluate(parse("a + p.alpha * b"), {"a": np.array([1], np.float32), "b": 2, "p.alpha": 3})
    assert result.dtype == np.float32
    assert result.tolist() == [7]
    assert evaluate(parse("x + 0.5"), {"x": np.array([1.0])}).dtype == np.float64
    assert evaluate(parse("a & b"), {"a": np.array([True]), "b": np.array([False])}).dtype == np.int32
