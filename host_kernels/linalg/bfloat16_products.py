"""Products of matrices of bfloat16 by the instruction of processors that have one, ``vdpbf16ps``.

It multiplies pairs of neighbours and adds them to sums of float32, with twice the multiplications of float32
in an instruction. Dot products of rows (:mod:`row_dots`): a matrix whose rows do not lie along the sum is
transposed first. Numbers below 1e-38 count as 0 in it, as the instruction has it.
"""

from __future__ import annotations

from dl4all.host_kernels.lib.transposition import transposed
from dl4all.host_kernels.linalg.row_dots import DotStep, RowMatrix, grain_of, tile_count, write_tiles
from dl4all.ops.core.kernels.host_kernel import HostLaunch
from dl4all.runtime.cpu.llvm import provider, target
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

LANES, WIDTH = 16, 32
BLOCK_ROWS = 64
"""Rows that a thread transposes at a time."""
BLOCK = 16  # rows and elements that are transposed in registers
MOST_WORDS = 2**27
"""Elements of the transposes that are in memory at a time."""


def multiplies() -> bool:
    """Whether this processor has the instruction, and LLVM the form in which it is asked for here."""
    processor = provider.processor()
    has = "+avx512bf16" in processor.features.split(",") and processor.vector_bytes == 64
    return has and target.version() >= (17,)


def bfloat16_launch(
    m: int, n: int, k: int, a: tuple[int, int], b: tuple[int, int], bias: bool
) -> HostLaunch | None:
    """The launch of a product with these sizes, whose operands are A, B, the bias if there is one, and C.

    Args:
        m, n, k: rows of A, columns of B, and the depth.
        a, b: the distances of A's rows and of B's columns, and of elements along the sum.
        bias: whether there is one, of adjacent elements.

    Returns:
        None where neither the rows nor the sums of an operand are adjacent.
    """
    packed = [step != 1 for _, step in (a, b)]
    if any(pack and row != 1 for pack, (row, _) in zip(packed, (a, b), strict=True)):
        return None
    words = sum(rows * k for rows, pack in zip((m, n), packed, strict=True) if pack)
    if words > MOST_WORDS:
        return None
    constants = (m, n, k, a[0], a[1], b[0], b[1], grain_of(m, n, k))
    return HostLaunch(
        bfloat16_product, (*packed, bias), 3 + bias, constants, scratch=2 * words, work=m * n * k // 16
    )


def _add(code: Code, sums: IrValue, a: IrValue, b: IrValue) -> IrValue:
    left, right = (code.bits(x, "bfloat") for x in (a, b))
    return code.call("llvm.x86.avx512bf16.dpbf16ps.512", sums.type, sums, left, right)


def bfloat16_product(pack_a: bool, pack_b: bool, bias: bool) -> IrModule:
    """Slots: A, B, the bias if there is one, C, the transposes if there are any; m, n, k, distances of A's
    rows and of its elements along the sum, those of B, tiles of a chunk."""
    module = IrModule()
    packs = pack_a or pack_b
    c_slot = 2 + bias
    first = c_slot + 1 + packs

    def sizes(code: Code) -> tuple[IrValue, IrValue, IrValue]:
        return code.slot(first), code.slot(first + 1), code.slot(first + 2)

    def matrices(code: Code) -> tuple[RowMatrix, RowMatrix]:
        m, n, k = sizes(code)
        scratch = code.slot(c_slot + 1, "ptr") if packs else None
        a = RowMatrix(code.slot(0, "ptr"), code.slot(first + 3), m - 1)
        b = RowMatrix(code.slot(1, "ptr"), code.slot(first + 5), n - 1)
        if scratch is not None and pack_a:
            a = RowMatrix(scratch, k, m - 1)
        if scratch is not None and pack_b:
            b = RowMatrix(code.at(scratch, m * k, "i16") if pack_a else scratch, k, n - 1)
        return a, b

    def operands(code: Code) -> tuple[RowMatrix, RowMatrix, IrValue]:
        return *matrices(code), sizes(code)[2]

    def finish(code: Code, sums: IrValue, row: IrValue, column: IrValue, mask: IrValue) -> None:
        if bias:
            words = code.load(code.slot(2, "ptr"), column, vector("i16", 4), mask)
            sums = sums + code.float_of_bfloat16(words)
        _, n, _ = sizes(code)
        code.store(code.bfloat16_of_float(sums), code.slot(c_slot, "ptr"), row * n + column, mask)

    part = write_tiles(module, DotStep(_add, "i16", WIDTH, "float", LANES), operands, finish)
    packing = []
    for number, pack in enumerate((pack_a, pack_b)):
        if pack:
            with module.part(f"transpose{number}") as code:
                _, begin, end = code.parameters
                given = code.slot(number, "ptr"), code.slot(first + 4 + 2 * number)
                with code.loop(begin, end) as block:
                    _transpose(code, *given, matrices(code)[number], sizes(code)[2], block * BLOCK_ROWS)
                packing.append((code, number))
    with module.kernel("bfloat16_product") as kernel:
        m, n, _ = sizes(kernel)
        one = kernel.constant("i64", 1)
        for code, number in packing:
            rows = sizes(kernel)[number]
            kernel.parallel(code, kernel.parameters[0], (rows + (BLOCK_ROWS - 1)) // BLOCK_ROWS, one)
        kernel.parallel(part, kernel.parameters[0], tile_count(kernel, m, n), kernel.slot(first + 7))
    return module


def _transpose(
    code: Code, source: IrValue, step: IrValue, matrix: RowMatrix, depth: IrValue, start: IrValue
) -> None:
    """Copy BLOCK_ROWS rows of a matrix from one on, whose elements along the sum are `step` apart."""
    kind = vector("i16", BLOCK)
    end = code.intrinsic("smin", start + BLOCK_ROWS, matrix.last + 1)
    with code.loop(start, end, BLOCK) as row, code.loop(0, depth, BLOCK) as place:
        mask = code.first_lanes(end - row, BLOCK)
        places = [code.intrinsic("smin", place + i, depth - 1) * step for i in range(BLOCK)]
        lines = [code.load(code.at(source, at, "i16"), row, kind, mask) for at in places]
        kept = code.first_lanes(depth - place, BLOCK)
        for i, line in enumerate(transposed(code, lines)):
            with code.if_(row + i < end):
                code.store(line, matrix.address, (row + i) * matrix.stride + place, kept)
