"""Compares every op within ``vmap`` with the same op for each sample, on its examples in float64."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.op import REGISTRY, Example, Op
from dl4all.ops.vmap import batched_tensor
from tests.functions.test_gradients import CASES as COMPOSITES
from tests.support.composite_cases import Call, floating
from tests.support.operands import draw, generator, numbers
from tests.support.subcases import each_example
from tests.support.vmap_cases import loop

N = 3
MAX_ELEMENTS = 5000  # of an operand: the longest examples are for kernels


def _small(_: Op[...], example: Example) -> bool:
    return all(np.prod(shape) <= MAX_ELEMENTS for shape in example.shapes if shape is not None)


@each_example(fits=_small)
def test_each_op(op: Op[...], case: Example) -> None:
    rng = generator("vmap", op.name, str(case))
    arguments: dict[str, Any] = dict(case.arguments)
    given = [i for i, shape in enumerate(case.shapes) if shape is not None]
    subsets = [s for k in range(1, len(given) + 1) for s in itertools.combinations(given, k)]
    if len(subsets) > 3:  # all, the first, and the last
        subsets = [subsets[-1], (given[0],), (given[-1],)]
    for differing in subsets:
        operands: list[Any] = []
        dims: list[int | None] = []
        for i, (name, shape) in enumerate(zip(op.arrays, case.shapes, strict=True)):
            if shape is None:
                operands.append(None)
                dims.append(None)
                continue
            dim = None if i not in differing else -1 if i % 2 else 0
            whole = shape if dim is None else (*shape, N) if dim else (N, *shape)
            operands.append(dl.tensor(draw(op, name, rng, whole, "float64"), device="cpu"))
            dims.append(dim)
        outcomes: Any = dl.vmap(functools.partial(op, **arguments), tuple(dims))(*operands)
        for i in range(N):
            each = [o if d is None else o.select(d, i) for o, d in zip(operands, dims, strict=True)]
            expected = op(*each, **arguments)
            assert (outcomes[i].shape, outcomes.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(outcomes[i].numpy(), expected.numpy(), rtol=1e-9, atol=1e-9)


def test_ops_without_a_batching_rule() -> None:
    """Losses by class and sequences are made of other ops within vmap; dropout draws one mask for all."""
    without = {
        name for name, op in REGISTRY.items() if name not in batched_tensor.RULES and not op.elementwise
    }
    by_class = {"cross_entropy_each", "cross_entropy_backward", "nll_each", "nll_backward"}
    sequences = {"recurrent_sequence", "recurrent_sequence_backward"}
    assert without == by_class | sequences | {"random_dropout"}
    assert batched_tensor.RULES.keys() - REGISTRY.keys() == {"elementwise"}


RANDOM = {"dropout", "dropout1d", "dropout2d", "dropout3d"}
"""Functions whose random numbers differ from those in a loop."""
CHANGES = {"copy_", "setitem"}
"""Functions that change their first operand, which must not be shared by all samples."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "given"), COMPOSITES)
def test_functions_made_of_ops(name: str, given: Call) -> None:
    """Results and gradients, within and through, where all operands differ and where each alone does."""
    if name in RANDOM:
        return
    places = range(len(given.shapes))
    for differing in {tuple(places), *((i,) for i in places)}:
        rng = generator("vmap", name, given.shapes, differing)
        dims = tuple(0 if i in differing else None for i in places)
        wholes = [(N, *shape) if i in differing else shape for i, shape in enumerate(given.shapes)]
        limits = given.limits
        arrays = [rng.uniform(*limits, s) if limits else numbers(rng, s, "float64") for s in wholes]
        if name in CHANGES and 0 not in differing:
            continue
        outcomes = [_everything(vmap, given.function, arrays, dims) for vmap in (dl.vmap, loop)]
        for one, other in zip(*outcomes, strict=True):
            largest = float(np.abs(other[np.isfinite(other)]).max(initial=1))
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-10 * largest)


def _everything(vmap: Any, function: Any, arrays: list[Any], dims: tuple[int | None, ...]) -> list[Any]:
    dl.manual_seed(3)

    def floats(*operands: Any) -> Any:
        return floating(function(*operands))

    def total(*operands: Any) -> Any:
        return sum(
            ((p * p).sum() + p.sum() for p in floats(*operands)), dl.zeros((), dtype="float64", device="cpu")
        )

    leaves = [dl.tensor(array, device="cpu").requires_grad_() for array in arrays]
    results = vmap(floats, dims)(*leaves)
    within = vmap(lambda *operands: dl.autograd.vjp(total, operands)[1], dims)(*leaves)
    shares = dl.tensor(np.linspace(-1, 2, N), device="cpu")
    through = dl.grad((vmap(total, dims)(*leaves) * shares).sum(), leaves, allow_unused=True)
    return [part.detach().numpy() for part in (*results, *within, *through) if part is not None]
