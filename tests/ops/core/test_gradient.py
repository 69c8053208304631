"""The gradient of every op: finite differences in float64 on the CPU, and other devices against the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import GradientError
from dl4all.ops.core.op import REGISTRY, Example, Op
from tests.support.operands import LAYOUTS, Layout, arrays, close, completed, generator, numbers
from tests.support.subcases import each

# Ops of floats that have no gradient yet.
WITHOUT: set[str] = set()
SMALL = 100  # elements: a Jacobian takes two runs for each
DIFFERENTIABLE = [op for op in REGISTRY.values() if op.grad is not None]
CASES = [(op, example) for op in DIFFERENTIABLE for example in op.examples]
IDS = [f"{op.name}-{example}" for op, example in CASES]


def size(example: Example) -> int:
    return sum(math.prod(shape) for shape in example.shapes if shape is not None)


def arguments(op: Op[...]) -> dict[str, Any]:
    """The arguments of the first example."""
    return completed(op, dict(op.examples[0].arguments))


def declared(op: Op[...]) -> tuple[Any, ...]:
    """The gradient's function for each operand."""
    return op.grad if isinstance(op.grad, tuple) else (op.grad,) * len(op.arrays)


def leaves(op: Op[...], example: Example) -> list[dl.Tensor | None]:
    """Operands in float64 on the CPU; those with a declared gradient require it."""
    tensors = [None if a is None else dl.tensor(a, device="cpu") for a in arrays(op, example, "float64")]
    for tensor, function in zip(tensors, declared(op), strict=True):
        if tensor is not None and function is not None:
            tensor.requires_grad_()
    return tensors


def test_every_op_of_floats_has_a_gradient() -> None:
    """Except for those listed above; results of bools and integers have none."""
    without = [op for op in REGISTRY.values() if op.grad is None]
    floats = {
        op.name for op in without if op.infer(*leaves(op, op.examples[0]), **arguments(op))[1].kind == "f"
    }
    assert floats == WITHOUT


@pytest.mark.parametrize("check", [dl.autograd.gradcheck, dl.autograd.gradgradcheck], ids=["first", "second"])
@pytest.mark.parametrize(("op", "example"), CASES, ids=IDS)
def test_finite_differences(op: Op[...], example: Example, check: Any) -> None:
    if size(example) > SMALL:
        pytest.skip("smaller examples are differentiated, and this one is compared between devices")
    operands, kwargs = leaves(op, example), dict(example.arguments)
    if dl.no_grad()(op)(*operands, **kwargs).dtype != np.float64:
        pytest.skip("the result is not float64")
    assert check(lambda *o: op(*o, **kwargs), operands)


def test_every_op_has_a_small_example() -> None:
    """Otherwise no test would differentiate it."""
    small = {op.name for op, example in CASES if 0 < size(example) <= SMALL}
    assert small == {op.name for op in DIFFERENTIABLE}


@pytest.mark.parametrize(("op", "example"), CASES, ids=IDS)
@each("layout", LAYOUTS.values())
def test_against_the_cpu(op: Op[...], example: Example, layout: Layout, device: str) -> None:
    """In float32 on every device with every layout of operands, against float64 on the CPU."""
    on_device, on_cpu = list[Any](), list[Any]()
    for array, function in zip(arrays(op, example), declared(op), strict=True):
        if array is None:
            on_device.append(None)
            on_cpu.append(None)
            continue
        tensor, elements = layout(array, device)
        exact = dl.tensor(elements, "float64" if elements.dtype.kind == "f" else None, device="cpu")
        has_gradient = function is not None
        on_device.append(tensor.detach().requires_grad_(has_gradient))
        on_cpu.append(exact.requires_grad_(has_gradient))
    results = []
    for operands in (on_device, on_cpu):
        result = op(*operands, **dict(example.arguments))
        if result.dtype.kind != "f":
            pytest.skip("the result is not of floats")
        weight = numbers(generator(op.name, str(example), "weights"), result.shape)
        result.backward(dl.tensor(weight.astype(result.dtype), device=result.device))
        results.append([None if o is None or o.grad is None else o.grad.numpy() for o in operands])
    for got, expected in zip(*results, strict=True):
        assert (got is None) == (expected is None)
        if got is not None:
            assert got.dtype == np.float32
            close(got.astype(np.float64), expected.astype(np.float64), 2e-5)


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_an_op_without_a_gradient_says_so(name: str) -> None:
    op = REGISTRY[name]
    example = op.examples[0]
    operands: list[Any] = [
        None if a is None else dl.tensor(a, device="cpu").requires_grad_() for a in arrays(op, example)
    ]
    result = op(*operands, **dict(example.arguments))
    with pytest.raises(GradientError, match=rf"^\[{name}\] has no gradient"):
        result.backward(dl.tensor(np.ones(result.shape, np.float32), device="cpu"))
