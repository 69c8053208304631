"""The matrix product that matmul and convolution share, and the tile it is computed in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from dl4all.errors import ArgumentError
from dl4all.ops.core import autotune
from dl4all.ops.core.launch import MAX_GRID_SIZE, ceil_div, pack, shader
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.device_info import DeviceInfo
from dl4all.scheduler.device import Device
from dl4all.scheduler.programs import Launch

MOST_TERMS = 2**14
"""That are added up one after the other. More would lose digits, and from 2**18 on llvmpipe would leave the
loop before its end: it allows an invocation 65535 rounds in all, of four terms each."""

PANEL = 28
"""Columns that are best stored together when B is written for the purpose: as many as a tile of
``SHUFFLE`` has, so that a workgroup walks through memory without a gap."""


@dataclass(frozen=True)
class Matrices:
    """C = A B for `batch` triples: A is m x k, B k x n, C m x n, all with adjacent columns.

    ``lda`` is the distance between A's rows, ``a_offset`` where the first matrix starts and
    ``a_step`` the distance to the next (0: the same one again), in elements; likewise for B and C.
    With ``turn_a``, A's rows are adjacent and its columns ``lda`` apart; likewise for B, not both.
    With ``panel`` > 0, B lies in panels of that many columns, ``panel_step`` apart.
    What is added to the product in row r and column c lies at ``bias_offset + r * bias_row + c *
    bias_column``: by default one number for each row; a ``bias_column`` takes ``turn_b`` or ``matrix``.
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
    turn_a: bool = False
    turn_b: bool = False
    panel: int = 0
    panel_step: int = 0
    bias_offset: int = 0
    bias_row: int = 1
    bias_column: int = 0
    bias_step: int = 0
    matrix: bool = False


@dataclass(frozen=True)
class Tile:
    """Rows and columns of C that one workgroup computes, and what makes the shader do so."""

    form: str  # of FORMS
    rows: int
    columns: int
    constants: tuple[int, ...] = ()  # invocations along N and M, rows and vec4 columns of each, and the depth
    shared_bytes: int = 0


def plain(x: int, y: int, rows: int, fours: int) -> Tile:
    """Of so many invocations along N and M, with so many rows and vec4 columns each."""
    return Tile("plain", y * rows, x * fours * 4, (x, y, rows, fours))


def shared(x: int, y: int, rows: int, fours: int, depth: int) -> Tile:
    """Likewise, by way of two pieces of A and B in shared memory; what both hold is as in staged.glsl."""
    tile = plain(x, y, rows, fours)
    nbytes = 2 * depth * 4 * (tile.rows + tile.columns + 8)
    return Tile("shared", tile.rows, tile.columns, (*tile.constants, depth), nbytes)


# The measurements behind the first ones are in docs/performance.md.
WORDS64 = Tile("words64", 64, PANEL)
SHUFFLE = Tile("shuffle", 64, PANEL)
NARROW64 = Tile("narrow64", 64, 16)
NARROW = Tile("narrow", 64, 16)
PLAIN = plain(16, 8, 8, 1)
SHARED = shared(16, 8, 8, 1, 8)
TILES = {
    "words64 64x28": WORDS64,
    "shuffle 64x28": SHUFFLE,
    "words64 64x16": NARROW64,
    "shuffle 64x16": NARROW,
    "plain 64x64": PLAIN,
    "plain 32x64": plain(16, 8, 4, 1),
    "plain 64x128": plain(16, 8, 8, 2),
    "plain 4x256": plain(64, 1, 4, 1),
    "plain 128x16": plain(4, 32, 4, 1),
    "shared 32x32": shared(8, 8, 4, 1, 8),
    "shared 64x64": SHARED,
    "shared 128x64": shared(8, 16, 8, 2, 8),
    "shared 128x128": shared(16, 16, 8, 2, 8),
}
"""What the tuner chooses between. Every one sums in the same order, so that results do not depend on it."""

# Drivers of hardware that keeps what a workgroup shares in the same memory as everything else: nothing is won
# by copying it there.
NOT_SHARED = frozenset({"arm_proprietary", "mesa_panvk", "mesa_v3dv", "broadcom_proprietary"})
BUSY = 128  # workgroups that keep a large GPU busy
LARGEST = 11  # bits of a size from which on more of the same follows: 1024
MOST_MATRICES = 8  # likewise of a batch: 128

STRAIGHT = tuple(product([(False, False)], product((0, 1), (0, 1), (0, 1))))
PLACES = (*STRAIGHT, *product([(True, False), (False, True)], product((0, 1), (0, 1), (-1,))))
"""Which operands are turned, and the shader's VEC_A, VEC_B and VEC_C."""

WIDE, NARROWER = {"TM": 8, "TNV": 7}, {"TM": 8, "TNV": 4}
FORMS: dict[str, dict[str, int]] = {
    "words64": {"SHUFFLE": 1, "SHARED": 0, "WORDS64": 1, **WIDE},
    "shuffle": {"SHUFFLE": 1, "SHARED": 0, "WORDS64": 0, **WIDE},
    "narrow64": {"SHUFFLE": 1, "SHARED": 0, "WORDS64": 1, **NARROWER},
    "narrow": {"SHUFFLE": 1, "SHARED": 0, "WORDS64": 0, **NARROWER},
    "plain": {"SHUFFLE": 0, "SHARED": 0, "WORDS64": 0},
    "shared": {"SHUFFLE": 0, "SHARED": 1, "WORDS64": 0},
}
"""The macros of each."""

GEMM = {
    (form, turn, vectors): shader(
        "linalg/gemm.comp",
        TURN_A=int(turn[0]),
        TURN_B=int(turn[1]),
        **dict(zip(("VEC_A", "VEC_B", "VEC_C"), vectors, strict=True)),
        **macros,
    )
    for form, macros in FORMS.items()
    for turn, vectors in (STRAIGHT if form.startswith("narrow") else PLACES)
}
GEMM_SHADERS = tuple(GEMM.values())


def best_panel(device: Device, n: int) -> int:
    """Columns to store together where B with `n` columns is written for the purpose."""
    # Time goes with the columns of all tiles, and a narrow one takes two thirds of a wide one's.
    narrow = 2 * ceil_div(n, NARROW.columns) < 3 * ceil_div(n, PANEL)
    return NARROW.columns if narrow and device.info.short_subgroups else PANEL


def gemm(c: TensorBase, a: TensorBase, b: TensorBase, bias: TensorBase | None, g: Matrices) -> None:
    """Fill `c` with the products, plus `bias` if given."""
    if 0 in (g.m, g.n, g.batch):
        return
    multiply_with(autotune.choose(SPACE, c.device, g), c, a, b, bias, g)


def multiply_with(
    tile: Tile, c: TensorBase, a: TensorBase, b: TensorBase, bias: TensorBase | None, g: Matrices
) -> None:
    """The same, with a tile that the device can run."""
    for first in range(0, max(g.k, 1), MOST_TERMS):
        for part in _parts(_terms(g, first), tile):
            _launch(c, a, b, c if first else bias, part, tile)


def _terms(g: Matrices, first: int) -> Matrices:
    """The part of the sums from a term on, which goes on from what C holds."""
    if g.k <= MOST_TERMS:
        return g
    part = replace(
        g,
        k=min(MOST_TERMS, g.k - first),
        a_offset=g.a_offset + first * (g.lda if g.turn_a else 1),
        b_offset=g.b_offset + first * (1 if g.turn_b else g.ldb),
    )
    if first == 0:
        return part
    return replace(
        part,
        bias_offset=g.c_offset, bias_row=g.ldc, bias_column=1, bias_step=g.c_step, matrix=True,
    )  # fmt: skip


def _parts(g: Matrices, tile: Tile) -> Iterator[Matrices]:
    """Products with no more workgroups than every device allows."""
    most = (MAX_GRID_SIZE, MAX_GRID_SIZE * tile.rows, MAX_GRID_SIZE * tile.columns)
    if g.panel and g.n > most[2]:
        raise ArgumentError(f"[gemm] {g.n} columns in panels of {g.panel} are more than {most[2]}")
    for z, row, column in product(*map(range, (0, 0, 0), (g.batch, g.m, g.n), most)):
        yield replace(
            g,
            batch=min(most[0], g.batch - z),
            m=min(most[1], g.m - row),
            n=min(most[2], g.n - column),
            a_offset=g.a_offset + z * g.a_step + row * (1 if g.turn_a else g.lda),
            b_offset=g.b_offset + z * g.b_step + column * (g.ldb if g.turn_b else 1),
            c_offset=g.c_offset + z * g.c_step + row * g.ldc + column,
            bias_offset=g.bias_offset + z * g.bias_step + row * g.bias_row + column * g.bias_column,
        )


def _launch(
    c: TensorBase,
    a: TensorBase,
    b: TensorBase,
    bias: TensorBase | None,
    g: Matrices,
    tile: Tile,
) -> None:
    # A vector of four may reach past what is left of a row, but not past the row's distance.
    panel, panel_step = (g.panel, g.panel_step) if g.panel else (ceil_div(g.n, 4) * 4, 0)
    turn = (g.turn_a, g.turn_b)
    vectors = (
        int(all(x % 4 == 0 for x in (g.lda, g.a_offset, g.a_step))),
        int(
            all(x % 4 == 0 for x in (g.ldb, g.b_offset, g.b_step, *(() if g.turn_b else (panel, panel_step))))
        ),
        -1 if True in turn else int(all(x % 4 == 0 for x in (g.n, g.ldc, g.c_offset, g.c_step))),
    )
    extra = (0, 0, 0, 0, 0)
    if bias is not None:
        extra = (1, bias.offset + g.bias_offset, g.bias_row, g.bias_column, g.bias_step)
    push = pack(
        g.m, g.n, g.k, g.lda, g.ldb, g.ldc,
        g.a_step, g.b_step, g.c_step, g.a_offset, g.b_offset, g.c_offset,
        panel, panel_step, *extra,
    )  # fmt: skip
    groups = (ceil_div(g.n, tile.columns), ceil_div(g.m, tile.rows), g.batch)
    code = GEMM[tile.form, turn, vectors]
    flops = 2 * g.m * g.n * g.k * g.batch
    operands = (a, b, a if bias is None else bias, c)
    launch = Launch(code, groups, push, (int(g.matrix), *tile.constants), flops=flops)
    c.device.launch(launch, *(tensor.storage for tensor in operands))


# Which tile


def _key(g: Matrices) -> tuple[int, ...]:
    """Sizes in steps of powers of two, and how the operands lie."""
    return (
        min(g.m.bit_length(), LARGEST),
        min(g.n.bit_length(), LARGEST),
        min(g.k.bit_length(), LARGEST),
        min(g.batch.bit_length(), MOST_MATRICES),
        g.turn_a,
        g.turn_b,
        g.panel,
    )


def _rule(info: DeviceInfo, key: tuple[int | str, ...]) -> tuple[str, ...]:
    """Names of tiles by what the device is, for a class of products; the last fits every device."""
    if info.short_subgroups:
        columns = 16 if key[-1] == 16 else 28
        return f"words64 64x{columns}", f"shuffle 64x{columns}"
    m, n, k, batch = (3 * 2 ** int(bits) // 4 for bits in key[:4])  # in the middle of the class
    if info.type not in ("discrete", "integrated", "virtual") or info.driver_id in NOT_SHARED:
        return ("plain 64x64",)
    if m < 8:  # a row of tiles, of which most rows would be empty
        return ("plain 4x256", "plain 64x64")
    if n < 16:
        return ("plain 128x16", "plain 64x64")
    if k < 16:
        return ("plain 64x64",)
    large = [name for name in ("shared 128x128", "shared 64x64") if _fills(TILES[name], m, n, batch)]
    return (*large, "shared 32x32", "plain 64x64")


def _fills(tile: Tile, m: int, n: int, batch: int) -> bool:
    """Whether there are tiles enough for a large GPU, and a matrix fills one."""
    groups = ceil_div(m, tile.rows) * ceil_div(n, tile.columns) * batch
    return groups >= BUSY and m >= tile.rows and n >= tile.columns


def _fits(device: Device, tile: Tile, key: tuple[int | str, ...]) -> bool:
    """Whether a device can run a tile for a class of products."""
    info, limits = device.info, device.info.limits
    if not tile.constants:
        lanes = info.subgroup_size == 8 and info.subgroup_shuffle
        turned = bool(key[4] or key[5])
        return (
            lanes
            and ("64" not in tile.form or "int64" in device.features)
            and not (turned and tile.form.startswith("narrow"))
        )
    x, y, *_ = tile.constants
    return (
        x * y <= limits.workgroup_invocations
        and x <= limits.workgroup_size[0]
        and y <= limits.workgroup_size[1]
        and tile.shared_bytes <= limits.shared_memory
    )


def _prepare(device: Device, g: Matrices) -> autotune.Work[Tile]:
    """A product of the same sizes, with matrices that follow each other without gaps."""
    pitch = ceil_div(g.n, g.panel) * g.panel if g.panel else g.n
    problem = Matrices(
        m=g.m, n=g.n, k=g.k, batch=g.batch,
        lda=g.m if g.turn_a else g.k,
        ldb=g.panel or (g.k if g.turn_b else g.n), ldc=g.n,
        a_step=g.a_step and g.m * g.k, b_step=g.b_step and g.k * pitch, c_step=g.m * g.n,
        turn_a=g.turn_a, turn_b=g.turn_b, panel=g.panel, panel_step=g.k * g.panel,
    )  # fmt: skip
    counts = (g.batch if g.a_step else 1) * g.m * g.k, (g.batch if g.b_step else 1) * g.k * pitch
    a, b = (autotune.uninitialized(device, count) for count in counts)
    c = autotune.uninitialized(device, g.batch * g.m * g.n)
    return autotune.Work(lambda tile: multiply_with(tile, c, a, b, None, problem), c)


def _product(m: int, n: int, k: int, batch: int = 1, *, a: bool = False, b: bool = False) -> Matrices:
    """One of tight matrices, with A or B turned."""
    steps = (m * k, k * n, m * n) if batch > 1 else (0, 0, 0)
    return Matrices(
        m, n, k, lda=m if a else k, ldb=k if b else n, ldc=n, batch=batch,
        a_step=steps[0], b_step=steps[1], c_step=steps[2], turn_a=a, turn_b=b,
    )  # fmt: skip


def _convolution(filters: int, pixels: int, inner: int) -> Matrices:
    """As :mod:`dl4all.ops.conv.im2col` does it, for one image."""
    problem = Matrices(filters, pixels, inner, lda=inner, ldb=PANEL, ldc=pixels)
    return replace(problem, panel=PANEL, panel_step=inner * PANEL)


PROBLEMS = (
    *((f"square {size}", _product(size, size, size)) for size in (128, 256, 512, 1024)),
    ("tall", _product(4096, 16, 256)),
    ("wide", _product(16, 4096, 256)),
    ("one row", _product(1, 4096, 1024)),
    ("one column", _product(4096, 1, 1024, b=True)),
    ("long sum", _product(64, 64, 8192)),
    ("MLP, layer 1", _product(128, 256, 784, b=True)),
    ("MLP, layer 2", _product(128, 128, 256, b=True)),
    ("MLP, gradient of the input", _product(128, 784, 256)),
    ("MLP, gradient of the weight", _product(256, 784, 128, a=True)),
    ("transformer, projection", _product(512, 384, 128, b=True)),
    ("transformer, feed forward", _product(512, 512, 128, b=True)),
    ("transformer, scores", _product(64, 64, 32, 32, b=True)),
    ("transformer, values", _product(64, 32, 64, 32)),
    ("transformer, vocabulary", _product(512, 4096, 128, b=True)),
    ("ResNet-18, 7x7", _convolution(64, 12544, 147)),
    ("ResNet-18, 3x3, 56 x 56", _convolution(64, 3136, 576)),
    ("ResNet-18, 3x3, 28 x 28", _convolution(128, 784, 1152)),
    ("ResNet-18, 3x3, 14 x 14", _convolution(256, 196, 2304)),
    ("ResNet-18, 3x3, 7 x 7", _convolution(512, 49, 4608)),
    ("ResNet-18, 1x1, 14 x 14", _product(256, 196, 128)),
)
SPACE = autotune.declare(autotune.Space("gemm", TILES, _key, _rule, _fits, _prepare, PROBLEMS))
