"""Every op on a device that has no more than Vulkan's least limits, without a driver.

The null device refuses what a real one would get silently wrong: grids, buffers and push constants
that do not fit.
"""

from __future__ import annotations

import dataclasses
import itertools
from math import prod
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.op import REGISTRY, Example, Op
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.ops.pool.windows import sliding
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.null.backend import NullBackend, describe
from tests.support.operands import LAYOUTS, completed, draw, generator, operands_of
from tests.support.subcases import each_example

SHUFFLE = frozenset({"subgroup_shuffle"})
ARITHMETIC = frozenset({"subgroup_arithmetic"})
# What ops choose their kernels by.
KINDS: dict[str, tuple[DeviceInfo, frozenset[str]]] = {
    "least": (describe(), frozenset()),
    "discrete": (dataclasses.replace(describe(), type="discrete"), frozenset()),
    "arithmetic": (
        dataclasses.replace(describe(), type="discrete", subgroup_size=32, features=ARITHMETIC),
        ARITHMETIC,
    ),
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


@pytest.mark.sampled(2)
@each_example("layout, kind", itertools.product(LAYOUTS, KINDS))
def test_every_op_launches(op: Op[...], case: Example, layout: str, kind: str) -> None:
    backend = NullBackend(*KINDS[kind])
    place = dl.Device.of_backend("null:0", backend)
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
    *(
        (name, (shape,), {"dim": dim})
        for name in (
            "sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "count_nonzero", "logsumexp", "norm",
            "var", "std", "cumsum", "cumprod", "cumsum_backward", "log_softmax",
        )
        for shape, dim in (((2**25,), 0), ((2**23, 3), 1), ((2**23, 3), 0), ((3, 2**23), 0), ((3, 2**23), 1))
    ),
    *(
        (name, (shape, shape), {"dim": dim})
        for name in ("softmax_backward", "log_softmax_backward")
        for shape, dim in (((2**23, 3), 1), ((3, 2**23), 0), ((2**25,), 0))
    ),
    ("extreme_backward", ((2**23, 1), (2**23, 3)), {"dim": 1, "largest": True}),
    ("extreme_backward", ((1, 2**23), (3, 2**23)), {"dim": 0, "largest": True}),
    ("extreme_backward", ((1,), (2**25,)), {"dim": 0, "largest": True}),
    *(("sum_to", ((2**13, 2**12),), {"shape": shape}) for shape in ((2**12,), (2**13, 1), ())),
    ("dot", ((2**25,), (2**25,)), {}),
    ("softmax", ((2**23, 3),), {}),
    ("softmax", ((3, 2**23),), {"dim": 0}),
    ("softmax", ((2**25,),), {"dim": 0}),
    ("batch_norm_apply", ((2**23, 3), *((3,),) * 4), {}),
    ("batch_norm_apply", ((1, 2**23), *((2**23,),) * 4), {}),
    ("batch_norm_stats", ((2**23, 3),), {}),
    ("batch_norm_stats", ((2, 2**22),), {}),
    ("batch_norm_stats", ((2, 2**21, 5),), {}),
    ("batch_norm_sums", ((2**23, 3), (2**23, 3), (3,), (3,)), {}),
    ("batch_norm_sums", ((2, 2**22), (2, 2**22), (2**22,), (2**22,)), {}),
    ("batch_norm_backward", ((2**23, 3), (2**23, 3), (3,), (3,), (2, 3), (3,)), {}),
    ("batch_norm_backward", ((2, 2**22), (2, 2**22), *((2**22,),) * 2, (2, 2**22), (2**22,)), {}),
    *(
        (name, (*((2**22, 6),) * count, *((6,),) * weights), {"groups": groups})
        for name, count, weights in (
            ("grouped_norm", 1, 2), ("grouped_norm_backward", 2, 1), ("grouped_norm_sums", 2, 0),
            ("grouped_norm_statistics", 1, 0),
        )
        for groups in (1, 2)
    ),
    ("grouped_norm", ((3, 2**23), (2**23,), (2**23,)), {}),
    ("grouped_norm_sums", ((3, 2**23), (3, 2**23)), {}),
    *(
        (name, ((2**22, 6), (2**22, 6), (2, 2**22 * groups)), {"groups": groups})
        for name in ("normalized_backward", "normalized_sums")
        for groups in (1, 2)
    ),
    ("normalized_sums", ((3, 2**23), (3, 2**23), (2, 3)), {}),
    ("cross_entropy_each", ((2**19, 3, 2), (3,)), {"target": np.zeros(2**20)}),
    ("cross_entropy_each", ((1, 2**24, 1), None), {"target": (5,)}),
    ("cross_entropy_backward", ((2**19, 2), (2**19, 3, 2), (3,)), {"target": np.zeros(2**20)}),
    ("cross_entropy_backward", ((1, 1), (1, 2**24, 1), (2**24,)), {"target": (5,)}),
    ("nll_each", ((2**19, 3, 2), (3,)), {"target": np.zeros(2**20)}),
    ("nll_backward", ((2**19, 2), (3,)), {"target": np.zeros(2**20), "classes": 3}),
    ("nll_backward", ((1, 1), None), {"target": (5,), "classes": 2**24}),
    ("cast", ((2**25,), ), {"dtype": "bool"}),
    ("linear", ((2**22, 4), (5, 4), (5,)), {}),
    ("linear", ((4, 4), (2**21, 4), (2**21,)), {}),
    ("matmul", ((2**21, 4), (4, 5)), {}),
    ("matmul", ((5, 4), (4, 2**21)), {}),
    ("matmul", ((2**21, 2, 3), (2**21, 3, 4)), {}),
    ("conv2d", ((2**19, 1, 5, 5), (2, 1, 3, 3), (2,)), {"padding": 1}),
    ("conv2d", ((1, 3, 3000, 3000), (3, 3, 3, 3), (3,)), {"padding": 1}),
    ("conv2d", ((2**20, 4, 2, 2), (4, 4, 1, 1), None), {}),
    ("conv2d", ((1, 2, 4096, 4096), (2, 1, 3, 3), None), {"padding": 1, "groups": 2}),
    ("conv2d", ((2**18, 2, 4, 4), (2, 1, 3, 3), None), {"groups": 2}),
    ("conv1d", ((2**20, 1, 5), (2, 1, 3), (2,)), {"padding": 1}),
    ("conv3d", ((1, 1, 99, 300, 300), (3, 1, 3, 3, 3), None), {"padding": 1}),
    ("conv_input", ((2**19, 2, 5, 5), (2, 1, 3, 3)), {"input_size": (5, 5), "padding": 1}),
    ("conv_input", ((1, 3, 1800, 1800), (3, 3, 3, 3)), {"input_size": (1800, 1800), "padding": 1}),
    ("conv_input", ((2**20, 4, 2, 2), (4, 4, 1, 1)), {"input_size": (2, 2)}),
    ("conv_input", ((1, 2, 4096, 4096), (2, 1, 1, 1)), {"input_size": (4096, 4096), "groups": 2}),
    ("conv_weight", ((2**19, 2, 5, 5), (2**19, 1, 5, 5)), {"kernel_size": (3, 3), "padding": 1}),
    ("conv_weight", ((1, 3, 3000, 3000), (1, 3, 3000, 3000)), {"kernel_size": (3, 3), "padding": 1}),
    ("conv_weight", ((2**20, 4, 2, 2), (2**20, 4, 2, 2)), {"kernel_size": (1, 1)}),
    ("conv_weight", ((1, 2, 4096, 4096),) * 2, {"kernel_size": (1, 1), "groups": 2}),
    ("max_pool2d", ((2**20, 2, 4, 4), ), {"kernel_size": 2}),
    ("max_pool_at", ((2**20, 2, 4, 4), ) * 2, {"pooling": sliding("", (4, 4), 2, 2, 0, 1, False)}),
    ("max_pool_backward", ((2**20, 2, 2, 2), (2**20, 2, 4, 4)),
     {"pooling": sliding("", (4, 4), 2, 2, 0, 1, False)}),
    ("avg_pool2d", ((2**20, 2, 4, 4), ), {"kernel_size": 2}),
    ("avg_pool_backward", ((2**20, 2, 2, 2), ), {"pooling": sliding("", (4, 4), 2, 2, 0, 1, False)}),
    ("adaptive_max_pool2d", ((2**20, 2, 4, 4), ), {"output_size": 3}),
    ("adaptive_avg_pool2d", ((2**20, 2, 4, 4), ), {"output_size": 3}),
    ("index_backward", ((2**22, 5), ), {"key": (slice(None), slice(1, 6)), "shape": (2**22, 7)}),
    ("take_rows", ((1, 2**23, 4), ), {"index": (2**23 - 1, 0)}),
    ("take_rows", ((2**22, 3, 2), ), {"index": (1, 2, 0)}),
    ("take_rows_backward", ((1, 5, 4), ), {"index": (0, 2, 0, 1, 1), "size": 2**23}),
    ("put_rows", ((2**23, 4), (2, 4)), {"index": (2**23 - 1, 0)}),
    ("random_dropout", ((2**25,), ), {"p": 0.5, "seed": 1, "offset": 0}),
    ("random_dropout", ((2**23, 3), ), {"p": 0.5, "seed": 1, "offset": 0, "inner": 3}),
    ("lstm_step", ((2**18, 128), (2**18, 128), (2**18, 32)), {}),
    ("lstm_step_backward", ((2, 2**17, 32), (2**17, 128), (2**17, 32)), {}),
    ("gru_step", ((2**18, 96), (2**18, 96), (2**18, 32)), {}),
    ("gru_step_backward", ((2**17, 32), (2**17, 96), (2**17, 96), (2**17, 32)), {}),
    ("recurrent_sequence", ((2**18, 128), (2**18, 32), (128, 32), (2**18, 32), None, None),
     {"sizes": (2**18,), "save": False}),
    ("recurrent_sequence_backward", ((2**18, 32), (3 * 2**23,), (32, 32), None, None, None),
     {"sizes": (2**18,), "mode": "tanh"}),
    ("flash_attention", ((2**18, 4, 16), (2**18, 3, 16), (2**18, 3, 16), (1, 4, 3)), {}),
    ("flash_attention", ((1, 2**20, 16), (1, 2**20, 16), (1, 2**20, 15), None), {"causal": True}),
    ("flash_attention_backward", ((2**17 * 2 * 18,), *((2**17, 2, 16),) * 3, (1, 2, 2)), {}),
    ("flash_attention_backward", ((2**18 * 18,), *((1, 2**18, 16),) * 3, None), {"causal": True}),
    ("tril", ((2**13, 2**12), ), {}),
    ("triu", ((2**21, 4, 4), ), {}),
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "shapes", "arguments"), LARGE)
def test_grids_of_large_operands_fit(
    name: str, shapes: tuple[tuple[int, ...] | None, ...], arguments: dict[str, Any]
) -> None:
    backend = NullBackend()
    place = dl.Device.of_backend("null:0", backend)
    operands = [
        None if shape is None else dl.Tensor(place.allocate(4 * prod(shape)), shape, dtype, place)
        for shape, dtype in zip(shapes, _dtypes(REGISTRY[name], len(shapes)), strict=True)
    ]
    REGISTRY[name](*operands, **arguments)
    assert backend.counts["dispatch"]
    assert backend.counts["download"] == 0


def _dtypes(op: Op[...], count: int) -> list[Any]:
    """What an op takes, float32 if it may."""
    if not isinstance(op, Elementwise):
        return [dl.float32] * count
    return [draw(op, name, generator(), (), "float32").dtype for name in op.arrays]


def test_every_op_has_large_operands() -> None:
    assert {name for name, _, _ in LARGE} == set(REGISTRY)


@pytest.mark.parametrize(("left", "right"), [((2**22, 4), (4, 5)), ((5, 4), (4, 2**22))])
def test_products_past_the_largest_grid_are_split(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """65535 tiles of 64 along each side is the most at once."""
    backend = NullBackend()
    place = dl.Device.of_backend("null:0", backend)
    a, b = (dl.Tensor(place.allocate(4 * prod(s)), s, dl.float32, place) for s in (left, right))
    REGISTRY["matmul"](a, b)
    assert backend.counts["dispatch"] == 2
