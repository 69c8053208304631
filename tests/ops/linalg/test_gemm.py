"""GEMM with every form of its kernel, not only the one that this device would choose."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.op import empty
from dl4all.ops.linalg import gemm as module
from dl4all.ops.linalg.gemm import NARROW, PANEL, SPACE, TILES, GemmProblem, GemmTile, best_panel, gemm
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.null.backend import NullBackend, describe
from dl4all.tensor.tensor import Tensor

SIZES = [
    (1, 1, 1),
    (3, 5, 2),
    (13, 7, 31),
    (67, 53, 29),
    (64, 64, 64),
    (71, 49, 147),
    (1, 97, 101),
    (130, 28, 4),
    (36, 40, 52),
]


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.vulkan) for name in ("vulkan:0", "kompute:0")])
def device(request: pytest.FixtureRequest) -> str:
    """Only devices that run kernels."""
    name = str(request.param)
    try:
        dl.device(name)
    except dl.Dl4allError as error:
        pytest.skip(str(error))
    return name


def use(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> GemmTile:
    """Make the device use one tile; skip if it cannot."""
    tile = TILES[name]
    if not SPACE.fits(dl.device(device), tile, (1, 1, 11, 1, False, False, 0)):
        pytest.skip(f"{device} cannot run {name}")
    monkeypatch.setattr(autotune, "choose", lambda *_: tile)
    return tile


TRANSPOSING = [
    "words64 64x28",
    "shuffle 64x28",
    "plain 64x64",
    "shared 64x64",
]  # read transposed operands


@pytest.fixture(params=[*TRANSPOSING, "words64 64x16", "shuffle 24x12"])
def tile(request: pytest.FixtureRequest, device: str, monkeypatch: pytest.MonkeyPatch) -> GemmTile:
    """One of every form of the kernel."""
    return use(request.param, device, monkeypatch)


def agree(got: npt.NDArray[Any], expected: npt.NDArray[Any], k: int) -> None:
    # A sum of k products, each rounded to float32, of numbers of about 1.
    assert np.abs(got - expected).max() < 4e-7 * (k + 4) * max(1.0, float(np.abs(expected).max()) ** 0.5)


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("pad", [0, 1, 4], ids=["tight", "odd rows", "aligned rows"])
def test_rows_apart_offsets_batches_and_bias(device: str, m: int, n: int, k: int, pad: int) -> None:
    rng = np.random.default_rng(m * 31 + n * 7 + k + pad)
    count = 3
    lda, ldb, ldc = (
        (k + pad, n + pad, n + pad) if pad < 4 else (-(-k // 4) * 4 + 4, -(-n // 4) * 4 + 4, -(-n // 4) * 4)
    )
    a = rng.standard_normal((count, m, lda), np.float32)
    b = rng.standard_normal((count, k, ldb), np.float32)
    bias = rng.standard_normal(m + 2, np.float32)
    a[:, :, k:] = b[:, :, n:] = np.nan  # must not be read into a result
    first = [np.full(pad, np.nan, np.float32)] * 2
    tensors = [
        dl.from_numpy(np.concatenate([first[0], a.ravel()]), device),
        dl.from_numpy(np.concatenate([first[1], b.ravel()]), device),
        dl.from_numpy(bias, device),
    ]
    c = dl.full((pad + count * m * ldc,), np.nan, device=device)
    problem = GemmProblem(
        m=m, n=n, k=k, lda=lda, ldb=ldb, ldc=ldc,
        a_offset=pad, b_offset=pad, c_offset=pad,
        batch=count, a_step=m * lda, b_step=k * ldb, c_step=m * ldc,
    )  # fmt: skip
    gemm(c, tensors[0], tensors[1], tensors[2], replace(problem, bias_offset=2))
    out = c.numpy()
    expected = a[:, :, :k].astype(np.float64) @ b[:, :, :n] + bias[2:, None]
    assert np.isnan(out[:pad]).all()
    rows = out[pad:].reshape(count, m, ldc)
    agree(rows[:, :, :n], expected, k)
    assert np.isnan(rows[:, :, n:]).all()  # nothing is written beyond the matrix

    one = replace(problem, batch=1, a_step=0, b_step=0, c_step=0)
    gemm(c, tensors[0], tensors[1], None, one)
    agree(c.numpy()[pad:].reshape(count, m, ldc)[0, :, :n], expected[0] - bias[2:, None], k)


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("transposed", [(True, False), (False, True)], ids=["A transposed", "B transposed"])
@pytest.mark.parametrize("pad", [0, 1, 4], ids=["tight", "odd rows", "aligned rows"])
@pytest.mark.parametrize("name", TRANSPOSING)
def test_transposed_operands(
    device: str,
    name: str,
    m: int,
    n: int,
    k: int,
    transposed: tuple[bool, bool],
    pad: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transposed operand, plus a matrix or one number for each row."""
    use(name, device, monkeypatch)
    rng = np.random.default_rng(m * 31 + n * 7 + k + pad)
    transpose_a, transpose_b = transposed
    rows = [(k, m) if transpose_a else (m, k), (n, k) if transpose_b else (k, n), (m, n), (m, n)]
    stored, layouts = [], []
    for height, width in rows:
        pitch = width + pad if pad < 4 else -(-width // 4) * 4 + 4
        whole = np.full((2, height, pitch), np.nan, np.float32)
        whole[:, :, :width] = rng.standard_normal((2, height, width), np.float32)
        stored.append(
            dl.from_numpy(np.concatenate([np.full(pad, np.nan, np.float32), whole.ravel()]), device)
        )
        layouts.append((pitch, height * pitch, whole[:, :, :width].astype(np.float64)))
    (lda, a_step, a), (ldb, b_step, b), (row, step, bias), (ldc, c_step, _) = layouts
    problem = GemmProblem(
        m=m, n=n, k=k, lda=lda, ldb=ldb, ldc=ldc, transpose_a=transpose_a, transpose_b=transpose_b,
        a_offset=pad, b_offset=pad, c_offset=pad, bias_offset=pad,
        batch=2, a_step=a_step, b_step=b_step, c_step=c_step,
        bias_row=row, bias_column=int(transpose_b), bias_step=step,
    )  # fmt: skip
    gemm(stored[3], stored[0], stored[1], stored[2], problem)
    got = stored[3].numpy()[pad:].reshape(2, m, ldc)[:, :, :n]
    a, b = a.swapaxes(1, 2) if transpose_a else a, b.swapaxes(1, 2) if transpose_b else b
    agree(got, a @ b + (bias if transpose_b else bias[:, :, :1]), k)


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("panel", [PANEL, NARROW.columns])
def test_panels(device: str, m: int, n: int, k: int, panel: int) -> None:
    rng = np.random.default_rng(m + n + k)
    a = rng.standard_normal((m, k), np.float32)
    b = rng.standard_normal((k, n), np.float32)
    panels = -(-n // panel)
    stored = np.zeros((k, panels * panel), np.float32)
    stored[:, :n] = b
    stored = np.ascontiguousarray(stored.reshape(k, panels, panel).transpose(1, 0, 2))
    c = empty(Tensor, (m, n), np.dtype(np.float32), dl.device(device))
    problem = GemmProblem(m=m, n=n, k=k, lda=k, ldb=panel, ldc=n, panel=panel, panel_step=k * panel)
    gemm(c, dl.from_numpy(a, device), dl.from_numpy(stored, device), None, problem)
    agree(c.numpy(), a.astype(np.float64) @ b, k)


@pytest.mark.parametrize("name", TILES)
def test_every_tile_gives_the_same_bits(device: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more than one workgroup of each tile, and remainders of rows, columns and sums that fill none."""
    rng = np.random.default_rng(3)
    a, b, bias = (rng.standard_normal(shape, np.float32) for shape in ((133, 45), (45, 261), (261,)))
    tensors = [dl.from_numpy(x, device) for x in (a, b, bias)]
    usual = (tensors[0] @ tensors[1]).numpy()
    agree(usual, a.astype(np.float64) @ b, 45)
    if SPACE.fits(dl.device(device), TILES[name], (8, 9, 6, 1, False, False, 0)):
        use(name, device, monkeypatch)
        np.testing.assert_array_equal((tensors[0] @ tensors[1]).numpy(), usual)
    if SPACE.fits(dl.device(device), TILES[name], (8, 9, 6, 1, False, True, 0)):
        weight = dl.from_numpy(np.ascontiguousarray(b.T), device)
        got = dl.nn.functional.linear(tensors[0], weight, tensors[2]).numpy()
        agree(got, a.astype(np.float64) @ b + bias, 45)


@pytest.mark.usefixtures("tile")
def test_more_matrices_than_one_launch_takes(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GRID_SIZE", 3)
    a, b = dl.randn(7, 5, 4, device=device), dl.randn(7, 4, 3, device=device)
    agree((a @ b).numpy(), a.numpy().astype(np.float64) @ b.numpy(), 4)


@pytest.mark.usefixtures("tile")
def test_convolution_in_pieces(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that do not fit into memory at once are made for some pixels of some images at a time."""
    from dl4all.ops.conv import algorithms, im2col

    x, w, b = (dl.randn(*s, device=device) for s in ((5, 6, 23, 19), (9, 3, 3, 3), (9,)))
    arguments = {"stride": 1, "padding": 1, "groups": 2}
    filters = w[:8].contiguous()
    expected = dl.nn.functional.conv2d(x.cpu(), filters.cpu(), b[:8].contiguous().cpu(), **arguments).numpy()
    for nbytes in (1, 4 * 27 * PANEL * 3, 4 * 27 * 23 * 19 * 2 + 4 * 27 * PANEL):
        monkeypatch.setattr(im2col, "COLUMN_BYTES", nbytes)
        with algorithms.forced("im2col"):
            got = dl.nn.functional.conv2d(x, filters, b[:8].contiguous(), **arguments).numpy()
        agree(got, expected, 27)


@pytest.mark.parametrize("batch", [(), (5,)])
def test_products_split_by_the_grid_limit(
    device: str, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a device could start no more than two workgroups along a side."""
    monkeypatch.setattr("dl4all.ops.linalg.gemm.MAX_GRID_SIZE", 2)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((*batch, 293, 31), np.float32)
    b = rng.standard_normal((*batch, 31, 307), np.float32)
    got = dl.matmul(dl.tensor(a, device=device), dl.tensor(b, device=device)).numpy()
    np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-5)


def test_linear_split_by_the_grid_limit(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dl4all.ops.linalg.gemm.MAX_GRID_SIZE", 1)
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal(shape, np.float32) for shape in ((53, 17), (67, 17), (67,)))
    got = dl.nn.functional.linear(*(dl.tensor(value, device=device) for value in (x, w, b))).numpy()
    np.testing.assert_allclose(got, x @ w.T + b, rtol=1e-5, atol=1e-5)


def test_products_that_are_predicted_to_take_long(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into many submissions, and the same to the last bit."""
    rng = np.random.default_rng(2)
    a, b = (dl.tensor(rng.standard_normal((301, 301), np.float32), device=device) for _ in range(2))
    whole = dl.matmul(a, b).numpy()
    monkeypatch.setattr("dl4all.runtime.vulkan.stream.SUBMISSION_SECONDS", 1e-4)
    np.testing.assert_array_equal(dl.matmul(a, b).numpy(), whole)


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
def test_sums_of_more_terms_than_one_launch_adds(
    device: str, transposed: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if loops had to be short: the second launch adds to the sums that the first one has stored."""
    monkeypatch.setattr(module, "MAX_TERMS_PER_LAUNCH", 12)
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((3, 9, 31), np.float32), rng.standard_normal((3, 31, 14), np.float32)
    tensors = [
        dl.from_numpy(np.ascontiguousarray(x.swapaxes(1, 2)), device).transpose(1, 2)
        if is_transposed
        else dl.from_numpy(x, device)
        for x, is_transposed in zip((a, b), transposed, strict=True)
    ]
    agree((tensors[0] @ tensors[1]).numpy(), a.astype(np.float64) @ b, 31)
    bias = rng.standard_normal(14, np.float32)
    weight = dl.from_numpy(np.ascontiguousarray(b[0].T), device)
    got = dl.nn.functional.linear(dl.from_numpy(a[0], device), weight, dl.from_numpy(bias, device)).numpy()
    agree(got, a[0].astype(np.float64) @ b[0] + bias, 31)


def test_sums_of_more_terms_than_a_loop_of_llvmpipe_goes_round(device: str) -> None:
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((5, 270_001), np.float32), rng.standard_normal((270_001, 3), np.float32)
    expected = a.astype(np.float64) @ b
    got = (dl.from_numpy(a, device) @ dl.from_numpy(b, device)).numpy()
    np.testing.assert_allclose(got, expected, atol=5e-6 * np.abs(expected).max())


# Choice of the tile


def info_of(type: Any, **fields: Any) -> DeviceInfo:
    return dataclasses.replace(describe(), type=type, **fields)


@pytest.mark.parametrize("name", TILES)
def test_tiles_divide_evenly_among_invocations(name: str) -> None:
    tile = TILES[name]
    x, y, rows, fours, *staging = tile.constants
    if tile.form in ("words64", "shuffle"):  # lanes lie along the rows
        assert (tile.rows, tile.columns) == (x * rows, fours * 4)
        return
    assert (tile.rows, tile.columns) == (y * rows, x * fours * 4)
    assert rows % 4 == 0
    for d in staging[:1]:  # every invocation stages as much of A, and of B, as all others
        assert d % 4 == 0
        assert tile.rows * d % (4 * x * y) == 0
        assert tile.columns * d % (4 * x * y) == 0


@pytest.mark.parametrize(
    ("sizes", "name", "integrated"),
    [
        ((1024, 1024, 1024, 1), "shared 128x128", "shared 128x128"),
        ((512, 512, 512, 1), "shared 64x64", "shared 128x128"),
        ((256, 256, 512, 1), "shared 32x32", "shared 64x64"),
        ((64, 64, 64, 64), "shared 64x64", "shared 64x64"),
        ((64, 64, 64, 500), "shared 64x64", "shared 64x64"),
        ((64, 64, 64, 1), "shared 32x32", "shared 32x32"),
        ((4, 512, 512, 1), "plain 4x256", "plain 4x256"),
        ((512, 4, 512, 1), "plain 128x16", "plain 128x16"),
        ((512, 512, 9, 1), "plain 64x64", "plain 64x64"),
    ],
)
def test_tiles_of_gpus_without_tuning(sizes: tuple[int, int, int, int], name: str, integrated: str) -> None:
    """Large ones have more to keep busy."""
    m, n, k, batch = sizes
    key = SPACE.key(GemmProblem(m, n, k, k, n, n, batch=batch))
    for kind in ("discrete", "integrated", "virtual"):
        assert SPACE.rule(info_of(kind), key)[0] == (integrated if kind == "integrated" else name)
        assert SPACE.rule(info_of(kind, driver_id="mesa_v3dv"), key) == ("plain 64x64",)
    assert SPACE.rule(info_of("software", subgroup_size=4), key) == ("plain 64x64",)


@pytest.mark.parametrize("avx512", [False, True])
@pytest.mark.parametrize("panel", [0, PANEL, NARROW.columns])
def test_tiles_of_llvmpipe_without_tuning(avx512: bool, panel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "llvmpipe_has_avx512", lambda: avx512)
    lanes = info_of("software", subgroup_size=8, features=frozenset({"subgroup_shuffle"}))
    device = dl.Device.of_backend("null:0", NullBackend(lanes, lanes.features))
    key = SPACE.key(GemmProblem(64, 64, 64, 64, panel or 64, 64, panel=panel, panel_step=64 * panel))
    wanted = SPACE.rule(lanes, key)
    assert wanted[0] == module.LLVMPIPE_TILES[avx512, panel or PANEL]
    assert SPACE.usual(device, key).startswith("shuffle")  # it has no 64-bit integers
    assert wanted[-1] == f"shuffle 64x{panel or PANEL}"
    few = SPACE.key(GemmProblem(17, 64, 64, 64, panel or 64, 64, panel=panel, panel_step=64 * panel))
    assert SPACE.rule(lanes, few) == (module.LLVMPIPE_FEW_ROWS, *wanted)


@pytest.mark.parametrize("name", [name for name, tile in TILES.items() if tile.form in ("plain", "shared")])
def test_workgroups_of_gpus_fill_their_subgroups(name: str) -> None:
    tile = TILES[name]
    assert tile.constants[0] * tile.constants[1] % 64 == 0


@pytest.mark.parametrize("kind", ["discrete", "software", "other"])
def test_there_is_a_tile_for_the_least_device(kind: str) -> None:
    device = dl.Device.of_backend("null:0", NullBackend(info_of(kind), frozenset()))
    for m, n, k, batch in itertools.product((1, 60, 3000), (1, 60, 3000), (1, 60), (1, 100)):
        key = SPACE.key(GemmProblem(m, n, k, k, n, n, batch=batch))
        tile = TILES[SPACE.usual(device, key)]
        assert tile.shared_bytes <= 16384
        assert tile.constants[0] * tile.constants[1] <= 128


def test_the_best_panel_wastes_few_columns() -> None:
    features = frozenset({"subgroup_shuffle"})
    lanes = info_of("software", subgroup_size=8, features=features)
    for info, panels in ((lanes, [16, 28, 28, 16]), (info_of("discrete"), [PANEL] * 4)):
        device = dl.Device.of_backend("null:0", NullBackend(info, frozenset()))
        assert [best_panel(device, n) for n in (16, 28, 1000, 36 - 4)] == panels
