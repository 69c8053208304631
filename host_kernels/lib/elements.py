"""Elements of tensors as kernels compute with them: converted where they are read and written."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core.dtypes import FLOAT8
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.kernels.short_floats import FORMATS, FloatFormat
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrValue, Operand
from dl4all.runtime.cpu.llvm.ir_types import FLOATS, element_of, lanes_of, vector

MEMORY_TYPES = {
    "float32": "float", "float64": "double", "float16": "half", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "u1", "bfloat16": "bf16",
}  # fmt: skip
"""LLVM's types by dtype, and three more: ``"u8"`` and ``"u1"`` are bytes without a sign, and 0 or 1,
``"bf16"`` the upper halves of floats."""

FLOAT8_TYPES = {"float8_e4m3fn": "e4m3fn", "float8_e5m2": "e5m2"}
"""The types of elements that are moved and converted only, by dtype."""

FLOAT8_FORMATS = {FLOAT8_TYPES[dtype.name]: FORMATS[dtype] for dtype in FLOAT8}

UNSIGNED = ("u8", "u1")
WORDS = {"u8": "i8", "u1": "i8", "bf16": "i16", "e4m3fn": "i8", "e5m2": "i8"}


def memory_type(dtype: np.dtype[Any]) -> str:
    """The type of the elements of a dtype, of MEMORY_TYPES.

    Raises:
        NoKernel: the processor does not convert float16, or kernels do not compute with the dtype.
    """
    type = MEMORY_TYPES.get(dtype.name)
    if type is None:
        raise NoKernel(f"{dtype} is not computed with")
    if type == "half" and not converts_half():
        raise NoKernel("no instruction converts float16")
    return type


def converted_type(dtype: np.dtype[Any]) -> str:
    """The type of elements of a dtype for :func:`converted`, which knows some more.

    Raises:
        NoKernel: see :func:`memory_type`.
    """
    return FLOAT8_TYPES.get(dtype.name) or memory_type(dtype)


def converts_half() -> bool:
    """Whether the processor has instructions for float16."""
    features = provider.processor().features.split(",")
    return "+f16c" in features or "+neon" in features


def in_memory(type: str) -> str:
    """LLVM's type for one of MEMORY_TYPES."""
    return WORDS.get(type, type)


def number_of(type: str) -> str:
    """The type of numbers that elements of a memory type are computed with, where sums keep their digits."""
    return "float" if type in ("half", "bf16") else type


def loaded(
    code: Code, pointer: IrValue, index: Operand, source: str, type: str, mask: IrValue | None = None
) -> IrValue:
    """Elements of a memory type from number `index` on, converted to a scalar or vector type."""
    x = code.load(pointer, index, vector(in_memory(source), lanes_of(type)), mask)
    element = element_of(type)
    if source == "bf16":
        return code.convert(code.float_of_bfloat16(x), element)
    if source in UNSIGNED and element != "i8":
        return code.convert(code.unsigned(x, "i32"), element) if element != "i16" else code.unsigned(x, "i16")
    return code.convert(x, element)


def stored(
    code: Code, value: IrValue, pointer: IrValue, index: Operand, target: str, mask: IrValue | None = None
) -> None:
    """Write values as elements of a memory type, from number `index` on."""
    if target == "half" and element_of(value.type) == "double":
        value = code.convert(value, "float")  # processors round to float16 from there
    if target == "u1":
        value = code.convert(value.differs(0), "i8")
    if target == "bf16":
        value = code.bfloat16_of_float(code.convert(value, "float"))
    code.store(code.convert(value, in_memory(target)), pointer, index, mask)


def converted(code: Code, x: IrValue, source: str, target: str) -> IrValue:
    """Elements in memory of one type as those of another one, as NumPy's ``astype`` converts them."""
    if source == target:
        return x
    if source == "half":
        x, source = code.convert(x, "float"), "float"
    if source == "bf16":
        x, source = code.float_of_bfloat16(x), "float"
    if source in FLOAT8_FORMATS:
        x, source = _float_of_float8(code, x, FLOAT8_FORMATS[source]), "float"
    if target == "u1":
        return code.convert(x.differs(0), "i8")
    element = in_memory(target)
    if source in UNSIGNED:
        if target in ("i8", "u8"):
            return x
        wide = "i32" if element in FLOATS or target in WORDS else element
        x, source = code.unsigned(x, wide), wide
    if target in ("half", "bf16", *FLOAT8_FORMATS):
        x, source = code.convert(x, "float"), "float"
        if target == "bf16":
            return code.bfloat16_of_float(x)
        if target in FLOAT8_FORMATS:
            return _float8_of_float(code, x, FLOAT8_FORMATS[target])
    elif source in FLOATS and element in ("i8", "i16"):
        x = code.convert(x, "i32")
    return code.convert(x, element)


def _float_of_float8(code: Code, x: IrValue, form: FloatFormat) -> IrValue:
    bits = code.unsigned(x, "i32")
    magnitude, dropped = bits & 0x7F, 23 - form.mantissa
    normal = (magnitude << dropped) + ((127 - form.bias) << 23)
    below = code.convert(magnitude, "float") * 2.0 ** (1 - form.bias - form.mantissa)
    wide = code.select(magnitude < 1 << form.mantissa, code.bits(below, "i32"), normal)
    special = ((magnitude - form.special) << dropped) | form.wide_special
    wide = code.select(magnitude < form.special, wide, special)
    return code.bits(wide | ((bits & 0x80) << 24), "float")


def _float8_of_float(code: Code, x: IrValue, form: FloatFormat) -> IrValue:
    """Round to the nearest, of two as near to the even one."""
    bits = code.bits(x, "i32")
    magnitude, dropped = bits & 0x7FFFFFFF, 23 - form.mantissa
    even = (magnitude >> dropped) & 1
    normal = (magnitude + even + ((1 << (dropped - 1)) - 1 - ((127 - form.bias) << 23))) >> dropped
    # Added to a number whose last bit is the format's smallest number, a smaller one is rounded to multiples.
    steps = code.as_value(x.type, 2.0 ** (24 - form.bias - form.mantissa))
    below = code.bits(code.bits(magnitude, "float") + steps, "i32") - code.bits(steps, "i32")
    near = code.select(magnitude < (128 - form.bias) << 23, below, normal)
    near = code.select(near < form.largest, near, form.largest)
    near = code.select(magnitude > 0x7F800000, form.quiet_nan, near)
    return code.convert(near | (code.binary("lshr", bits, 24) & 0x80), "i8")
