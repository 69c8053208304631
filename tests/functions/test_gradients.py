"""First and second derivatives of functions composed of ops, against finite differences."""

from __future__ import annotations

import inspect

import pytest

import dl4all as dl
from dl4all.errors import GradientError
from dl4all.ops.core.op import REGISTRY
from tests.support import composite_cases, composite_indexing, composite_layers, composite_matrices
from tests.support.composite_cases import Call, Calls
from tests.support.operands import generator, numbers

WITHOUT_GRADIENT = {
    "returns bools or integers": (
        "all allclose any argsort argwhere batched_nms bincount bitwise_left_shift bitwise_right_shift "
        "bucketize equal gcd histc histogram is_nonzero isclose isin isneginf isposinf isreal lcm nms "
        "nonzero one_hot searchsorted signbit unravel_index"
    ),
    "returns random numbers": "bernoulli_ normal_ uniform_",
    "is no function of tensors": "all_shaders broadcast_shapes in_place",
}
CASE_TABLES = [
    composite_cases.ELEMENTWISE,
    composite_cases.CONTRACTIONS,
    composite_cases.ALONG_AXES,
    composite_indexing.REARRANGED,
    composite_indexing.INDEXED,
    composite_layers.ATTENTION,
    composite_layers.IMAGES,
    composite_layers.NORMS,
    composite_layers.LOSSES,
    composite_matrices.MATRICES,
]
# How functions without a gradient are called, if not with one tensor.
SPECIAL_CALLS = {
    "bitwise_left_shift": lambda x: dl.ops.bitwise_left_shift(x.int(), 2),
    "bitwise_right_shift": lambda x: dl.ops.bitwise_right_shift(x.int(), 2),
    "gcd": lambda x: dl.ops.gcd(x.int(), x.int() + 2),
    "lcm": lambda x: dl.ops.lcm(x.int(), x.int() + 2),
    "unravel_index": lambda x: dl.ops.unravel_index(x.int(), (2, 3)),
    "allclose": lambda x: dl.ops.allclose(x, x * 2),
    "bincount": lambda x: dl.ops.bincount((x * 2).int().reshape(-1), x.reshape(-1)),
    "bucketize": lambda x: dl.ops.bucketize(x, x[0]),
    "equal": lambda x: dl.ops.equal(x, x * 2),
    "is_nonzero": lambda x: dl.ops.is_nonzero(x[0, 0]),
    "isclose": lambda x: dl.ops.isclose(x, x * 2),
    "isin": lambda x: dl.ops.isin(x, x[0]),
    "nms": lambda x: dl.ops.nms(x.reshape(1, 4), x[0, :1], 0.5),
    "batched_nms": lambda x: dl.ops.batched_nms(x.reshape(1, 4), x[0, :1], x[0, :1].int(), 0.5),
    "one_hot": lambda x: dl.ops.one_hot(x.int()),
    "searchsorted": lambda x: dl.ops.searchsorted(x[0], x[1]),
}

CALLS: Calls = {name: calls for table in CASE_TABLES for name, calls in table.items()}
CASES = [
    pytest.param(name, c, id=f"{name}-{i}") for name, calls in CALLS.items() for i, c in enumerate(calls)
]


def operands(case: Call, name: str) -> list[dl.Tensor]:
    """Tensors of different elements in float64 on the CPU."""
    rng = generator(name, case.shapes)
    arrays = [
        numbers(rng, s, "float64") if case.limits is None else rng.uniform(*case.limits, s)
        for s in case.shapes
    ]
    return [dl.tensor(array, device="cpu").requires_grad_() for array in arrays]


def test_every_function_has_a_case_or_a_reason() -> None:
    functions = {n for n in dl.ops.__all__ if n not in REGISTRY and inspect.isfunction(getattr(dl.ops, n))}
    listed = {name for names in WITHOUT_GRADIENT.values() for name in names.split()}
    assert functions - listed - set(CALLS) == set()
    assert (set(CALLS) | listed) - functions == set()
    assert listed & set(CALLS) == set()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "case"), CASES)
def test_finite_differences(name: str, case: Call) -> None:
    assert dl.autograd.gradcheck(case.function, operands(case, name))


@pytest.mark.full
@pytest.mark.parametrize(("name", "case"), CASES)
def test_finite_differences_of_gradients(name: str, case: Call) -> None:
    """The usual run leaves them to those of the ops that the functions are made of."""
    assert dl.autograd.gradgradcheck(case.function, operands(case, name))


@pytest.mark.parametrize("name", WITHOUT_GRADIENT["returns bools or integers"].split())
def test_results_without_floats_have_no_gradient(name: str) -> None:
    x = dl.tensor([[1.0, 2.0], [0.5, 3.0]], dtype="float64", device="cpu").requires_grad_()
    result = SPECIAL_CALLS.get(name, getattr(dl.ops, name))(x)
    if isinstance(result, dl.Tensor):
        assert not result.requires_grad
        with pytest.raises(GradientError, match="does not require gradients"):
            result.sum().backward()
