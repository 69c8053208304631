"""Arithmetic of counts: what is left, and how many parts there are."""

from __future__ import annotations

from dl4all.runtime.cpu.llvm.ir import Code, IrValue


def smaller(code: Code, left: IrValue, right: IrValue | int) -> IrValue:
    return code.intrinsic("smin", left, code.as_value(left.type, right))


def larger(code: Code, left: IrValue, right: IrValue | int) -> IrValue:
    return code.intrinsic("smax", left, code.as_value(left.type, right))


def quotient_up(count: IrValue, by: IrValue | int) -> IrValue:
    return (count + by - 1) // by
