"""Every op on a device that has no more than Vulkan's least limits, without a driver.

The null device refuses what a real one would get silently wrong: grids, buffers and push constants
that do not fit.
"""

from __future__ import annotations

import dataclasses

import pytest

import dl4all as dl
from dl4all.ops.op import Example, Op
from dl4all.runtime.info import DeviceInfo
from dl4all.runtime.null.backend import NullBackend, describe
from tests.ops.cases import CASES, IDS, LAYOUTS, completed, operands_of

# What ops choose their kernels by.
KINDS: dict[str, tuple[DeviceInfo, frozenset[str]]] = {
    "least": (describe(), frozenset()),
    "discrete": (dataclasses.replace(describe(), type="discrete"), frozenset()),
    "shuffle": (
        dataclasses.replace(describe(), type="software", subgroup_size=8, subgroup_shuffle=True),
        frozenset({"subgroup_shuffle"}),
    ),
    "shuffle and int64": (
        dataclasses.replace(describe(), type="software", subgroup_size=8, subgroup_shuffle=True),
        frozenset({"int64", "subgroup_shuffle"}),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("op", "case"), CASES, ids=IDS)
def test_every_op_launches(op: Op[...], case: Example, layout: str, kind: str) -> None:
    backend = NullBackend(*KINDS[kind])
    place = dl.Device("null:0", backend)
    tensors, _ = operands_of(op, case, LAYOUTS[layout], place)
    shape, dtype = op.infer(*tensors, **completed(op, dict(case.arguments)))
    result = op(*tensors, **dict(case.arguments))
    assert (result.shape, result.dtype) == (shape, dtype)
    assert bool(backend.counts["dispatch"]) == (0 not in shape)  # and nothing fell back to the host
    assert backend.counts["download"] == 0
    del tensors, result
    assert place.pool.stats.allocated == 0
    backend.close()
    assert backend.counts["free"] == backend.counts["allocate"]
    assert backend.counts["free program"] == backend.counts["program"]
