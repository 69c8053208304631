"""Every op on a device that has no more than Vulkan's least limits, without a driver.

The null device refuses what a real one would get silently wrong: grids, buffers and push constants
that do not fit.
"""

from __future__ import annotations

import dataclasses
from math import prod
from typing import Any

import pytest

import dl4all as dl
from dl4all.ops.op import REGISTRY, Example, Op
from dl4all.runtime.info import DeviceInfo
from dl4all.runtime.null.backend import NullBackend, describe
from tests.ops.cases import CASES, IDS, LAYOUTS, completed, operands_of

SHUFFLE = frozenset({"subgroup_shuffle"})
# What ops choose their kernels by.
KINDS: dict[str, tuple[DeviceInfo, frozenset[str]]] = {
    "least": (describe(), frozenset()),
    "discrete": (dataclasses.replace(describe(), type="discrete"), frozenset()),
    "shuffle": (
        dataclasses.replace(describe(), type="software", subgroup_size=8, features=SHUFFLE),
        SHUFFLE,
    ),
    "shuffle and int64": (
        dataclasses.replace(describe(), type="software", subgroup_size=8, features=SHUFFLE),
        SHUFFLE | {"int64"},
    ),
}


@pytest.fixture
def poisoned() -> None:
    """Instead of the one that fills memory: there is none."""


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


# 2**25 elements are 2**27 bytes, the most that can be bound; 64 to a workgroup makes 2**19 of them.
LARGE: list[tuple[str, tuple[tuple[int, ...] | None, ...], dict[str, Any]]] = [
    *((op.name, ((2**25,),) * len(op.arrays), {}) for op in REGISTRY.values() if op.elementwise),
    *((op.name, ((2**13, 2**12),) * len(op.arrays), {}) for op in REGISTRY.values() if op.elementwise),
    ("softmax", ((2**23, 3),), {}),
    ("softmax", ((3, 2**23),), {"dim": 0}),
    ("softmax", ((2**25,),), {"dim": 0}),
    ("batch_norm", ((2**23, 3), *((3,),) * 4), {}),
    ("batch_norm", ((1, 2**23), *((2**23,),) * 4), {}),
    ("linear", ((2**22, 4), (5, 4), (5,)), {}),
    ("linear", ((4, 4), (2**21, 4), (2**21,)), {}),
    ("matmul", ((2**21, 4), (4, 5)), {}),
    ("matmul", ((5, 4), (4, 2**21)), {}),
    ("matmul", ((2**21, 2, 3), (2**21, 3, 4)), {}),
    ("conv2d", ((2**19, 1, 5, 5), (2, 1, 3, 3), (2,)), {"padding": 1}),
    ("conv2d", ((1, 3, 3000, 3000), (3, 3, 3, 3), (3,)), {"padding": 1}),
    ("conv2d", ((2**20, 4, 2, 2), (4, 4, 1, 1), None), {}),
    ("max_pool2d", ((2**20, 2, 4, 4), ), {"kernel_size": 2}),
    ("adaptive_avg_pool2d", ((2**20, 2, 4, 4), ), {"output_size": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shapes", "arguments"), LARGE)
def test_grids_of_large_operands_fit(
    name: str, shapes: tuple[tuple[int, ...] | None, ...], arguments: dict[str, Any]
) -> None:
    backend = NullBackend()
    place = dl.Device("null:0", backend)
    operands = [
        None if shape is None else dl.Tensor(place.allocate(4 * prod(shape)), shape, dl.float32, place)
        for shape in shapes
    ]
    REGISTRY[name](*operands, **arguments)
    assert backend.counts["dispatch"]
    assert backend.counts["download"] == 0


def test_every_op_has_large_operands() -> None:
    assert {name for name, _, _ in LARGE} == set(REGISTRY)


@pytest.mark.parametrize(("left", "right"), [((2**22, 4), (4, 5)), ((5, 4), (4, 2**22))])
def test_products_past_the_largest_grid_are_split(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """65535 tiles of 64 along each side is the most at once."""
    backend = NullBackend()
    place = dl.Device("null:0", backend)
    a, b = (dl.Tensor(place.allocate(4 * prod(s)), s, dl.float32, place) for s in (left, right))
    REGISTRY["matmul"](a, b)
    assert backend.counts["dispatch"] == 2
