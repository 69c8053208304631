"""Tiles of matrix products: a few rows times a few vectors of columns, summed in registers.

C = A B, where the columns of B and of C are adjacent. A vector holds elements of a row of B or C; those of A
are broadcast, so that A may have any strides. A tile adds up :data:`BLOCK` products in a register, one after
the other; the sums of blocks are added in memory. So every element of C is computed in the same way, wherever
it lies in a tile, and the cut of a product into tiles does not change its bits.

Design: K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008;
F. Van Zee and R. van de Geijn, "BLIS: a framework for rapidly instantiating BLAS functionality", ACM TOMS
41(3), 2015.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue, Operand
from dl4all.runtime.cpu.llvm.ir_types import SIZES, vector

BLOCK = 256
"""Products that are summed in a register: as many rows of a panel of B fit the first cache."""

ADD, BIAS, LAST = 1, 2, 4
"""The ends of a tile's sums before it stores them: add C; add the bias; apply the epilogue."""

TILE_TYPES = ("ptr", "i64", "i64", "ptr", "i64", "ptr", "i64", "i64", "i64", "i64", "ptr", "ptr", "i64")
"""A, strides of its rows and columns, B, stride of its rows, C, stride of its rows, depth, columns, mode,
bias; what to fetch from far memory meanwhile, and by how many elements for each row of B."""

PRODUCT_TYPES = (*TILE_TYPES[:-2], "i64", "i64")
"""The same up to the bias, the number of rows, and the distance of panels of B."""

Epilogue = Callable[[Code, IrValue], IrValue]


class TileSizes(NamedTuple):
    """The sizes of a tile that a processor's registers hold."""

    lanes: int
    rows: int  # of the highest tile
    vectors: int  # of a row of it
    wide: dict[int, int]  # vectors of the tiles of few rows

    @property
    def columns(self) -> int:
        """Of the highest tile, and of a panel of B."""
        return self.lanes * self.vectors


def tile_sizes(element: str = "float") -> TileSizes:
    """The tiles for this processor: three quarters of the registers hold sums."""
    processor = provider.processor()
    sums = 3 * processor.registers // 4
    rows = sums // 2
    wide = {m: next(v for v in (8, 4, 2) if m * v <= sums) for m in range(1, rows + 1)}
    return TileSizes(processor.lanes(SIZES[element]), rows, 2, {m: v for m, v in wide.items() if v > 2})


def prefetch(code: Code, address: IrValue, *, writes: bool = False) -> None:
    """Begin to move a line of memory toward the processor."""
    code.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    code.line(f"call void @llvm.prefetch.p0({address!r}, i32 {int(writes)}, i32 3, i32 1)")


def write_tile(
    module: IrModule,
    name: str,
    element: str,
    rows: int,
    vectors: int,
    masked: bool,
    epilogue: Epilogue | None,
) -> Code:
    """A function of :data:`TILE_TYPES` that computes `rows` rows and `vectors` vectors of columns.

    Args:
        module: gets the function.
        name: of the function.
        element: ``"float"`` or ``"double"``.
        rows, vectors: of the tile.
        masked: whether only the given number of columns counts; of whole vectors otherwise.
        epilogue: a function of the sums.
    """
    lanes = tile_sizes(element).lanes
    type = vector(element, lanes)
    with module.function(name, *TILE_TYPES) as code:
        (
            a,
            row_stride,
            column_stride,
            b,
            b_stride,
            c,
            c_stride,
            depth,
            columns,
            mode,
            bias,
            fetched,
            fetch_step,
        ) = code.parameters
        mask = code.first_lanes(columns, lanes) if masked else None
        sums = [[code.variable(type, 0.0) for _ in range(vectors)] for _ in range(rows)]
        # Rows in groups of three: addresses of processors have a register, and another one times 1 or 2.
        groups = [code.variable("ptr", a)]
        for _ in range(3, rows, 3):
            groups.append(code.variable("ptr", code.at(groups[-1].value, row_stride * 3, element)))
        source = code.variable("ptr", b)
        ahead = code.variable("ptr", fetched)
        double_stride = row_stride * 2
        for i in range(rows):
            for v in range(vectors):
                prefetch(code, code.at(c, c_stride * i + v * lanes, element), writes=True)
        with code.loop(0, depth):
            b_row = source.value
            values = [code.load(b_row, v * lanes, type, mask) for v in range(vectors)]
            for i, row in enumerate(sums):
                offset = (0, row_stride, double_stride)[i % 3]
                factor = code.splat(code.load(groups[i // 3].value, offset, element), lanes)
                for total, value in zip(row, values, strict=True):
                    total.value = code.intrinsic("fmuladd", factor, value, total.value)
            for v in range(min(vectors, 2)):
                prefetch(code, code.at(ahead.value, v * lanes, element))
            ahead.value = code.at(ahead.value, fetch_step, element)
            for group in groups:
                group.value = code.at(group.value, column_stride, element)
            source.value = code.at(b_row, b_stride, element)
        target = code.variable("ptr", c)

        def each(step: Callable[[int, int, IrValue], IrValue | None]) -> None:
            """Change all sums by a function of row, column vector and C's row."""
            target.value = c
            for i, row in enumerate(sums):
                for v, total in enumerate(row):
                    value = step(i, v, target.value)
                    if value is not None:
                        total.value = value
                target.value = code.at(target.value, c_stride, element)

        with code.if_((mode & ADD).differs(0)):
            each(lambda i, v, c_row: sums[i][v].value + code.load(c_row, v * lanes, type, mask))
        with code.if_((mode & BIAS).differs(0)):
            added = [code.load(bias, v * lanes, type, mask) for v in range(vectors)]
            each(lambda i, v, _: sums[i][v].value + added[v])
        if epilogue is not None:
            with code.if_((mode & LAST).differs(0)):
                each(lambda i, v, _: epilogue(code, sums[i][v].value))

        each(lambda i, v, c_row: code.store(sums[i][v].value, c_row, v * lanes, mask))
    return code


def gemm_tiles(element: str = "float", epilogue: Epilogue | None = None) -> IrModule:
    """The module of a function that multiplies any number of rows and columns, BLOCK deep at most.

    Its parameters are :data:`PRODUCT_TYPES`. A panel of B has ``tile_sizes().columns`` columns; panels of a B
    that is not packed are as many elements apart.
    """
    module = IrModule()
    sizes = tile_sizes(element)
    whole, narrow = [], []
    for m in range(1, sizes.rows + 1):
        whole.append(
            write_tile(module, f"tile{m}x{sizes.vectors}", element, m, sizes.vectors, False, epilogue)
        )
        narrow.append(write_tile(module, f"tile{m}x1", element, m, 1, True, epilogue))
    wide = [write_tile(module, f"tile{m}x{v}", element, m, v, False, epilogue) for m, v in sizes.wide.items()]
    for name, tiles in (("whole", whole), ("narrow", narrow), ("wide", wide)):
        pointers = ", ".join(f"ptr @{tile.name}" for tile in tiles)
        module.declare(f"@{name}_tiles = internal constant [{len(tiles)} x ptr] [{pointers}]")
    widths = ", ".join(f"i64 {v * sizes.lanes}" for v in sizes.wide.values())
    module.declare(f"@widths = internal constant [{len(wide)} x i64] [{widths}]")

    with module.shared("gemm_tiles", *PRODUCT_TYPES) as code:
        (
            a, row_stride, column_stride, b, b_stride, c, c_stride, depth, columns, mode, bias, rows, panel
        ) = code.parameters  # fmt: skip
        parts = (rows + (sizes.rows - 1)) // sizes.rows
        least, larger = rows // parts, rows % parts
        adjacent = panel.equals(sizes.columns)

        def strip(kind: str, j: IrValue, b_place: IrValue, count: Operand) -> None:
            """All rows of the columns from `j` on: parts that differ by at most a row in height."""
            bias_place = code.at(bias, j, element)
            a_place, c_place = code.variable("ptr", a), code.variable("ptr", code.at(c, j, element))
            # The next panel: each part of the rows fetches a share of a packed one, or all rows of another.
            step = code.select(adjacent, b_stride, code.constant("i64", sizes.columns) // parts)
            share = code.select(adjacent, 0, depth * step)
            fetched = code.variable("ptr", code.at(b_place, panel, element))
            with code.loop(0, parts) as part:
                height = code.select(part < larger, least + 1, least)
                table = IrValue(code, "ptr", f"@{kind}_tiles")
                function = code.load(table, height - 1, "ptr")
                operands = (
                    a_place.value, row_stride, column_stride, b_place, b_stride, c_place.value, c_stride,
                    depth, code.as_value("i64", count), mode, bias_place, fetched.value, step,
                )  # fmt: skip
                code.line(f"call void {function.text}({', '.join(map(repr, operands))})")
                a_place.value = code.at(a_place.value, height * row_stride, element)
                c_place.value = code.at(c_place.value, height * c_stride, element)
                fetched.value = code.at(fetched.value, share, element)

        start = code.variable("i64", 0)
        with code.if_(adjacent & (rows <= len(wide))):
            width = code.load(IrValue(code, "ptr", "@widths"), rows - 1, "i64")
            end = columns - columns % width
            with code.loop(0, end, width) as j:
                strip("wide", j, code.at(b, j, element), 0)
            start.value = end
        end = columns - (columns - start.value) % sizes.columns
        with code.loop(start.value, end, sizes.columns) as j:
            strip("whole", j, code.at(b, j // sizes.columns * panel, element), 0)
        last = code.at(b, end // sizes.columns * panel, element)
        with code.loop(end, columns, sizes.lanes) as j:
            strip("narrow", j, code.at(last, j - end, element), columns - j)
    return module
