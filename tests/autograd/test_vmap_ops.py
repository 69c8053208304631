"""Every op on its own examples for all samples at once, in float64, beside the same op for each sample."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops import batched
from dl4all.ops.op import REGISTRY, Example, Op
from tests.ops.cases import CASES, draw, generator

N = 3
MOST = 5000  # elements of an operand: the longest examples are for kernels


def _small(example: Example) -> bool:
    return all(np.prod(shape) <= MOST for shape in example.shapes if shape is not None)


SMALL = [(op, example) for op, example in CASES if _small(example)]


@pytest.mark.parametrize(("op", "example"), SMALL, ids=[f"{op.name}-{example}" for op, example in SMALL])
def test_each_op(op: Op[...], example: Example) -> None:
    rng = generator("vmap", op.name, str(example))
    arguments: dict[str, Any] = dict(example.arguments)
    given = [i for i, shape in enumerate(example.shapes) if shape is not None]
    subsets = [s for k in range(1, len(given) + 1) for s in itertools.combinations(given, k)]
    if len(subsets) > 3:  # all, the first, and the last
        subsets = [subsets[-1], (given[0],), (given[-1],)]
    for differing in subsets:
        operands: list[Any] = []
        dims: list[int | None] = []
        for i, (name, shape) in enumerate(zip(op.arrays, example.shapes, strict=True)):
            if shape is None:
                operands.append(None)
                dims.append(None)
                continue
            dim = None if i not in differing else -1 if i % 2 else 0
            whole = shape if dim is None else (*shape, N) if dim else (N, *shape)
            operands.append(dl.tensor(draw(op, name, rng, whole, "float64"), device="cpu"))
            dims.append(dim)
        found: Any = dl.vmap(functools.partial(op, **arguments), tuple(dims))(*operands)
        for i in range(N):
            each = [o if d is None else o.select(d, i) for o, d in zip(operands, dims, strict=True)]
            expected = op(*each, **arguments)
            assert (found[i].shape, found.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(found[i].numpy(), expected.numpy(), rtol=1e-9, atol=1e-9)


def test_what_has_no_rule() -> None:
    """The losses by class are made of other ops within vmap, and dropout draws a mask for all samples."""
    without = {name for name, op in REGISTRY.items() if name not in batched.RULES and not op.elementwise}
    by_class = {"cross_entropy_each", "cross_entropy_backward", "nll_each", "nll_backward"}
    assert without == by_class | {"random_dropout"}
    assert batched.RULES.keys() - REGISTRY.keys() == {"elementwise"}
