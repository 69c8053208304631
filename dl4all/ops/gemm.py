"""The matrix product that matmul and convolution share, and the tile it is computed in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from dl4all.errors import ArgumentError
from dl4all.ops.base import TensorBase
from dl4all.ops.launch import MOST_GROUPS, ceil_div, pack, run, shader
from dl4all.scheduler.device import Device

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
    bias_column``: by default one number for each row; a ``bias_column`` takes ``turn_b``.
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


@dataclass(frozen=True)
class Tile:
    """Rows and columns of C that one workgroup computes, and the macros that make the shader do so."""

    rows: int
    columns: int
    macros: tuple[tuple[str, int], ...]


# The measurements behind the sizes are in docs/performance.md.
SHUFFLE = Tile(64, PANEL, (("SHUFFLE", 1), ("TM", 8), ("TNV", 7), ("WX", 8), ("WY", 1)))
PLAIN = Tile(64, 64, (("SHUFFLE", 0), ("TM", 8), ("TNV", 1), ("WX", 16), ("WY", 8)))

PLACES = (
    *product([(False, False)], product((0, 1), (0, 1), (0, 1))),
    *product([(True, False), (False, True)], product((0, 1), (0, 1), (-1,))),
)
"""Which operands are turned, and the shader's VEC_A, VEC_B and VEC_C."""

GEMM = {
    (tile, words64, turn, vectors): shader(
        "matmul/gemm.comp",
        WORDS64=int(words64),
        TURN_A=int(turn[0]),
        TURN_B=int(turn[1]),
        **dict(zip(("VEC_A", "VEC_B", "VEC_C"), vectors, strict=True)),
        **dict(tile.macros),
    )
    for tile, words64 in ((SHUFFLE, True), (SHUFFLE, False), (PLAIN, False))
    for turn, vectors in PLACES
}
GEMM_SHADERS = tuple(GEMM.values())


def _tile(device: Device) -> tuple[Tile, bool]:
    """The tile for a device, and whether to read 64-bit words."""
    info = device.info
    if info.type == "software" and info.subgroup_size == 8 and info.subgroup_shuffle:
        return SHUFFLE, "int64" in device.features
    return PLAIN, False


def gemm(c: TensorBase, a: TensorBase, b: TensorBase, bias: TensorBase | None, g: Matrices) -> None:
    """Fill `c` with the products, plus `bias` if given."""
    if 0 in (g.m, g.n, g.batch):
        return
    tile, words64 = _tile(c.device)
    for part in _parts(g, tile):
        _launch(c, a, b, bias, part, tile, words64)


def _parts(g: Matrices, tile: Tile) -> Iterator[Matrices]:
    """Products with no more workgroups than every device allows."""
    most = (MOST_GROUPS, MOST_GROUPS * tile.rows, MOST_GROUPS * tile.columns)
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
    words64: bool,
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
    code = GEMM[tile, words64, turn, vectors]
    flops = 2 * g.m * g.n * g.k * g.batch
    run(code, groups, push, a, b, a if bias is None else bias, c, flops=flops)
