"""Products of matrices of 8-bit integers with sums of 32 bits (:mod:`dl4all.ops.linalg.integer_product`).

Dot products of rows (:mod:`row_dots`). The processor's features choose the instruction that multiplies:
``vpdpbusd`` (VNNI), which wants bytes without a sign on the left, adds four products; ``pmaddwd`` adds two of
16 bits; elsewhere LLVM multiplies numbers of 32 bits. All are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dl4all.host_kernels.linalg.gemm_rows import lane_sums
from dl4all.host_kernels.linalg.row_dots import (
    COLUMNS,
    DotStep,
    RowMatrix,
    grain_of,
    steps,
    tile_count,
    write_tiles,
)
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm import provider, target
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import lanes_of, vector

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
    key = (next(iter(multiplications())), a.dtype == np.int8)
    return HostLaunch(integer_product, key, 3, (m, n, k, grain_of(m, n, k)), work=m * n * k // 32)


def integer_product(name: str, signed: bool) -> IrModule:
    """Slots: A, B, C; m, n, k, tiles of a chunk. The name is that of the instruction."""
    module = IrModule()
    how = multiplications()[name]
    shifted = signed and how.unsigned

    def add(code: Code, sums: IrValue, a: IrValue, b: IrValue) -> IrValue:
        return how.step(code, sums, a, b, signed)

    def operands(code: Code) -> tuple[RowMatrix, RowMatrix, IrValue]:
        depth = code.slot(5)
        a = RowMatrix(code.slot(0, "ptr"), depth, code.slot(3) - 1)
        return a, RowMatrix(code.slot(1, "ptr"), depth, code.slot(4) - 1), depth

    def finish(code: Code, sums: IrValue, row: IrValue, column: IrValue, mask: IrValue) -> None:
        code.store(sums, code.slot(2, "ptr"), row * code.slot(4) + column, mask)

    def correction(code: Code, column: IrValue) -> IrValue:
        """The correction of sums, where 128 was added to A's bytes to have no sign."""
        kind = vector("i8", how.nbytes)
        _, b, depth = operands(code)
        places = [b.row(code, column + j, "i8") for j in range(COLUMNS)]
        shift = code.constant(kind, -128)
        totals = [code.variable(vector("i32", how.lanes), 0) for _ in places]

        def step(place: IrValue, mask: IrValue | None) -> None:
            for total, source in zip(totals, places, strict=True):
                total.value = how.step(code, total.value, shift, code.load(source, place, kind, mask), False)

        steps(code, depth, how.nbytes, step)
        return 0 - lane_sums(code, [total.value for total in totals])

    part = write_tiles(
        module,
        DotStep(add, "i8", how.nbytes, "i32", how.lanes),
        operands,
        finish,
        correction if shifted else None,
        (lambda factor: factor ^ -128) if shifted else (lambda factor: factor),
    )
    with module.kernel("integer_product") as kernel:
        kernel.parallel(
            part, kernel.parameters[0], tile_count(kernel, kernel.slot(3), kernel.slot(4)), kernel.slot(6)
        )
    return module
