"""Panels of a matrix: copies in the order in which tiles of products read them (gemm_tiles.py).

A panel has as many columns as a tile, one row after the other. Panels of one matrix are
``panel_rows(depth) * columns`` elements apart; the rows past the matrix's depth are undefined, and so are
columns past its last one.
"""

from __future__ import annotations

from dl4all.host_kernels.lib.transposition import transposed
from dl4all.host_kernels.linalg.gemm_tiles import prefetch, tile_sizes
from dl4all.runtime.cpu.llvm.ir import IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

PACK_TYPES = ("ptr", "i64", "i64", "i64", "i64", "ptr", "i64", "i64")
"""B, strides of its rows and columns, depth, columns, panels, the number of the first one, and their end."""

FETCHED_ROWS = 16
"""Rows between the one that is copied and the memory that is fetched: processors see no stream in pieces."""


def panel_rows(depth: int, element: str = "float") -> int:
    """The rows of a panel, whole vectors of them."""
    lanes = tile_sizes(element).lanes
    return -(-depth // lanes) * lanes


def panel_elements(depth: int, columns: int, element: str = "float") -> int:
    """The elements of all panels of a matrix."""
    width = tile_sizes(element).columns
    return panel_rows(depth, element) * -(-columns // width) * width


def gemm_pack(element: str = "float") -> IrModule:
    """The module of a function of :data:`PACK_TYPES` that copies panels of B, which may have any strides."""
    module = IrModule()
    sizes = tile_sizes(element)
    lanes, width = sizes.lanes, sizes.columns
    type = vector(element, lanes)
    with module.shared("gemm_pack", *PACK_TYPES) as code:
        b, row_stride, column_stride, depth, columns, panels, begin, end = code.parameters
        rows = (depth + (lanes - 1)) // lanes * lanes
        by_rows, by_columns = column_stride.equals(1), row_stride.equals(1)
        with code.loop(begin, end) as panel:
            first = panel * width
            source = code.at(b, first * column_stride, element)
            target = code.at(panels, first * rows, element)
            count = code.intrinsic("smin", columns - first, code.constant("i64", width))
            with code.if_(by_rows):
                with code.if_(count.equals(width)), code.loop(0, depth) as row:
                    later = (row + FETCHED_ROWS) * row_stride
                    for v in range(sizes.vectors):
                        prefetch(code, code.at(source, later + v * lanes, element))
                    for v in range(sizes.vectors):
                        copied = code.load(source, row * row_stride + v * lanes, type)
                        code.store(copied, target, row * width + v * lanes)
                with code.if_(count < width), code.loop(0, depth) as row, code.loop(0, count, lanes) as i:
                    value = code.load(source, row * row_stride + i, type, code.first_lanes(count - i, lanes))
                    code.store(value, target, row * width + i)
            with code.if_(by_columns & ~by_rows), code.loop(0, count, lanes) as first_column:
                # Past the last column it is copied again: nobody reads what becomes of it.
                places = []
                for lane in range(lanes):
                    column = code.intrinsic("smin", first_column + lane, count - 1)
                    places.append(code.at(source, column * column_stride, element))
                whole = depth - depth % lanes

                def block(row: IrValue, mask: IrValue | None) -> None:
                    values = [code.load(place, row, type, mask) for place in places]
                    for lane, value in enumerate(transposed(code, values)):
                        code.store(value, target, (row + lane) * width + first_column)

                with code.loop(0, whole, lanes) as row:
                    block(row, None)
                with code.if_(whole < depth):
                    block(whole, code.first_lanes(depth - whole, lanes))
            with code.if_(~(by_rows | by_columns)), code.loop(0, depth) as row, code.loop(0, count) as i:
                value = code.load(source, row * row_stride + i * column_stride, element)
                code.store(value, target, row * width + i)
    return module
