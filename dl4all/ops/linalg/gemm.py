"""GEMM, the matrix product that matmul and convolution share, and the choice of its tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import FLOAT32, HALVES
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.launch import MAX_GRID_SIZE, NoKernel, ceil_div, run, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.kernels.short_floats import by_float32
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.matmul_precision import allows_float16
from dl4all.ops.linalg.sum_slices import ADD_SLICES, add_slices, busy_workgroups, slice_count, slice_terms
from dl4all.runtime.cpu.processor import llvmpipe_has_avx512
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.protocols import Grid
from dl4all.scheduler.device.device import Device

MAX_TERMS_PER_LAUNCH = 2**14
"""Products that one launch adds up one after the other. Longer sums would lose digits, and from 2**18 on
llvmpipe would leave the loop before its end: it allows an invocation 65535 rounds in all, of four terms
each."""

PANEL = 28
"""Columns to store together when B is written for the product: as many as a tile of ``SHUFFLE`` has, so that
a workgroup walks through memory without a gap."""


@dataclass(frozen=True)
class GemmProblem:
    """Sizes and memory layout of C = A B, for `batch` triples: A is m x k, B k x n, C m x n.

    All distances and offsets count elements. ``lda`` is the distance between A's rows, ``a_offset`` where the
    first matrix starts and ``a_step`` the distance to the next one (0: the same matrix again); likewise for B
    and C. Columns are adjacent; with ``transpose_a`` A's rows are adjacent and its columns ``lda`` apart,
    likewise for B; both at once are not supported.
    With ``panel`` > 0, B lies in panels of that many columns, ``panel_step`` apart.
    The bias of row r and column c lies at ``bias_offset + r * bias_row + c * bias_column``: by default one
    number for each row; a ``bias_column`` needs ``transpose_b`` or ``matrix``.
    """

    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldc: int
    a_offset: int = 0
    b_offset: int = 0
    c_offset: int = 0
    batch: int = 1
    a_step: int = 0
    b_step: int = 0
    c_step: int = 0
    transpose_a: bool = False
    transpose_b: bool = False
    panel: int = 0
    panel_step: int = 0
    bias_offset: int = 0
    bias_row: int = 1
    bias_column: int = 0
    bias_step: int = 0
    matrix: bool = False


@dataclass(frozen=True)
class GemmTile:
    """Rows and columns of C that one workgroup computes, and the shader variant that does it."""

    form: str  # a key of FORM_MACROS
    rows: int
    columns: int
    # Specialization constants: invocations along N and M, rows and vec4 columns of each, depth and pieces.
    constants: tuple[int, ...]
    shared_bytes: int = 0

    @property
    def least_terms(self) -> int:
        """Sums of fewer terms cannot be computed."""
        return self.constants[4] if self.form == "shared" else 0


def plain_tile(x: int, y: int, rows: int, fours: int) -> GemmTile:
    """A tile of x by y invocations along N and M, each with `rows` rows and `fours` vec4 columns."""
    return GemmTile("plain", y * rows, x * fours * 4, (x, y, rows, fours))


def shared_tile(x: int, y: int, rows: int, fours: int, depth: int, pieces: int = 1) -> GemmTile:
    """A plain tile that stages pieces of A and B, `depth` deep along K, in shared memory (staged.glsl).

    With two `pieces` there, one is filled while the other one is multiplied.
    """
    tile = plain_tile(x, y, rows, fours)
    nbytes = pieces * depth * 4 * (tile.rows + tile.columns + 8)
    return GemmTile("shared", tile.rows, tile.columns, (*tile.constants, depth, pieces), nbytes)


def shuffle_tile(form: str, rows: int, fours: int) -> GemmTile:
    """A tile of 8 lanes along M, each with `rows` rows and all columns, in vec4s."""
    return GemmTile(form, 8 * rows, fours * 4, (8, 1, rows, fours))


# The measurements behind the tiles for llvmpipe are in docs/performance.md.
NARROW = shuffle_tile("shuffle", 8, 4)
PLAIN = plain_tile(16, 8, 8, 1)
SHARED = shared_tile(16, 8, 8, 1, 16)
TILES = {
    "words64 64x28": shuffle_tile("words64", 8, 7),
    "shuffle 64x28": shuffle_tile("shuffle", 8, 7),
    "words64 64x16": shuffle_tile("words64", 8, 4),
    "shuffle 64x16": NARROW,
    "shuffle 32x12": shuffle_tile("shuffle", 4, 3),
    "shuffle 24x12": shuffle_tile("shuffle", 3, 3),
    "shuffle 16x12": shuffle_tile("shuffle", 2, 3),
    "shuffle 16x8": shuffle_tile("shuffle", 2, 2),
    "plain 64x64": PLAIN,
    "plain 32x64": plain_tile(16, 8, 4, 1),
    "plain 4x256": plain_tile(64, 1, 4, 1),
    "plain 128x16": plain_tile(4, 32, 4, 1),
    "shared 32x32": shared_tile(8, 8, 4, 1, 16),
    "shared 64x64": SHARED,
    "shared 128x64": shared_tile(16, 16, 8, 1, 16),
    "shared 128x128": shared_tile(16, 16, 8, 2, 16),
    "shared 64x64 twice": shared_tile(16, 8, 8, 1, 16, pieces=2),
    "shared 128x128 twice": shared_tile(16, 16, 8, 2, 16, pieces=2),
}
"""The tuner's candidates. All of them add in the same order, so that results do not depend on the choice,
unless :mod:`dl4all.ops.linalg.sum_slices` shares the sums among workgroups."""

LLVMPIPE_TILES = {
    (True, PANEL): "shuffle 64x28",
    (True, NARROW.columns): "words64 64x16",
    (False, PANEL): "shuffle 32x12",
    (False, NARROW.columns): "shuffle 32x12",
}
"""llvmpipe's tiles, by whether it has AVX-512 and how many columns B's panels have. Texel buffers make loads
cheap, and on the processors without AVX-512 that were measured larger tiles then only spill."""
LLVMPIPE_FEW_ROWS = "shuffle 32x12"  # where most rows of a higher tile would be empty

# Hardware whose shared memory lies in the same memory as everything else: nothing is won by copying to it.
DRIVERS_WITHOUT_FAST_SHARED_MEMORY = frozenset(
    {"arm_proprietary", "mesa_panvk", "mesa_v3dv", "broadcom_proprietary"}
)

MAX_SIZE_BITS = 11  # sizes from 1024 on are one class for the tuner
MAX_BATCH_BITS = 8  # batches from 128 on are one class for the tuner

UNTRANSPOSED_VARIANTS = tuple(product([(False, False)], product((0, 1), (0, 1), (0, 1))))
TRANSPOSED_VARIANTS = tuple(product([(True, False), (False, True)], product((0, 1), (0, 1), (-1,))))
VARIANTS = (*UNTRANSPOSED_VARIANTS, *TRANSPOSED_VARIANTS)
STAGED_VARIANTS = (*product([(False, False)], product((0, 1), (0, 1), (-1,))), *TRANSPOSED_VARIANTS)
"""Which operands are transposed, and the shader's VEC_A, VEC_B and VEC_C."""

FORM_MACROS: dict[str, dict[str, int]] = {
    "words64": {"SHUFFLE": 1, "SHARED": 0, "WORDS64": 1},
    "shuffle": {"SHUFFLE": 1, "SHARED": 0, "WORDS64": 0},
    "plain": {"SHUFFLE": 0, "SHARED": 0, "WORDS64": 0},
    "shared": {"SHUFFLE": 0, "SHARED": 1, "WORDS64": 0},
}
"""The macros of each form of the shader."""

GEMM_PUSH = PushBlock(
    "linalg/gemm.comp",
    "uint M, N, K, lda, ldb, ldc, a_step, b_step, c_step, a_offset, b_offset, c_offset, panel, panel_step, "
    "has_bias, bias_offset, bias_row, bias_column, bias_step, terms;",
)
GEMM = {
    (form, transposed, vectors): shader(
        "linalg/gemm.comp",
        TRANSPOSE_A=int(transposed[0]),
        TRANSPOSE_B=int(transposed[1]),
        **dict(zip(("VEC_A", "VEC_B", "VEC_C"), vectors, strict=True)),
        **macros,
    )
    for form, macros in FORM_MACROS.items()
    for transposed, vectors in (STAGED_VARIANTS if form == "shared" else VARIANTS)
}
GEMM_SHADERS = (*GEMM.values(), ADD_SLICES)


def best_panel(device: Device, n: int) -> int:
    """The number of columns to store together where B with `n` columns is written for the product."""
    # The time goes with the number of tiles, and a narrow one takes two thirds of a wide one's.
    narrow = 2 * ceil_div(n, NARROW.columns) < 3 * ceil_div(n, PANEL)
    return NARROW.columns if narrow and device.info.short_subgroups else PANEL


Reduced = Callable[[TensorBase, TensorBase, TensorBase, "TensorBase | None", GemmProblem], bool]
reduced_gemm: Reduced | None = None
"""Fills C from operands that it rounds, and says whether it did; cooperative_matrix.py puts itself here."""


def gemm(c: TensorBase, a: TensorBase, b: TensorBase, bias: TensorBase | None, problem: GemmProblem) -> None:
    """Fill `c` with the products, plus `bias` if given, with the tile that is best for the device."""
    if 0 in (problem.m, problem.n, problem.batch):
        return
    if problem.k > MAX_TERMS_PER_LAUNCH and c.dtype in HALVES:  # launches add to what earlier ones wrote
        if problem.batch * problem.m * problem.n != c.numel():
            raise NoKernel(f"sums of {problem.k} terms in a part of {c.dtype}")
        by_float32(c, lambda sums: gemm(sums, a, b, bias, problem))
        return
    rounded = reduced_gemm if allows_float16() and a.dtype == b.dtype == FLOAT32 else None
    if rounded is not None and rounded(c, a, b, bias, problem):
        return
    gemm_with_tile(autotune.choose(SPACE, c.device, problem), c, a, b, bias, problem)


def gemm_with_tile(
    tile: GemmTile, c: TensorBase, a: TensorBase, b: TensorBase, bias: TensorBase | None, problem: GemmProblem
) -> None:
    """Fill `c` as :func:`gemm` does, with a given tile that the device can run."""
    for first in range(0, max(problem.k, 1), MAX_TERMS_PER_LAUNCH):
        terms = _partial_sum(problem, first)
        # Panels cannot be split; the plain tile takes sums of any length, and is wide.
        splits = not terms.panel or terms.n <= MAX_GRID_SIZE * tile.columns
        fitting = tile if splits and terms.k >= tile.least_terms else PLAIN
        for part in _split_by_grid(terms, fitting):
            _run_part(c, a, b, c if first else bias, part, fitting)


def _partial_sum(p: GemmProblem, first: int) -> GemmProblem:
    """The problem of the terms from `first` on, which are added to the sums that C holds."""
    if p.k <= MAX_TERMS_PER_LAUNCH:
        return p
    part = replace(
        p,
        k=min(MAX_TERMS_PER_LAUNCH, p.k - first),
        a_offset=p.a_offset + first * (p.lda if p.transpose_a else 1),
        b_offset=p.b_offset + first * (1 if p.transpose_b else p.ldb),
    )
    if first == 0:
        return part
    return replace(
        part,
        bias_offset=p.c_offset, bias_row=p.ldc, bias_column=1, bias_step=p.c_step, matrix=True,
    )  # fmt: skip


def _split_by_grid(p: GemmProblem, tile: GemmTile) -> Iterator[GemmProblem]:
    """Split a problem into some that need no more workgroups along a side than every device allows."""
    limits = (MAX_GRID_SIZE, MAX_GRID_SIZE * tile.rows, MAX_GRID_SIZE * tile.columns)
    if p.panel and p.n > limits[2]:
        raise ArgumentError(f"[gemm] {p.n} columns in panels of {p.panel} are more than {limits[2]}")
    for z, row, column in product(*map(range, (0, 0, 0), (p.batch, p.m, p.n), limits)):
        yield replace(
            p,
            batch=min(limits[0], p.batch - z),
            m=min(limits[1], p.m - row),
            n=min(limits[2], p.n - column),
            a_offset=p.a_offset + z * p.a_step + row * (1 if p.transpose_a else p.lda),
            b_offset=p.b_offset + z * p.b_step + column * (p.ldb if p.transpose_b else 1),
            c_offset=p.c_offset + z * p.c_step + row * p.ldc + column,
            bias_offset=p.bias_offset + z * p.bias_step + row * p.bias_row + column * p.bias_column,
        )


def _run_part(
    c: TensorBase, a: TensorBase, b: TensorBase, bias: TensorBase | None, p: GemmProblem, tile: GemmTile
) -> None:
    """Run one launch, or one for slices of the sums and one that adds them."""
    dense = p.ldc == p.n and (p.batch == 1 or p.c_step == p.m * p.n)
    slices = slice_count(c.device.info, math.prod(_grid(p, tile)), p.k) if dense else 1
    if slices == 1:
        _run_gemm(c, a, b, bias, p, tile)
        return
    elements = p.m * p.n * p.batch
    partial = empty(type(c).result_class, (slices, elements), FLOAT32, c.device)
    _run_gemm(partial, a, b, bias, replace(p, c_offset=0, c_step=p.m * p.n), tile, slices)
    add_slices(c, p.c_offset, partial)


def _grid(p: GemmProblem, tile: GemmTile) -> Grid:
    return ceil_div(p.n, tile.columns), ceil_div(p.m, tile.rows), p.batch


def _run_gemm(
    c: TensorBase,
    a: TensorBase,
    b: TensorBase,
    bias: TensorBase | None,
    p: GemmProblem,
    tile: GemmTile,
    slices: int = 1,
) -> None:
    """Launch the kernel; with several `slices`, C has room for the sums of each, one after the other."""
    # A vec4 may reach past the last column of a row, but not into the next row.
    panel, panel_step = (p.panel, p.panel_step) if p.panel else (ceil_div(p.n, 4) * 4, 0)
    transposed = (p.transpose_a, p.transpose_b)
    b_layout = (p.ldb, p.b_offset, p.b_step, *(() if p.transpose_b else (panel, panel_step)))
    # A staged operand that lies along the sums is read four elements at a time from the end of the sums on.
    staged = p.k if tile.form == "shared" else 0
    vectors = (
        int(all(x % 4 == 0 for x in (p.lda, p.a_offset, p.a_step, 0 if p.transpose_a else staged))),
        int(all(x % 4 == 0 for x in (*b_layout, staged if p.transpose_b else 0))),
        -1
        if True in transposed or tile.form == "shared"
        else int(all(x % 4 == 0 for x in (p.n, p.ldc, p.c_offset, p.c_step))),
    )
    bias_layout = (0, 0, 0, 0, 0)
    if bias is not None:
        bias_layout = (1, bias.offset + p.bias_offset, p.bias_row, p.bias_column, p.bias_step)
    push = GEMM_PUSH.pack(
        p.m, p.n, slice_terms(p.k, slices), p.lda, p.ldb, p.ldc,
        p.a_step, p.b_step, p.c_step, p.a_offset, p.b_offset, p.c_offset,
        panel, panel_step, *bias_layout, p.k,
    )  # fmt: skip
    columns, rows, batch = _grid(p, tile)
    reads_words = tile.form == "words64" and not (a.dtype == b.dtype == FLOAT32)
    code = GEMM["shuffle" if reads_words else tile.form, transposed, vectors]
    flops = 2 * p.m * p.n * p.k * p.batch
    operands = (a, b, a if bias is None else bias, c)
    constants = (int(p.matrix), slices, *tile.constants)
    run(code, (columns, rows, batch * slices), push, *operands, constants=constants, flops=flops)


# Choice of the tile


def _key(p: GemmProblem) -> tuple[int, ...]:
    """The tuner's class of a problem: the bits of its sizes, and the layout of the operands."""
    return (
        min(p.m.bit_length(), MAX_SIZE_BITS),
        min(p.n.bit_length(), MAX_SIZE_BITS),
        min(p.k.bit_length(), MAX_SIZE_BITS),
        min(p.batch.bit_length(), MAX_BATCH_BITS),
        p.transpose_a,
        p.transpose_b,
        p.panel,
    )


def _rule(info: DeviceInfo, key: tuple[int | str, ...]) -> tuple[str, ...]:
    """The best tiles for a kind of device and a class of problems; the last one fits every device."""
    m, n, k, batch = (3 * 2 ** int(bits) // 4 for bits in key[:4])  # in the middle of the class
    if info.short_subgroups:
        columns = NARROW.columns if key[-1] == NARROW.columns else PANEL
        usual = LLVMPIPE_TILES[llvmpipe_has_avx512(), columns]
        return *((LLVMPIPE_FEW_ROWS,) if m < 32 else ()), usual, f"shuffle 64x{columns}"
    if (
        info.type not in ("discrete", "integrated", "virtual")
        or info.driver_id in DRIVERS_WITHOUT_FAST_SHARED_MEMORY
    ):
        return ("plain 64x64",)
    if m < 8:  # most rows of a higher tile would be empty
        return ("plain 4x256", "plain 64x64")
    if n < 16:
        return ("plain 128x16", "plain 64x64")
    if k < 16:
        return ("plain 64x64",)
    large = [name for name in ("shared 128x128", "shared 64x64") if _occupies(info, TILES[name], m, n, batch)]
    return (*large, "shared 32x32", "plain 64x64")


def _occupies(info: DeviceInfo, tile: GemmTile, m: int, n: int, batch: int) -> bool:
    """Whether the tiles keep a GPU busy, and each matrix fills at least one."""
    groups = ceil_div(m, tile.rows) * ceil_div(n, tile.columns) * batch
    return groups >= busy_workgroups(info) and m >= tile.rows and n >= tile.columns


def _fits(device: Device, tile: GemmTile, key: tuple[int | str, ...]) -> bool:
    """Whether a device can run a tile for a class of problems."""
    info, limits = device.info, device.info.limits
    x, y, rows, *_ = tile.constants
    if tile.form in ("words64", "shuffle"):
        return (
            info.subgroup_size == x
            and info.subgroup_shuffle
            and (tile.form != "words64" or "int64" in device.features)
            and not (key[4] and rows % 4)  # rows of a transposed A are read four at a time
        )
    return (
        2 ** int(key[2]) > tile.least_terms
        and x * y <= limits.workgroup_invocations
        and x <= limits.workgroup_size[0]
        and y <= limits.workgroup_size[1]
        and tile.shared_bytes <= limits.shared_memory
    )


def prepare_dense(device: Device, p: GemmProblem) -> tuple[GemmProblem, tuple[Any, Any, Any]]:
    """A problem of the same sizes to time, with matrices that follow each other without gaps: A, B and C."""
    pitch = ceil_div(p.n, p.panel) * p.panel if p.panel else p.n
    dense = GemmProblem(
        m=p.m, n=p.n, k=p.k, batch=p.batch,
        lda=p.m if p.transpose_a else p.k,
        ldb=p.panel or (p.k if p.transpose_b else p.n), ldc=p.n,
        a_step=p.a_step and p.m * p.k, b_step=p.b_step and p.k * pitch, c_step=p.m * p.n,
        transpose_a=p.transpose_a, transpose_b=p.transpose_b, panel=p.panel, panel_step=p.k * p.panel,
    )  # fmt: skip
    counts = (p.batch if p.a_step else 1) * p.m * p.k, (p.batch if p.b_step else 1) * p.k * pitch
    a, b = (autotune.uninitialized(device, count) for count in counts)
    c = autotune.uninitialized(device, p.batch * p.m * p.n)
    return dense, (a, b, c)


def _prepare(device: Device, p: GemmProblem) -> autotune.Work[GemmTile]:
    dense, (a, b, c) = prepare_dense(device, p)
    return autotune.Work(lambda tile: gemm_with_tile(tile, c, a, b, None, dense), c)


def _dense_problem(
    m: int, n: int, k: int, batch: int = 1, *, transpose_a: bool = False, transpose_b: bool = False
) -> GemmProblem:
    """The problem of matrices without gaps."""
    steps = (m * k, k * n, m * n) if batch > 1 else (0, 0, 0)
    return GemmProblem(
        m, n, k, lda=m if transpose_a else k, ldb=k if transpose_b else n, ldc=n, batch=batch,
        a_step=steps[0], b_step=steps[1], c_step=steps[2], transpose_a=transpose_a, transpose_b=transpose_b,
    )  # fmt: skip


def _im2col_problem(filters: int, pixels: int, inner: int) -> GemmProblem:
    """The problem that :mod:`dl4all.ops.conv.im2col` makes of one image."""
    problem = GemmProblem(filters, pixels, inner, lda=inner, ldb=PANEL, ldc=pixels)
    return replace(problem, panel=PANEL, panel_step=inner * PANEL)


PROBLEMS = (
    *((f"square {size}", _dense_problem(size, size, size)) for size in (128, 256, 512, 1024)),
    ("tall", _dense_problem(4096, 16, 256)),
    ("wide", _dense_problem(16, 4096, 256)),
    ("one row", _dense_problem(1, 4096, 1024)),
    ("one column", _dense_problem(4096, 1, 1024, transpose_b=True)),
    ("long sum", _dense_problem(64, 64, 8192)),
    ("MLP, layer 1", _dense_problem(128, 256, 784, transpose_b=True)),
    ("MLP, layer 2", _dense_problem(128, 128, 256, transpose_b=True)),
    ("MLP, gradient of the input", _dense_problem(128, 784, 256)),
    ("MLP, gradient of the weight", _dense_problem(256, 784, 128, transpose_a=True)),
    ("transformer, projection", _dense_problem(512, 384, 128, transpose_b=True)),
    ("transformer, feed forward", _dense_problem(512, 512, 128, transpose_b=True)),
    ("transformer, scores", _dense_problem(64, 64, 32, 32, transpose_b=True)),
    ("transformer, values", _dense_problem(64, 32, 64, 32)),
    ("transformer, vocabulary", _dense_problem(512, 4096, 128, transpose_b=True)),
    ("ResNet-18, 7x7", _im2col_problem(64, 12544, 147)),
    ("ResNet-18, 3x3, 56 x 56", _im2col_problem(64, 3136, 576)),
    ("ResNet-18, 3x3, 28 x 28", _im2col_problem(128, 784, 1152)),
    ("ResNet-18, 3x3, 14 x 14", _im2col_problem(256, 196, 2304)),
    ("ResNet-18, 3x3, 7 x 7", _im2col_problem(512, 49, 4608)),
    ("ResNet-18, 1x1, 14 x 14", _dense_problem(256, 196, 128)),
)
SPACE = autotune.declare(
    autotune.TuningSpace("gemm", TILES, _key, _rule, _fits, _prepare, PROBLEMS, version=2)
)
