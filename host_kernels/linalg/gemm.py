"""Matrix products of any strides: their kernels, and functions by which other kernels multiply.

C = A B, in batches, with a bias for each column. Shapes and strides decide how a product is computed:

- ``direct``: tiles read A and B where they are. B lies in rows, and few rows of A meet it, or it is small.
- ``panels``: B is copied into panels first (gemm_panels.py), by all threads; then come tiles.
- ``turned``: B lies in columns, as a layer's weights do, and A has fewer rows than B has columns. It is
  cheaper then to pack the transpose of A, and to compute tiles of C's transpose, which are turned at the end.
- ``rows``: A has few rows, or B few columns, and B lies in columns: dot products of rows (gemm_rows.py).

Threads share tiles of C. Where the cuts are depends on shapes only, and no sum is cut.

Parts of other kernels multiply by :func:`multiply`, on the thread that runs them, with a B in rows or, by
:func:`pack`, in panels. The tiles are compiled once for all kernels.
"""

from __future__ import annotations

from typing import NamedTuple

from dl4all.host_kernels.lib.elements import in_memory, number_of
from dl4all.host_kernels.lib.transposition import transposed
from dl4all.host_kernels.linalg.gemm_panels import (
    FETCHED_ROWS,
    gemm_pack,
    panel_elements,
    panel_rows,
)
from dl4all.host_kernels.linalg.gemm_rows import columns_together, gemm_rows
from dl4all.host_kernels.linalg.gemm_tiles import (
    ADD,
    BIAS,
    BLOCK,
    LAST,
    TileSizes,
    gemm_tiles,
    prefetch,
    tile_sizes,
)
from dl4all.ops.core.kernels.host_kernel import HostLaunch
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue, Operand
from dl4all.runtime.cpu.llvm.ir_types import SIZES, vector
from dl4all.runtime.cpu.llvm.provider import linked

PARALLEL_PRODUCTS = 2**19
"""Products of two numbers that a thread computes at a time, at least: some 10 microseconds."""

PARALLEL_ROW_PRODUCTS = 2**17
"""The same of dot products of rows, which wait for memory."""

PARALLEL_PACKING = 2**15
"""Elements that a thread packs at a time."""

PACKED_ELEMENTS = 2**22
"""Of all panels that are in memory at a time, unless those of a single tile are more."""

FEW_TILES = 16
"""Of C: then tiles are cut for more threads, down to PARALLEL_PRODUCTS."""

TILE_ROWS, TILE_COLUMNS = 8, 16
"""Of what a thread computes at a time, in tiles of registers."""

TURNED_VECTORS, TURNED_COLUMNS = 3, 128
"""Of a tile of C's transpose, at most: vectors of rows, and columns."""

DIRECT_ROWS = 160
"""Of A, from which it pays to pack a B that lies in rows."""

DIRECT_COLUMNS, DIRECT_DEPTH = 64, 64
"""Of B, up to which it does not."""

TURNED_ROWS = 96
"""Of A, from which it pays to pack a B that lies in columns."""

FEW_ROWS = 16
"""Rows of A, or columns of B, below which dot products of rows are faster than packing."""


class Product(NamedTuple):
    """Sizes and strides of products; strides count elements. C is contiguous.

    Matrix number i of the batch begins at ``i // inner * outer_stride + i % inner * inner_stride``.
    """

    m: int
    n: int
    k: int
    a_row: int
    a_column: int
    b_row: int
    b_column: int
    matrices: int = 1
    inner: int = 1
    a_outer: int = 0
    a_inner: int = 0
    b_outer: int = 0
    b_inner: int = 0


class Panels(NamedTuple):
    """A packed B: blocks of :data:`BLOCK` rows, one after the other, each in panels (gemm_panels.py).

    A block begins at element ``first row * count * tile_sizes().columns``.
    """

    address: IrValue
    panels: IrValue  # how many there are
    first: Operand = 0  # panel that is multiplied, with those after it


class Rows(NamedTuple):
    """A B whose columns are adjacent, in the place where it is."""

    address: IrValue
    stride: IrValue


def pack(
    code: Code,
    b: IrValue,
    strides: tuple[Operand, Operand],
    depth: Operand,
    columns: Operand,
    panels: IrValue,
    part: Operand,
    *,
    element: str = "float",
) -> None:
    """Write code that copies part of B into panels: number `part` of :func:`pack_parts` parts.

    Args:
        code: of a kernel's part.
        b, strides: the address of B, and the strides of its rows and columns.
        depth, columns: of B.
        panels: memory for ``panel_elements(depth, columns)`` elements.
        part: a block of rows of one panel.
        element: ``"float"`` or ``"double"``.
    """
    sizes = tile_sizes(element)
    depth, columns, part = (code.as_value("i64", value) for value in (depth, columns, part))
    row_stride, column_stride = (code.as_value("i64", stride) for stride in strides)
    count = (columns + (sizes.columns - 1)) // sizes.columns
    first, panel = part // count * BLOCK, part % count
    terms = code.intrinsic("smin", depth - first, code.constant("i64", BLOCK))
    source = code.at(b, first * row_stride, element)
    target = code.at(panels, first * count * sizes.columns, element)
    code.call(
        linked(gemm_pack, element), "void", source, row_stride, column_stride, terms, columns, target,
        panel, panel + 1,
    )  # fmt: skip


def pack_parts(code: Code, depth: IrValue, columns: IrValue, element: str = "float") -> IrValue:
    """The number of parts into which :func:`pack` divides a matrix."""
    width = tile_sizes(element).columns
    return (depth + (BLOCK - 1)) // BLOCK * ((columns + (width - 1)) // width)


def multiply(
    code: Code,
    a: IrValue,
    a_strides: tuple[Operand, Operand],
    b: Panels | Rows,
    c: IrValue,
    c_row: Operand,
    sizes: tuple[Operand, Operand, Operand],
    *,
    bias: IrValue | None = None,
    mode: Operand = 0,
    copies: IrValue | None = None,
    element: str = "float",
) -> None:
    """Write code that computes ``C = A B`` on the thread that runs it.

    Args:
        code: of a kernel's part.
        a, a_strides: the address of A, and the strides of its rows and columns.
        b: B in panels or in rows.
        c, c_row: C and the stride of its rows.
        sizes: rows of C, columns of C, depth.
        bias: added to each row.
        mode: ``ADD`` to add the product to C.
        copies: whether to copy blocks of an A that lies in columns, and has at most TILE_ROWS tiles of rows.
        element: ``"float"`` or ``"double"``.
    """
    rows, columns, depth = (code.as_value("i64", size) for size in sizes)
    row_stride, column_stride, c_stride, given = (
        code.as_value("i64", value) for value in (*a_strides, c_row, mode)
    )
    lanes, width = tile_sizes(element).lanes, code.constant("i64", tile_sizes(element).columns)
    last = LAST if bias is None else LAST | BIAS
    if copies is not None:
        height = TILE_ROWS * tile_sizes(element).rows
        buffer = code.local(element, BLOCK * height)
        row_stride = code.select(copies, 1, row_stride)
    with code.loop(0, depth, BLOCK) as first:
        terms = code.intrinsic("smin", depth - first, code.constant("i64", BLOCK))
        adds = code.select(first.equals(0), given, ADD)
        ends = code.select((first + terms).equals(depth), last, code.constant("i64", 0))
        factors, step = code.at(a, first * column_stride, element), column_stride
        if copies is not None:
            with code.if_(copies):
                _copy_columns(code, factors, column_stride, buffer, height, rows, terms, element)
            factors = code.select(copies, buffer, factors)
            step = code.select(copies, height, column_stride)
        if isinstance(b, Panels):
            panel = (terms + (lanes - 1)) // lanes * lanes * width
            source = code.at(b.address, first * b.panels * width + panel * b.first, element)
            b_stride = width
        else:
            panel, b_stride = width, b.stride
            source = code.at(b.address, first * b_stride, element)
        code.call(
            linked(gemm_tiles, element), "void", factors, row_stride, step, source, b_stride, c, c_stride,
            terms, columns, adds | ends,
            c if bias is None else bias, rows, panel,
        )  # fmt: skip


def _copy_columns(
    code: Code,
    a: IrValue,
    stride: IrValue,
    buffer: IrValue,
    height: int,
    rows: IrValue,
    columns: IrValue,
    element: str,
) -> None:
    """Copy columns of adjacent elements to memory in which they are `height` apart: a few pages."""
    lanes = tile_sizes(element).lanes
    with code.loop(0, columns) as column:
        source = code.at(a, column * stride, element)
        later = code.at(source, stride * FETCHED_ROWS, element)
        with code.loop(0, rows, lanes) as row:
            prefetch(code, code.at(later, row, element))
            values = code.load(source, row, vector(element, lanes), code.first_lanes(rows - row, lanes))
            code.store(values, buffer, column * height + row)


CONSTANTS = (
    *Product._fields, "tile_rows", "tile_columns", "grain", "pack_grain", "copies", "panel_elements",
    "group_matrices", "group_columns",
)  # fmt: skip
"""Of a kernel: how C is cut, whether threads copy A, the elements of the panels of a matrix, and what of the
batch and of C's columns has panels in memory at a time."""

GROUP = ("first_matrix", "group_size", "first_column", "columns")
"""The numbers that a kernel adds to them: its place in the batch and in C's columns."""


def _named_slots(code: Code, addresses: tuple[str, ...], names: tuple[str, ...]) -> dict[str, IrValue]:
    """The values of all slots of a function."""
    values = {name: code.slot(place, "ptr") for place, name in enumerate(addresses)}
    return values | {name: code.slot(len(addresses) + place) for place, name in enumerate(names)}


def _matrix(code: Code, at: dict[str, IrValue], name: str, number: IrValue, element: str) -> IrValue:
    """The address of a matrix of A's or B's batch."""
    outer, inner = number // at["inner"], number % at["inner"]
    offset = outer * at[f"{name}_outer"] + inner * at[f"{name}_inner"]
    return code.at(at[name], offset, element)


def product(form: str, swapped: bool, element: str, bias: bool) -> IrModule:
    """The kernel of a form but ``rows``. Slots: A, B, the bias and panels if there are, C; CONSTANTS.

    If the operands are swapped, the constants are those of C's transpose, whose B comes first.
    """
    packs, turned = form != "direct", form == "turned"
    operands = ("b", "a") if swapped else ("a", "b")
    addresses = (*operands, *(("bias",) if bias else ()), "c", *(("panels",) if packs else ()))
    width = tile_sizes(element).columns
    module = IrModule()
    if packs:
        with module.part("pack") as packing:
            at = _named_slots(packing, addresses, CONSTANTS + GROUP)
            _, begin, end = packing.parameters
            parts = pack_parts(packing, at["k"], at["columns"], element)
            with packing.loop(begin, end) as number:
                place = number // parts
                matrix = _matrix(packing, at, "b", at["first_matrix"] + place, element)
                source = packing.at(matrix, at["first_column"] * at["b_column"], element)
                target = packing.at(at["panels"], place * at["panel_elements"], element)
                strides = at["b_row"], at["b_column"]
                pack(
                    packing, source, strides, at["k"], at["columns"], target, number % parts, element=element
                )
    with module.part("multiply") as part:
        at = _named_slots(part, addresses, CONSTANTS + GROUP)
        _, begin, end = part.parameters
        across = (at["columns"] + (at["tile_columns"] - 1)) // at["tile_columns"]
        tiles = (at["m"] + (at["tile_rows"] - 1)) // at["tile_rows"] * across
        panels = (at["columns"] + (width - 1)) // width
        shared = at["b_outer"].equals(0) & at["b_inner"].equals(0)
        local = None
        if turned:
            local = part.local(element, TURNED_VECTORS * tile_sizes(element).lanes * TURNED_COLUMNS)
        with part.loop(begin, end) as number:
            place, tile = number // tiles, number % tiles
            matrix = at["first_matrix"] + place
            row, column = tile // across * at["tile_rows"], tile % across * at["tile_columns"]
            rows = part.intrinsic("smin", at["m"] - row, at["tile_rows"])
            columns = part.intrinsic("smin", at["columns"] - column, at["tile_columns"])
            a = part.at(_matrix(part, at, "a", matrix, element), row * at["a_row"], element)
            c_column = at["first_column"] + column
            b: Panels | Rows
            if packs:
                offset = part.select(shared, 0, place) * at["panel_elements"]
                b = Panels(part.at(at["panels"], offset, element), panels, column // width)
            else:
                b = Rows(part.at(_matrix(part, at, "b", matrix, element), c_column, element), at["b_row"])
            c = part.at(at["c"], matrix * at["m"] * at["n"], element)
            strides, extent = (at["a_row"], at["a_column"]), (rows, columns, at["k"])
            if local is None:
                target = part.at(c, row * at["n"] + c_column, element)
                added = part.at(at["bias"], c_column, element) if bias else None
                copies = at["copies"].differs(0) if packs else None
                multiply(
                    part, a, strides, b, target, at["n"], extent, bias=added, copies=copies, element=element
                )
            else:
                multiply(part, a, strides, b, local, TURNED_COLUMNS, extent, element=element)
                target = part.at(c, c_column * at["m"] + row, element)
                added = part.at(at["bias"], row, element) if bias else None
                _store_transposed(part, local, target, at["m"], rows, columns, added, element)
    with module.kernel("product") as code:
        at = _named_slots(code, addresses, CONSTANTS)
        given = len(addresses) + len(CONSTANTS)
        slots = code.local("i64", given + len(GROUP))
        for word in range(given):
            code.store(code.slot(word), slots, word)
        shared = at["b_outer"].equals(0) & at["b_inner"].equals(0)
        with (
            code.loop(0, at["matrices"], at["group_matrices"]) as matrix,
            code.loop(0, at["n"], at["group_columns"]) as column,
        ):
            matrices = code.intrinsic("smin", at["matrices"] - matrix, at["group_matrices"])
            columns = code.intrinsic("smin", at["n"] - column, at["group_columns"])
            for word, value in enumerate((matrix, matrices, column, columns), given):
                code.store(value, slots, word)
            if packs:
                parts = code.select(shared, 1, matrices) * pack_parts(code, at["k"], columns, element)
                code.parallel(packing, slots, parts, at["pack_grain"])
            across = (columns + (at["tile_columns"] - 1)) // at["tile_columns"]
            tiles = (at["m"] + (at["tile_rows"] - 1)) // at["tile_rows"] * across
            code.parallel(part, slots, matrices * tiles, at["grain"])
    return module


def row_products(swapped: bool, element: str, bias: bool, right: str = "") -> IrModule:
    """The kernel of ``rows``. Slots: A, B, the bias if there is one, C; CONSTANTS.

    Chunks are of ``tile_columns`` columns of C.
    """
    addresses = (*(("b", "a") if swapped else ("a", "b")), *(("bias",) if bias else ()), "c")
    module, word = IrModule(), in_memory(element)
    with module.part("multiply") as part:
        at = _named_slots(part, addresses, CONSTANTS)
        _, begin, end = part.parameters
        across = (at["n"] + (at["tile_columns"] - 1)) // at["tile_columns"]
        with part.loop(begin, end) as number:
            matrix, column = number // across, number % across * at["tile_columns"]
            columns = part.intrinsic("smin", at["n"] - column, at["tile_columns"])
            a = _matrix(part, at, "a", matrix, word)
            kept = in_memory(right or element)
            b = part.at(_matrix(part, at, "b", matrix, kept), column * at["b_column"], kept)
            c = part.at(at["c"], matrix * at["m"] * at["n"] + column, word)
            added = part.at(at["bias"], column, word) if bias else c
            part.call(
                linked(gemm_rows, element, right), "void", a, at["a_row"], b, at["b_column"], c, at["n"],
                part.constant("i64", 1), at["k"], columns, added, part.constant("i64", int(bias)), at["m"],
            )  # fmt: skip
    with module.kernel("row_products") as code:
        at = _named_slots(code, addresses, CONSTANTS)
        across = (at["n"] + (at["tile_columns"] - 1)) // at["tile_columns"]
        code.parallel(part, code.parameters[0], at["matrices"] * across, at["grain"])
    return module


def _store_transposed(
    code: Code,
    source: IrValue,
    target: IrValue,
    stride: IrValue,
    rows: IrValue,
    columns: IrValue,
    bias: IrValue | None,
    element: str,
) -> None:
    """Write the transpose of a tile, plus a bias for each of its rows; `stride` is that of C's rows."""
    lanes = tile_sizes(element).lanes
    type = vector(element, lanes)
    with code.loop(0, rows, lanes) as row:
        mask = code.first_lanes(rows - row, lanes)
        added = None if bias is None else code.load(bias, row, type, mask)
        with code.loop(0, columns, lanes) as column:
            # What lies past the tile is undefined, and is not stored.
            values = [code.load(source, (row + i) * TURNED_COLUMNS + column, type) for i in range(lanes)]
            for i, value in enumerate(transposed(code, values)):
                with code.if_(column + i < columns):
                    if added is not None:
                        value = value + added
                    code.store(value, target, (column + i) * stride + row, mask)


def product_launch(problem: Product, element: str, bias: bool, right: str = "") -> HostLaunch:
    """The launch of a product whose operands are A, B, the bias if there is one, and C, in this order.

    Args:
        problem: its sizes and strides; none of the sizes is 0.
        element: ``"float"`` or ``"double"``; of 16 bits where A has few rows, ``"half"`` or ``"bf16"``.
        bias: whether there is one, of adjacent elements.
        right: the memory type of B's elements, if that is another one; then B is not swapped with A.

    Raises:
        NoKernel: elements of 16 or 8 bits, and many rows: those are widened once, and read from panels.
    """
    swapped = problem.n == 1 and not bias and not right  # C's transpose lies in memory as C does
    if swapped:
        problem = _transpose(problem)
    form = _form(problem)
    if form == "turned":
        problem, swapped = _transpose(problem), not swapped
    work = problem.matrices * problem.m * problem.n * problem.k // 8
    if form == "rows":
        columns = max(columns_together(1, element), PARALLEL_ROW_PRODUCTS // (problem.m * problem.k))
        grain = max(1, PARALLEL_ROW_PRODUCTS // (problem.m * problem.k * min(columns, problem.n)))
        constants = (*problem, problem.m, columns, grain, 0, 0, 0, 0, 0)
        return HostLaunch(row_products, (swapped, element, bias, right), 3 + bias, constants, work=work)
    if right or number_of(element) != element:
        raise NoKernel("many rows of short elements")
    sizes = tile_sizes(element)
    panel = panel_rows(problem.k, element) * sizes.columns
    room = max(1, PACKED_ELEMENTS // panel)  # for panels
    tile_rows, tile_columns = TURNED_VECTORS * sizes.lanes, TURNED_COLUMNS
    if form != "turned":
        tile_rows, tile_columns = _tile(
            problem, sizes, min(room, TILE_COLUMNS) if form == "panels" else TILE_COLUMNS
        )
    grain = max(1, PARALLEL_PRODUCTS // (tile_rows * tile_columns * problem.k))
    shared = problem.b_outer == problem.b_inner == 0
    matrices, columns, elements = problem.matrices, problem.n, 0
    if form != "direct":
        panels = -(-problem.n // sizes.columns)
        if panels > room:
            columns = max(1, room * sizes.columns // tile_columns) * tile_columns
        if not shared:
            matrices = min(problem.matrices, max(1, room // panels))
        elements = panel_elements(problem.k, min(columns, problem.n), element)
    pack_grain = max(1, PARALLEL_PACKING // (min(problem.k, BLOCK) * sizes.columns))
    copies = form == "panels" and problem.a_row == 1 and problem.a_column != 1 and problem.k >= BLOCK
    constants = (
        *problem, tile_rows, tile_columns, grain, pack_grain, int(copies), elements, matrices, columns,
    )  # fmt: skip
    scratch = (1 if shared else matrices) * elements * SIZES[element]
    return HostLaunch(
        product, (form, swapped, element, bias), 3 + bias, constants, scratch=scratch, work=work
    )


def _transpose(p: Product) -> Product:
    """The product that gives C's transpose."""
    return p._replace(
        m=p.n, n=p.m, a_row=p.b_column, a_column=p.b_row, b_row=p.a_column, b_column=p.a_row,
        a_outer=p.b_outer, a_inner=p.b_inner, b_outer=p.a_outer, b_inner=p.a_inner,
    )  # fmt: skip


def _form(p: Product) -> str:
    if p.b_column == 1:
        stays = p.m < DIRECT_ROWS or p.n <= DIRECT_COLUMNS or p.k <= DIRECT_DEPTH
        return "direct" if stays else "panels"
    if min(p.m, p.n) < FEW_ROWS and p.a_column == p.b_row == 1:
        return "rows"
    return "turned" if p.m < min(TURNED_ROWS, p.n) else "panels"


def _tile(p: Product, sizes: TileSizes, wide: int) -> tuple[int, int]:
    """Rows of C, and columns of at most `wide` panels, that a thread computes at a time: by sizes only."""
    high = min(TILE_ROWS, -(-p.m // sizes.rows))
    wide = min(wide, -(-p.n // sizes.columns))
    while high * wide > 1:
        rows, columns = high * sizes.rows, wide * sizes.columns
        tiles = p.matrices * -(-p.m // rows) * -(-p.n // columns)
        if tiles >= FEW_TILES or rows * columns * p.k <= 2 * PARALLEL_PRODUCTS:
            break
        if wide > high or high == 1:  # each cut of columns has A read once more
            wide -= wide // 2
        else:
            high -= high // 2
    return high * sizes.rows, wide * sizes.columns
