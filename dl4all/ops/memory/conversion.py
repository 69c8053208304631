"""Conversion between dtypes: the op ``cast``."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from dl4all.ops.core.dtypes import HALVES, checked_dtype, converted, kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.expressions.expression import Expression, parse
from dl4all.ops.core.kernels import short_floats
from dl4all.ops.core.kernels.launch import (
    NoKernel,
    ceil_div,
    kernel_dtype,
    run,
    shader,
    stores_halves,
    strided_grid,
)
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, example, op, primitives
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.elementwise.kernels import (
    ELEMENT_TYPES,
    GLSL_INT64,
    Variants,
    build_variants,
    launch_elementwise,
)
from dl4all.ops.memory.copy import copy_into
from dl4all.ops.memory.views import contiguous

WORKGROUP = 128

# The result for floats out of int32's range, and for nan, is that of x86's conversion instruction, as in C.
FLOAT_TO_INT = "x >= -2147483648.0 && x < 2147483648.0 ? int(x) : int(0x80000000u)"
CONVERSION_EXPRESSIONS = {
    ("float32", "int32"): FLOAT_TO_INT,
    ("float32", "uint8"): FLOAT_TO_INT,
    ("float32", "bool"): "!(x == 0.0)",  # nan is true
    ("int32", "bool"): "x != 0",
    ("uint8", "bool"): "x != 0",
}
CASTABLE_DTYPES = tuple(name for name, element in ELEMENT_TYPES.items() if element.glsl != GLSL_INT64)
CASTS: dict[tuple[str, str], Variants] = {
    (source, target): build_variants(
        CONVERSION_EXPRESSIONS.get((source, target), "x"),
        (ELEMENT_TYPES[source],),
        ELEMENT_TYPES[target],
        {},
    )
    for source, target in (("float32", "float32"), *itertools.permutations(CASTABLE_DTYPES, 2))
}
"""Kernels by the dtypes that they read and write; float32 stands for all of FLOATS."""

KINDS = {"u": 0, "i": 1, "f": 2, "b": 3}  # memory/convert.comp's numbers for NumPy's letters
CONVERTED_DTYPES = ("int64", "int32", "int16", "int8", "uint8", "bool", "float32", "float64")
CONVERT_PUSH = PushBlock("memory/convert.comp", "uint n, x_offset;")
CONVERSIONS = {
    (source.name, target.name): shader(
        "memory/convert.comp",
        X_BYTES=source.itemsize,
        X_KIND=KINDS[kind_of(source)],
        Y_BYTES=target.itemsize,
        Y_KIND=KINDS[kind_of(target)],
    )
    for source, target in itertools.permutations(map(np.dtype, CONVERTED_DTYPES), 2)
    if (source.name, target.name) not in CASTS
}
"""Kernels for the other pairs of dtypes, which work on bits."""


def conversion_expression(source: str, target: str) -> Expression:
    """The expression of cast for an element ``x``, before the result is stored as an element of `target`."""
    return parse(CONVERSION_EXPRESSIONS.get((source, target), "x"))


def _infer_cast(input: TensorBase, dtype: str) -> Result:
    return input.shape, checked_dtype("cast", dtype)


def _run_cast(out: TensorBase, input: TensorBase, *, dtype: str) -> None:
    source, target = input.dtype.name, out.dtype.name
    of_halves = input.dtype in HALVES or out.dtype in HALVES
    between = kernel_dtype(input.dtype), kernel_dtype(out.dtype)
    if source == target:
        copy_into(out, input)
    elif between in CASTS and (not of_halves or stores_halves(out.device)):
        launch_elementwise(CASTS[between], out, [input])
    elif (source, target) in CONVERSIONS:
        _convert(out, contiguous(input))
    elif input.dtype in short_floats.FORMATS:
        _run_cast(out, short_floats.unpacked(input), dtype=dtype)
    elif source == "float64":  # rounding twice, by way of float32, would round wrongly
        raise NoKernel(f"no kernel rounds float64 to {target}")
    else:
        short_floats.pack_into(out, contiguous(cast(input, "float32")))


def _convert(out: TensorBase, x: TensorBase) -> None:
    """Convert by bits; both tensors are contiguous, and the result begins its storage."""
    count = out.numel()
    words = ceil_div(count, max(4 // out.dtype.itemsize, 1))
    code = CONVERSIONS[x.dtype.name, out.dtype.name]
    run(
        code,
        strided_grid(words, WORKGROUP, out.device),
        CONVERT_PUSH.pack(n=count, x_offset=x.offset),
        x,
        out,
    )


@export()
@op(
    infer=_infer_cast,
    kernel=Kernel(
        _run_cast,
        (
            *dict.fromkeys(shader for variants in CASTS.values() for shader in variants.shaders),
            *CONVERSIONS.values(),
            *short_floats.SHADERS,
        ),
        (*CONVERTED_DTYPES, *map(str, short_floats.FORMATS)),
    ),
    examples=(
        example((13, 7), dtype="int32"),
        example((2, 3, 5), dtype="bool"),
        example((0,), dtype="uint8"),
    ),
    grad=lambda g: g,
    moves=True,
)
def cast(input: Array, dtype: str) -> Array:
    """The elements as another dtype, as :meth:`dl4all.Tensor.to` converts them.

    Args:
        input: any shape and dtype.
        dtype: the name of the result's dtype. Floats lose their fractions when they become integers; as
            bools, all elements but 0 are True.

    Returns:
        The input's shape.

    Raises:
        DTypeError: tensors cannot have this dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.cast(dl.tensor([0.0, 1.5, -2.5]), "int32").tolist()
        [0, 1, -2]
    """
    return converted(np.asarray(input), dtype)


def in_float32(function: Callable[..., Array], *operands: Array) -> Array:
    """A function's result; tensors of 16 bits take part as float32, and it is rounded to their dtype once.

    The result is float32 where tensors of other floats take part, or of both kinds of 16 bits.
    """
    floats = {operand.dtype for operand in operands if kind_of(operand.dtype) == "f"}
    if not floats & HALVES:
        return function(*operands)
    result = function(*(cast(each, "float32") if each.dtype in HALVES else each for each in operands))
    return cast(result, *(dtype.name for dtype in floats)) if len(floats) == 1 else result


primitives.cast = cast
