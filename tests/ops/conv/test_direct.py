"""Direct convolution as GPUs compute it, with every form of its kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.conv import direct as module
from dl4all.ops.conv.algorithms import forced
from dl4all.ops.conv.direct import (
    EXCHANGED_SUMS,
    GPU_WORKGROUP,
    MAX_SUMS_OF_ROWS,
    _filters_and_rows,
    _workgroup,
)
from dl4all.runtime.null.backend import describe
from tests.conftest import need
from tests.ops.conv.test_algorithms import conv

DISCRETE = replace(describe(), type="discrete")

# Images and gradients that can be read four elements at a time, and others. Rows that end with a short quad,
# or are one. One row of the filters at a time, and all. Strides, dilation, groups and volumes.
CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((3, 5, 9, 12), (9, 5, 3, 3), {"padding": 1}),
    ((2, 3, 7, 7), (5, 3, 3, 3), {"padding": 1}),
    ((2, 3, 9, 16), (6, 3, 3, 3), {"padding": 1, "stride": 2}),
    ((2, 4, 8, 14), (17, 4, 5, 5), {"padding": 2}),
    ((2, 3, 12, 24), (10, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((2, 6, 10, 9), (8, 3, 3, 2), {"padding": (2, 0), "dilation": (1, 3), "groups": 2}),
    ((2, 3, 6, 8), (20, 3, 1, 1), {"stride": 2}),
    ((2, 2, 5, 3), (3, 2, 3, 3), {"padding": 1}),
    ((2, 2, 4, 5, 6), (5, 2, 3, 2, 3), {"padding": (2, 0, 1), "dilation": (2, 1, 1), "stride": (1, 2, 1)}),
    ((2, 2, 3, 4, 8), (4, 2, 2, 3, 3), {"padding": 1}),
)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dl.Device:
    """The device, which takes itself for a GPU without subgroups."""
    need("vulkan:0")
    device = dl.device("vulkan:0")
    info = replace(device.info, type="discrete", features=frozenset())
    monkeypatch.setattr(device, "info", info)
    assert _workgroup(device.info) == GPU_WORKGROUP
    return device


@pytest.mark.vulkan
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions_and_gradients_as_on_gpus(gpu: dl.Device, case: Any) -> None:
    shape, filters, arguments = case
    rng = np.random.default_rng(len(shape) + filters[0])
    x, w, bias = (rng.standard_normal(size, np.float32) for size in (shape, filters, filters[:1]))
    convolve = getattr(dl.nn.functional, f"conv{len(shape) - 2}d")
    host = [dl.tensor(array, device="cpu") for array in (x, w, bias)]
    places = [dl.tensor(array, device=gpu) for array in (x, w, bias)]
    expected = convolve(*host, **arguments).numpy()
    g = rng.standard_normal(expected.shape, np.float32)
    size = {"kernel_size": filters[2:], **arguments}
    wants = [expected, dl.ops.conv_weight(dl.tensor(g, device="cpu"), host[0], **size).numpy()]
    with forced("direct"):
        gots = [
            convolve(*places, **arguments).numpy(),
            dl.ops.conv_weight(dl.tensor(g, device=gpu), places[0], **size).numpy(),
        ]
    if "stride" not in arguments:
        size = {"input_size": shape[2:], **arguments}
        wants.append(dl.ops.conv_input(dl.tensor(g, device="cpu"), host[1], **size).numpy())
        with forced("direct"):
            gots.append(dl.ops.conv_input(dl.tensor(g, device=gpu), places[1], **size).numpy())
    for got, want in zip(gots, wants, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * np.abs(want).max())


@pytest.mark.vulkan
@pytest.mark.parametrize("width", [7, 8], ids=["short quads", "whole quads"])
def test_what_a_quad_does_not_touch_adds_nothing(gpu: dl.Device, width: int) -> None:
    """Infinite elements of an image reach only the elements of the filters that meet them."""
    rng = np.random.default_rng(3)
    x = np.abs(rng.standard_normal((1, 1, 5, width), np.float32)) + 1
    g = np.abs(rng.standard_normal((1, 2, 5, width), np.float32)) + 1
    x[0, 0, 0, width - 1] = np.inf
    with forced("direct"):
        got = dl.ops.conv_weight(
            dl.tensor(g, device=gpu), dl.tensor(x, device=gpu), kernel_size=(3, 3), padding=1
        ).numpy()
    meets = np.array([[0, 1, 1], [0, 1, 1], [0, 0, 0]], bool)  # the corner, as the padding lies around it
    assert (np.isfinite(got) == ~meets).all()


@pytest.mark.parametrize("filters", [3, 8, 64])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5, 7, 9, (1, 20), (9, 4)])
def test_an_invocation_has_as_many_sums_as_registers_and_exchanges_hold(filters: int, kernel: Any) -> None:
    problem = conv(1, 4, filters, 40, kernel=kernel)
    height, width = problem.win.kernel[1:]
    assert module.ALGORITHM.supports(DISCRETE, problem, "weight_gradient")
    block, rows = _filters_and_rows(DISCRETE, problem)
    assert rows in (1, height)
    assert block < 2 * max(filters, 4)
    assert block * rows * width <= MAX_SUMS_OF_ROWS <= 5 * EXCHANGED_SUMS


def test_rows_of_filters_that_registers_cannot_hold_are_left_to_others() -> None:
    assert not module.ALGORITHM.supports(DISCRETE, conv(1, 4, 8, 60, kernel=(1, 21)), "weight_gradient")
    assert module.ALGORITHM.supports(DISCRETE, conv(1, 4, 8, 60, kernel=(1, 21)), "forward")
