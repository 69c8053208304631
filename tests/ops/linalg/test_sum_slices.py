"""Products whose sums several workgroups share, as on a GPU that has too few tiles to compute."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.kernels import autotune
from dl4all.ops.linalg import gemm as module
from dl4all.ops.linalg.gemm import SPACE, TILES, GemmProblem, gemm
from dl4all.ops.linalg.sum_slices import MIN_TERMS, MOST_SLICES, slice_count, slice_terms
from dl4all.runtime.null.backend import describe


def sliced(name: str, device: str, count: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make a device use a tile, and that many slices; the list gets the slices of each launch."""
    tile = TILES[name]
    if not SPACE.fits(dl.device(device), tile, (1, 1, 11, 1, False, False, 0)):
        pytest.skip(f"{device} cannot run {name}")
    launches: list[int] = []
    run = module._run_gemm

    def record(*arguments: Any) -> None:
        launches.append(arguments[6] if len(arguments) > 6 else 1)
        run(*arguments)

    monkeypatch.setattr(autotune, "choose", lambda *_: tile)
    monkeypatch.setattr(module, "slice_count", lambda *_: count)
    monkeypatch.setattr(module, "_run_gemm", record)
    return launches


def agree(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.vulkan
@pytest.mark.parametrize("name", ["plain 64x64", "shared 32x32", "shared 64x64 twice"])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("terms", [1030, 1040])
def test_slices_of_a_batch(
    name: str, transposed: tuple[bool, bool], terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last slice is longer than the others; operands are read one and four elements at a time."""
    launches = sliced(name, "vulkan:0", 4, monkeypatch)
    rng = np.random.default_rng(terms)
    a, b = rng.standard_normal((2, 36, terms), np.float32), rng.standard_normal((2, terms, 28), np.float32)
    tensors = [
        dl.from_numpy(np.ascontiguousarray(x.swapaxes(1, 2)), "vulkan:0").transpose(1, 2)
        if is_transposed
        else dl.from_numpy(x, "vulkan:0")
        for x, is_transposed in zip((a, b), transposed, strict=True)
    ]
    first, again = ((tensors[0] @ tensors[1]).numpy() for _ in range(2))
    agree(first, a.astype(np.float64) @ b)
    np.testing.assert_array_equal(first, again)
    assert launches == [4, 4]


@pytest.mark.vulkan
def test_slices_with_a_bias_and_of_several_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bias is added once, and so is what the launch before has computed."""
    launches = sliced("shared 32x32", "vulkan:0", 2, monkeypatch)
    monkeypatch.setattr(module, "MAX_TERMS_PER_LAUNCH", 96)
    rng = np.random.default_rng(1)
    x, w, bias = (rng.standard_normal(shape, np.float32) for shape in ((13, 250), (17, 250), (17,)))
    got = dl.nn.functional.linear(*(dl.from_numpy(value, "vulkan:0") for value in (x, w, bias))).numpy()
    agree(got, x.astype(np.float64) @ w.T + bias)
    assert launches == [2, 2, 2]


@pytest.mark.vulkan
def test_results_with_gaps_are_computed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = sliced("plain 64x64", "vulkan:0", 2, monkeypatch)
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((5, 600), np.float32), rng.standard_normal((600, 7), np.float32)
    c = dl.full((5, 9), np.nan, device="vulkan:0")
    problem = GemmProblem(m=5, n=7, k=600, lda=600, ldb=7, ldc=9)
    gemm(c, dl.from_numpy(a, "vulkan:0"), dl.from_numpy(b, "vulkan:0"), None, problem)
    agree(c.numpy()[:, :7], a.astype(np.float64) @ b)
    assert np.isnan(c.numpy()[:, 7:]).all()
    assert launches == [1]


def test_how_many_slices() -> None:
    gpu, integrated, software = (
        dataclasses.replace(describe(), type=kind) for kind in ("discrete", "integrated", "software")
    )
    assert slice_count(gpu, 4, 16384) == MOST_SLICES
    assert slice_count(integrated, 4, 16384) == 8
    assert slice_count(gpu, 4, 4 * MIN_TERMS) == 4
    assert slice_count(gpu, 40, 16384) == 2  # 3 would be kept busy, and a power of two makes few programs
    assert slice_count(gpu, 65, 16384) == slice_count(gpu, 1, 2 * MIN_TERMS - 1) == 1
    assert slice_count(software, 1, 16384) == 1


@pytest.mark.parametrize(("terms", "slices"), [(512, 2), (16383, 32), (1030, 4), (999, 1)])
def test_the_last_slice_is_no_shorter_than_the_others(terms: int, slices: int) -> None:
    each = slice_terms(terms, slices)
    assert terms - (slices - 1) * each >= each > 0
    assert slices == 1 or each % 4 == 0
