"""Gradients of the functions that are made of ops, and gradients of these: against finite differences."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import dl4all as dl
from dl4all.errors import GradientError
from dl4all.ops.core.op import REGISTRY
from tests.support import composite_cases, composite_layers
from tests.support import composite_indexing as composite_moves
from tests.support.composite_cases import Call, Calls
from tests.support.operands import generator, numbers

WITHOUT = {
    "bools or integers come out": (
        "all allclose any argsort argwhere bincount bucketize equal histc is_nonzero isclose isin isneginf "
        "isposinf isreal nonzero one_hot searchsorted signbit"
    ),
    "random numbers come out": "bernoulli_ normal_ uniform_",
    "no functions of tensors": "all_shaders in_place",
}
FAMILIES = [
    composite_cases.ELEMENTS,
    composite_cases.CONTRACTIONS,
    composite_cases.ALONG_AXES,
    composite_moves.ARRANGED,
    composite_moves.PLACED,
    composite_layers.IMAGES,
    composite_layers.NORMS,
    composite_layers.LOSSES,
]
REFUSED = {
    "allclose": lambda x: dl.ops.allclose(x, x * 2),
    "bincount": lambda x: dl.ops.bincount((x * 2).int().reshape(-1), x.reshape(-1)),
    "bucketize": lambda x: dl.ops.bucketize(x, x[0]),
    "equal": lambda x: dl.ops.equal(x, x * 2),
    "is_nonzero": lambda x: dl.ops.is_nonzero(x[0, 0]),
    "isclose": lambda x: dl.ops.isclose(x, x * 2),
    "isin": lambda x: dl.ops.isin(x, x[0]),
    "one_hot": lambda x: dl.ops.one_hot(x.int()),
    "searchsorted": lambda x: dl.ops.searchsorted(x[0], x[1]),
}
"""How these are called, where not with one tensor."""
CALLS: Calls = {name: calls for family in FAMILIES for name, calls in family.items()}
CASES = [
    pytest.param(name, c, id=f"{name}-{i}") for name, calls in CALLS.items() for i, c in enumerate(calls)
]


def operands(given: Call, name: str) -> list[dl.Tensor]:
    """Elements in float64 on the CPU, no two alike."""
    rng = generator(name, given.shapes)
    made = [
        numbers(rng, s, "float64") if given.limits is None else rng.uniform(*given.limits, s)
        for s in given.shapes
    ]
    return [dl.tensor(array, device="cpu").requires_grad_() for array in made]


def test_every_function_has_a_case_or_a_reason() -> None:
    functions = {n for n in dl.ops.__all__ if n not in REGISTRY and inspect.isfunction(getattr(dl.ops, n))}
    listed = {name for names in WITHOUT.values() for name in names.split()}
    assert functions - listed - set(CALLS) == set()
    assert (set(CALLS) | listed) - functions == set()
    assert listed & set(CALLS) == set()


@pytest.mark.parametrize("check", [dl.autograd.gradcheck, dl.autograd.gradgradcheck], ids=["first", "second"])
@pytest.mark.parametrize(("name", "given"), CASES)
def test_finite_differences(name: str, given: Call, check: Any) -> None:
    assert check(given.function, operands(given, name))


@pytest.mark.parametrize("name", WITHOUT["bools or integers come out"].split())
def test_what_gives_no_floats_records_nothing(name: str) -> None:
    """Asked for a gradient it refuses: nothing was recorded."""
    x = dl.tensor([[1.0, 2.0], [0.5, 3.0]], dtype="float64", device="cpu").requires_grad_()
    found = REFUSED.get(name, getattr(dl.ops, name))(x)
    if isinstance(found, dl.Tensor):
        assert not found.requires_grad
        with pytest.raises(GradientError, match="does not require gradients"):
            found.sum().backward()
