"""Every op leaves alone what lies behind its operands: a driver that checks bounds hides where one does not."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops import REGISTRY
from dl4all.ops.core.op import Op
from tests.conftest import need
from tests.support.operands import arrays, compare, generator, numbers, reference

pytestmark = pytest.mark.vulkan
OPS = list(REGISTRY.values())


@pytest.fixture(scope="module")
def guarded() -> Iterator[dl.Device]:
    """A device that looks at the guard behind each operand of each launch."""
    need("vulkan:0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DL4ALL_MEMORY_DEBUG", "1")
        device = dl.Device("guarded:0", dl.device("vulkan:0")._backend)
    yield device
    gc.collect()


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op(op: Op[...], guarded: dl.Device) -> None:
    example = next(e for e in op.examples if e.shapes[0] is not None and 0 not in e.shapes[0])
    elements = arrays(op, example)
    tensors = [None if a is None else dl.tensor(a, device=guarded) for a in elements]
    result = op(*tensors, **dict(example.arguments))
    compare(result, reference(op, list(elements), **dict(example.arguments)))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_linear_of_few_rows(rows: int, guarded: dl.Device) -> None:
    """Which a kernel takes by four."""
    rng = generator("few rows", rows)
    x, w, b = numbers(rng, (rows, 13)), numbers(rng, (67, 13)), numbers(rng, (67,))
    result = dl.nn.functional.linear(*(dl.tensor(a, device=guarded) for a in (x, w, b)))
    np.testing.assert_allclose(result.numpy(), x @ w.T + b, rtol=1e-5, atol=1e-5)
