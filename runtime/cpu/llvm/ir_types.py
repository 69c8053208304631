"""LLVM's types by name, of elements and of vectors, and numbers of them as text."""

from __future__ import annotations

import re
import struct

import numpy as np

SIZES = {
    "i1": 1,
    "i8": 1,
    "i16": 2,
    "half": 2,
    "bfloat": 2,
    "i32": 4,
    "float": 4,
    "i64": 8,
    "double": 8,
    "ptr": 8,
}
FLOATS = ("half", "bfloat", "float", "double")
VECTOR = re.compile(r"<(\d+) x (\w+)>")

LLVM_TYPES = {
    "float32": "float", "float64": "double", "float16": "half", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "i8", "bool": "i8", "bfloat16": "i16",
}  # fmt: skip
"""The types in memory of the elements of tensors. Those of bfloat16 are words: processors that do not compute
with it have no instructions for LLVM's ``bfloat``, which would call functions that nobody has."""

STORAGES = {"half": "half", "bf16": "i16"}
"""The types of the words that hold floats of 16 bits."""


def vector(element: str, lanes: int) -> str:
    """The type of a vector; that of its element for one lane.

    >>> vector("float", 8), vector("float", 1)
    ('<8 x float>', 'float')
    """
    return element if lanes == 1 else f"<{lanes} x {element}>"


def element_of(type: str) -> str:
    """The type of a vector's elements; a scalar's own."""
    match = VECTOR.fullmatch(type)
    return match[2] if match else type


def lanes_of(type: str) -> int:
    """The number of elements of a value of a type."""
    match = VECTOR.fullmatch(type)
    return int(match[1]) if match else 1


def constant(type: str, value: float) -> str:
    """The text of a number; a vector has it in all lanes.

    >>> constant("float", 0.5), constant("<8 x i32>", 3)
    ('0x3FE0000000000000', 'splat (i32 3)')
    """
    element = element_of(type)
    if element == "half":
        text = f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    elif element in FLOATS:
        number = float(np.float32(value)) if element == "float" else float(value)
        text = f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    elif element == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return text if type == element else f"splat ({element} {text})"
