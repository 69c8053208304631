"""The compiled kernels of elementwise ops on the host, from the expressions that give their shaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.ops.core.expression import Binary, Constant, Expression, Name
from dl4all.ops.core.host_kernel import HostLaunch, Layout, host_kernel
from dl4all.ops.core.launch import NoKernel
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import LLVM_TYPES, Code, Module, Value, vector

GRAIN = 16384
"""Elements of a chunk."""


@host_kernel("elementwise")
def prepare_elementwise(
    out: Layout,
    expression: Expression,
    dtype: np.dtype[Any],
    operands: Sequence[Layout | float],
    arguments: dict[str, Any],
) -> HostLaunch:
    """The launch of an op with this expression, which computes in a dtype.

    Raises:
        NoKernel: there is none for such layouts or dtypes.
    """
    tensors = [o for o in operands if isinstance(o, Layout) and o.dtype == dtype and o.shape == out.shape]
    plain = len(tensors) == len(operands) and all(tensor.is_contiguous() for tensor in tensors)
    if arguments or dtype != np.float32 or out.dtype != dtype or not plain:
        raise NoKernel("other than contiguous float32")
    count = out.numel()
    return HostLaunch(elementwise, (expression, len(operands)), len(operands) + 1, (count,), work=count)


def elementwise(expression: Expression, operands: int) -> Module:
    """``out[i] = expression`` for contiguous operands. Slots: operands, result, count."""
    lanes = provider.processor().lanes()
    type = vector(LLVM_TYPES["float32"], lanes)
    names = "x" if operands == 1 else "abc"
    module = Module()
    with module.part("range") as code:
        _, begin, end = code.parameters
        addresses = [code.slot(i, "ptr") for i in range(operands + 1)]
        whole = end - (end - begin) % lanes

        def step(i: Value, mask: Value | None) -> None:
            values = {n: code.load(a, i, type, mask) for n, a in zip(names, addresses, strict=False)}
            code.store(printed(code, expression, values, type), addresses[-1], i, mask)

        with code.loop(begin, whole, lanes) as i:
            step(i, None)
        with code.if_(whole < end):
            step(whole, code.first_lanes(end - whole, lanes))
        part = code
    with module.kernel("elementwise") as code:
        code.parallel(part, code.parameters[0], code.slot(operands + 1), GRAIN)
    return module


def printed(code: Code, tree: Expression, values: dict[str, Value], type: str) -> Value:
    """The value of an expression."""
    if isinstance(tree, Name) and tree.name in values:
        return values[tree.name]
    if isinstance(tree, Constant):
        return code.constant(type, float(tree.value))
    if isinstance(tree, Binary) and tree.operator in ("+", "-", "*", "/"):
        left, right = (printed(code, part, values, type) for part in (tree.left, tree.right))
        return code.binary({"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}[tree.operator], left, right)
    raise NoKernel(f"no code for {tree}")
