"""Products of matrices of 8-bit integers with sums of 32 bits (:mod:`dl4all.ops.linalg.integer_product`).

Both matrices have their rows along the sum, so that nothing is packed: vectors of bytes of some rows of A
meet those of some rows of B, and the lanes of each sum are added up at the end. The processor's features
choose the instruction that multiplies: ``vpdpbusd`` (VNNI), which wants bytes without a sign on the left,
adds four products; ``pmaddwd`` adds two of 16 bits; elsewhere LLVM multiplies numbers of 32 bits. All are
exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dl4all.host_kernels.linalg.gemm_rows import lane_sums
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm import provider, target
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import lanes_of, vector

TILE = 64  # rows, and columns, of C that a thread computes at a time
COLUMNS = 4  # that are multiplied together
PARALLEL_PRODUCTS = 2**19
"""Products of two numbers that a thread computes at a time, at least: some 10 microseconds."""


Step = Callable[[Code, IrValue, IrValue, IrValue, bool], IrValue]


class Multiplication(NamedTuple):
    """An instruction that adds products of neighbouring bytes to sums of 32 bits.

    ``step(code, sums, a, b, signed)`` takes vectors of so many bytes; ``signed`` is whether those of A are.
    """

    step: Step
    nbytes: int
    lanes: int  # of the sums
    unsigned: bool = False  # whether A's bytes must have no sign


def multiplications() -> dict[str, Multiplication]:
    """The instructions that this processor has, by name, the fastest one first."""
    processor = provider.processor()
    features, wide = processor.features.split(","), processor.vector_bytes
    lanes = processor.lanes(4)
    return {
        **({"vnni": Multiplication(_vnni, 64, 16, True)} if "+avx512vnni" in features and wide == 64 else {}),
        **({"avx512bw": Multiplication(_words, 32, 16)} if "+avx512bw" in features and wide == 64 else {}),
        **({"avx2": Multiplication(_words, 16, 8)} if "+avx2" in features and wide >= 32 else {}),
        "plain": Multiplication(_plain, lanes, lanes),
    }


def _vnni(code: Code, sums: IrValue, a: IrValue, b: IrValue, signed: bool) -> IrValue:
    if target.version() < (22,):  # where the operands were declared as words
        a, b = (code.emit(sums.type, f"bitcast {x!r} to {sums.type}") for x in (a, b))
    return code.call("llvm.x86.avx512.vpdpbusd.512", sums.type, sums, a, b)


def _words(code: Code, sums: IrValue, a: IrValue, b: IrValue, signed: bool) -> IrValue:
    words = code.convert(a, "i16") if signed else code.unsigned(a, "i16")
    name = "avx512.pmaddw.d.512" if lanes_of(a.type) == 32 else "avx2.pmadd.wd"
    return sums + code.call(f"llvm.x86.{name}", sums.type, words, code.convert(b, "i16"))


def _plain(code: Code, sums: IrValue, a: IrValue, b: IrValue, signed: bool) -> IrValue:
    numbers = code.convert(a, "i32") if signed else code.unsigned(a, "i32")
    return sums + numbers * code.convert(b, "i32")


@host_kernel("integer_product")
def prepare_integer_product(reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """The products of rows of int8 or uint8 with rows of int8, in int32.

    Raises:
        NoKernel: operands have gaps.
    """
    (a, b), (out,) = reads, writes
    if not all(layout.is_contiguous() for layout in (a, b, out)):
        raise NoKernel("operands with gaps")
    (m, k), (n, _) = a.shape, b.shape
    grain = max(1, PARALLEL_PRODUCTS // (min(m, TILE) * min(n, TILE) * k))
    key = (next(iter(multiplications())), a.dtype == np.int8)
    return HostLaunch(integer_product, key, 3, (m, n, k, grain), work=m * n * k // 32)


def rows_together() -> int:
    """The rows of A that are multiplied together: sums take half of the registers."""
    return max(1, provider.processor().registers // 2 // COLUMNS)


def integer_product(name: str, signed: bool) -> IrModule:
    """Slots: A, B, C; m, n, k, tiles of a chunk. The name is that of the instruction."""
    module = IrModule()
    most = rows_together()
    how = multiplications()[name]
    kinds = [_write_rows(module, rows, how, signed) for rows in range(1, most + 1)]
    with module.part("multiply") as code:
        slots, begin, end = code.parameters
        m, n = code.slot(3), code.slot(4)
        across = (n + (TILE - 1)) // TILE
        with code.loop(begin, end) as tile:
            first_row, first_column = tile // across * TILE, tile % across * TILE
            last_row = code.intrinsic("smin", first_row + TILE, m)
            last_column = code.intrinsic("smin", first_column + TILE, n)
            with code.loop(first_column, last_column, COLUMNS) as column:
                correction = _correction(code, column, how, signed)
                with code.loop(first_row, last_row, most) as row:
                    height = code.intrinsic("smin", last_row - row, code.constant("i64", most))
                    for number, kind in enumerate(kinds, 1):
                        with code.if_(height.equals(number)):
                            code.run(kind, slots, row, column, correction)
    with module.kernel("integer_product") as kernel:
        m, n = kernel.slot(3), kernel.slot(4)
        tiles = (m + (TILE - 1)) // TILE * ((n + (TILE - 1)) // TILE)
        kernel.parallel(code, kernel.parameters[0], tiles, kernel.slot(6))
    return module


def _rows_of_b(code: Code, column: IrValue) -> list[IrValue]:
    """The addresses of rows of B. Past the last one it is taken again, and not stored."""
    b, n, k = code.slot(1, "ptr"), code.slot(4), code.slot(5)
    return [code.at(b, code.intrinsic("smin", column + j, n - 1) * k, "i8") for j in range(COLUMNS)]


def _steps(code: Code, lanes: int, step: Callable[[IrValue, IrValue | None], None]) -> None:
    """Call ``step(place, mask)`` for vectors of bytes along the sum."""
    k = code.slot(5)
    whole = k - k % lanes
    with code.loop(0, whole, lanes) as place:
        step(place, None)
    with code.if_(whole < k):
        step(whole, code.first_lanes(k - whole, lanes))


def _correction(code: Code, column: IrValue, how: Multiplication, signed: bool) -> IrValue:
    """The correction of sums of some columns, where 128 was added to A's bytes to have no sign."""
    if not (signed and how.unsigned):
        return code.constant(vector("i32", COLUMNS), 0)
    kind = vector("i8", how.nbytes)
    shift, places = code.constant(kind, -128), _rows_of_b(code, column)
    sums = [code.variable(vector("i32", how.lanes), 0) for _ in places]

    def step(place: IrValue, mask: IrValue | None) -> None:
        for total, source in zip(sums, places, strict=True):
            total.value = how.step(code, total.value, shift, code.load(source, place, kind, mask), False)

    _steps(code, how.nbytes, step)
    return 0 - lane_sums(code, [total.value for total in sums])


def _write_rows(module: IrModule, rows: int, how: Multiplication, signed: bool) -> Code:
    """The function for so many rows of A from one on, and COLUMNS rows of B."""
    kind = vector("i8", how.nbytes)
    correction_type = vector("i32", COLUMNS)
    with module.function(f"rows{rows}", "ptr", "i64", "i64", correction_type) as code:
        _, row, column, correction = code.parameters
        a, c, n, k = code.slot(0, "ptr"), code.slot(2, "ptr"), code.slot(4), code.slot(5)
        left = [code.at(a, (row + i) * k, "i8") for i in range(rows)]
        right = _rows_of_b(code, column)
        sums = [[code.variable(vector("i32", how.lanes), 0) for _ in right] for _ in left]

        def step(place: IrValue, mask: IrValue | None) -> None:
            factors = [code.load(source, place, kind, mask) for source in left]
            if signed and how.unsigned:
                factors = [factor ^ -128 for factor in factors]
            for j, source in enumerate(right):
                values = code.load(source, place, kind, mask)
                for factor, totals in zip(factors, sums, strict=True):
                    totals[j].value = how.step(code, totals[j].value, factor, values, signed)

        _steps(code, how.nbytes, step)
        mask = code.first_lanes(n - column, COLUMNS)
        for i, totals in enumerate(sums):
            result = lane_sums(code, [total.value for total in totals]) + correction
            code.store(result, c, (row + i) * n + column, mask)
    return code
