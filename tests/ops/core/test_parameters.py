"""Calls of ops, split into operands and arguments as ``inspect.signature`` would."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest

from dl4all.ops.core.arguments.call_forms import INPLACE
from dl4all.ops.core.gradient import GradientRule
from dl4all.ops.core.op import REGISTRY
from dl4all.ops.core.parameters import Parameters


def body(
    input: "Array",  # type: ignore[name-defined]  # noqa: F821, UP037
    weight: "Array",  # type: ignore[name-defined]  # noqa: F821, UP037
    bias: "Array | None" = None,  # type: ignore[name-defined]  # noqa: F821, UP037
    size: int = 3,
    mode: str = "same",
    inplace: bool = False,
    *,
    scale: float,
    shift: float = 0.5,
) -> None: ...


PARAMETERS = Parameters(body)
VALUES = {
    "input": np.ones(2), "weight": np.ones(3), "bias": np.zeros(2), "size": 7, "mode": "full", "scale": 2.0,
    "shift": 1.0,
}  # fmt: skip


def test_parts() -> None:
    assert PARAMETERS.arrays == ("input", "weight", "bias")
    assert PARAMETERS.arguments == ("size", "mode", "scale", "shift")
    assert PARAMETERS.optional == {"bias"}
    assert PARAMETERS.defaults == {"size": 3, "mode": "same", "shift": 0.5}


def expected(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if name != INPLACE}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def test_every_way_to_give_values() -> None:
    """All numbers of positional values with all sets of keywords, valid and not."""
    positional = ("input", "weight", "bias", "size", "mode")
    outcomes = {True: 0, False: 0}
    for given in range(len(positional) + 1):
        for count in range(len(VALUES) + 1):
            for keywords in itertools.combinations(VALUES, count):
                args = tuple(VALUES[name] for name in positional[:given])
                kwargs = {name: VALUES[name] for name in keywords}
                try:
                    values = expected(PARAMETERS.signature, args, kwargs)
                except TypeError as error:
                    with pytest.raises(TypeError, match=str(error).replace("(", r"\(").replace(")", r"\)")):
                        PARAMETERS.bind(args, kwargs)
                    outcomes[False] += 1
                    continue
                operands, arguments = PARAMETERS.bind(args, kwargs)
                found = dict(zip(PARAMETERS.arrays, operands, strict=True))
                assert same({**found, **arguments}, values)
                assert tuple(arguments) == PARAMETERS.arguments
                outcomes[True] += 1
    assert min(outcomes.values()) > 20


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1, 2), {"scale": 1.0, "other": 3}), ((1,), {"scale": 1.0}), (tuple(range(9)), {"scale": 1.0})],
)
def test_wrong_calls(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        PARAMETERS.bind(args, kwargs)


def test_defaults_are_copied() -> None:
    _, first = PARAMETERS.bind((1, 2), {"scale": 1.0})
    first["size"] = 99
    assert PARAMETERS.bind((1, 2), {"scale": 1.0})[1]["size"] == 3


def test_operands_come_first() -> None:
    """What is split by positions relies on it."""
    for op in REGISTRY.values():
        names = [name for name in op.signature.parameters if name != INPLACE]
        assert names == [*op.arrays, *op.arguments], op


def test_a_gradient_takes_names() -> None:
    for function in (lambda g, *rest: g, lambda g, **rest: g, lambda g, *, a: g):
        with pytest.raises(ValueError, match=r"\[scale\] a gradient's parameters are names"):
            GradientRule("scale", ("a",), function)


def test_a_plan_takes_what_is_needed() -> None:
    rule = GradientRule(
        "scale", ("a", "b"), (lambda g, b, factor: (g, b, factor), lambda g, needs, a: (g, needs, a))
    )
    assert rule.plan((True, False)).parameters == (("b", 1), ("factor", None))
    assert rule.plan((False, True)).parameters == (("a", 0), ("needs", None))
    both = rule.plan((True, True))
    assert both is rule.plan((True, True))
    assert both.parameters == (("a", 0), ("b", 1), ("factor", None), ("needs", None))
    values = {"a": "A", "b": "B", "factor": 3, "needs": (True, True)}
    found = both("g", [values[name] for name, _ in both.parameters])
    assert found == [("g", "B", 3), ("g", (True, True), "A")]
