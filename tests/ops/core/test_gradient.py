"""The gradient of every op: finite differences in float64 on the CPU, and other devices against the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import GradientError
from dl4all.ops.core.dtypes import FLOATING, kind_of
from dl4all.ops.core.op import REGISTRY, Example, Op
from tests.support.operands import LAYOUTS, Layout, arrays, close, completed, generator, numbers
from tests.support.subcases import FULL, each_example

# Ops of floats that have no gradient: what calls them adds one node for them and the products around them.
WITHOUT = {"recurrent_sequence", "recurrent_sequence_backward"}
SMALL = 100  # elements: a Jacobian takes two runs for each
TINY = SMALL if FULL else 40  # the same where gradients are differentiated, but for an op's smallest example
DIFFERENTIABLE = [op for op in REGISTRY.values() if op.grad is not None]


def size(example: Example) -> int:
    return sum(math.prod(shape) for shape in example.shapes if shape is not None)


def smallest(op: Op[...]) -> int:
    """The size of the smallest example that has elements, all operands of it."""
    return min(
        size(example)
        for example in op.examples
        if 0 not in (s for shape in example.shapes for s in shape or ())
    )


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
        op.name for op in without if op.infer(*leaves(op, op.examples[0]), **arguments(op))[1] in FLOATING
    }
    assert floats == WITHOUT


@each_example(ops=DIFFERENTIABLE, fits=lambda _, example: size(example) <= SMALL)
def test_finite_differences(op: Op[...], case: Example) -> None:
    _differentiate(dl.autograd.gradcheck, op, case)


@each_example(ops=DIFFERENTIABLE, fits=lambda op, example: size(example) <= max(TINY, smallest(op)), most=6)
def test_finite_differences_of_gradients(op: Op[...], case: Example) -> None:
    _differentiate(dl.autograd.gradgradcheck, op, case)


def _differentiate(check: Callable[..., bool], op: Op[...], case: Example) -> None:
    operands, kwargs = leaves(op, case), dict(case.arguments)
    if dl.no_grad()(op)(*operands, **kwargs).dtype != np.float64:
        pytest.skip("the result is not float64")
    assert check(lambda *o: op(*o, **kwargs), operands)


def test_every_op_has_a_small_example() -> None:
    """Otherwise no test would differentiate it."""
    assert [op.name for op in DIFFERENTIABLE if smallest(op) > SMALL] == []


@pytest.mark.sampled(2)
@each_example("layout", LAYOUTS.values(), ops=DIFFERENTIABLE, most=5)
def test_against_the_cpu(op: Op[...], case: Example, layout: Layout, device: str) -> None:
    """In float32 on every device with every layout of operands, against float64 on the CPU."""
    on_device, on_cpu = list[Any](), list[Any]()
    for array, function in zip(arrays(op, case), declared(op), strict=True):
        if array is None:
            on_device.append(None)
            on_cpu.append(None)
            continue
        tensor, elements = layout(array, device)
        exact = dl.tensor(elements, "float64" if kind_of(elements.dtype) == "f" else None, device="cpu")
        has_gradient = function is not None
        on_device.append(tensor.detach().requires_grad_(has_gradient))
        on_cpu.append(exact.requires_grad_(has_gradient))
    results = []
    for operands in (on_device, on_cpu):
        result = op(*operands, **dict(case.arguments))
        if kind_of(result.dtype) != "f":
            pytest.skip("the result is not of floats")
        weight = numbers(generator(op.name, str(case), "weights"), result.shape)
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
