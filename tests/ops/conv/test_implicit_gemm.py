"""Convolution by implicit GEMM with every tile of its kernel, not only those that a device would choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.conv import implicit_gemm as module
from dl4all.ops.conv.algorithms import forced
from dl4all.ops.conv.implicit_gemm import FEW_FILTERS, TILES, ImplicitTile, tile_of
from dl4all.ops.conv.problem import Problem
from dl4all.ops.conv.window import window
from dl4all.runtime.null.backend import describe
from tests.conftest import need
from tests.ops.conv.test_algorithms import SOFTWARE, conv

DISCRETE = replace(describe(), type="discrete")

# Terms of a sum: whole pieces and fewer, multiples of four and others. Windows of more and fewer terms than a
# piece. Rows and columns beyond the last tile, groups of four pixels and single ones.
CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 8, 9, 8), (70, 8, 3, 3), {"padding": 1}),
    ((1, 4, 6, 7), (5, 4, 3, 3), {"padding": 1}),
    ((2, 3, 11, 10), (6, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((2, 5, 7, 7), (9, 5, 1, 1), {"stride": 2}),
    ((1, 21, 6, 6), (4, 21, 1, 1), {"padding": 1}),
    ((2, 1, 5, 9), (3, 1, 2, 1), {"padding": (1, 0)}),
    ((2, 6, 10, 9), (8, 3, 3, 2), {"padding": (2, 0), "dilation": (1, 3), "groups": 2}),
    ((1, 2, 4, 5, 6), (5, 2, 3, 2, 3), {"padding": (2, 0, 1), "dilation": (2, 1, 1), "stride": (1, 2, 1)}),
)


@pytest.mark.vulkan
@pytest.mark.parametrize(("case", "tile"), [*zip(CASES, 2 * [*TILES, FEW_FILTERS], strict=True)], ids=str)
def test_every_tile_computes_convolutions_and_gradients(
    case: Any, tile: ImplicitTile, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("vulkan:0")
    monkeypatch.setattr(module, "tile_of", lambda *_: tile)
    shape, filters, arguments = case
    rng = np.random.default_rng(len(shape) + filters[0])
    x, w, bias = (rng.standard_normal(size, np.float32) for size in (shape, filters, filters[:1]))
    convolve = getattr(dl.nn.functional, f"conv{len(shape) - 2}d")
    host = [dl.tensor(array, device="cpu") for array in (x, w, bias)]
    # Filters that do not begin at a multiple of four elements.
    apart = dl.tensor(np.concatenate([[np.nan], w.ravel()]).astype(np.float32), device="vulkan:0")
    places = [dl.tensor(array, device="vulkan:0") for array in (x, w, bias)]
    expected = convolve(*host, **arguments).numpy()
    with forced("implicit_gemm"):
        for weight in (places[1], apart[1:].reshape(filters)):
            got = convolve(places[0], weight, places[2], **arguments).numpy()
            np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())
        size = {"input_size": shape[2:], **arguments}
        got = dl.ops.conv_input(dl.tensor(expected, device="vulkan:0"), places[1], **size).numpy()
    want = dl.ops.conv_input(dl.tensor(expected, device="cpu"), host[1], **size).numpy()
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * np.abs(want).max())


@pytest.mark.vulkan
def test_terms_that_do_not_exist_add_nothing() -> None:
    """Neither infinite filters nor images that are no numbers reach results that they do not belong to."""
    need("vulkan:0")
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((2, 3, 5, 5), np.float32), rng.standard_normal((4, 3, 3, 3), np.float32)
    x[1, 2, 4, 4] = np.nan
    w[3, 2, 2, 2] = np.inf
    with forced("implicit_gemm"):
        got = dl.nn.functional.conv2d(
            dl.tensor(x, device="vulkan:0"), dl.tensor(w, device="vulkan:0"), padding=1
        ).numpy()
    assert np.isfinite(got[0, :3]).all()
    assert (np.isinf(got[0, 3]) == np.pad(np.ones((4, 4), bool), ((0, 1), (0, 1)))).all()
    assert np.isnan(got[1, :, 3:, 3:]).all()
    assert np.isfinite(got[1, :3, :3]).all()


@pytest.mark.vulkan
def test_every_tile_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    rng = np.random.default_rng(7)
    x = dl.tensor(rng.standard_normal((2, 13, 9, 9), np.float32), device="vulkan:0")
    w = dl.tensor(rng.standard_normal((17, 13, 3, 3), np.float32), device="vulkan:0")
    results = []
    with forced("implicit_gemm"):
        for tile in (*TILES, FEW_FILTERS):
            monkeypatch.setattr(module, "tile_of", lambda *_, tile=tile: tile)
            results.append(dl.nn.functional.conv2d(x, w, padding=1).numpy())
    assert np.abs(results[0]).max() > 1
    assert all((result == results[0]).all() for result in results)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (conv(32, 128, 128, 28), TILES[0]),
        (conv(1, 64, 128, 56), TILES[2]),
        (conv(8, 64, 128, 28), TILES[1]),
        (conv(32, 64, 32, 28), FEW_FILTERS),
        (conv(1, 64, 32, 28), TILES[2]),
    ],
)
def test_the_tile_leaves_no_device_idle(problem: Problem, expected: ImplicitTile) -> None:
    assert tile_of(DISCRETE, problem) == expected
    assert tile_of(replace(DISCRETE, type="integrated"), problem) in (expected, TILES[0], FEW_FILTERS)
    assert tile_of(SOFTWARE, problem) == TILES[1]


def test_windows_too_large_for_the_table_are_left_to_others() -> None:
    wide = window("conv2d", (1, 31), 1, 0, 1)
    problem = conv(1, 2, 4, 99)._replace(out_size=(1, 99, 69), win=wide.three_axes)
    assert not module.ALGORITHM.supports(DISCRETE, problem, "forward")
    narrow = problem._replace(win=window("conv2d", (1, 29), 1, 0, 1).three_axes)
    assert module.ALGORITHM.supports(DISCRETE, narrow, "forward")
