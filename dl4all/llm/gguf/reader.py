"""Metadata and tensors of a GGUF file.

Files come from strangers, and the package `gguf` believes what they say of sizes: a count of 2**60 keeps it
busy for ever, and each token of a vocabulary costs it four arrays. So the header, which is short, is read
here, where each count is held against the bytes that are left. The format is described in
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.errors import FileFormatError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Codes of ``struct`` by the number of a value's type."""
LEAST_SIZES = {**{kind: struct.calcsize(code) for kind, code in SCALARS.items()}, STRING: 8, ARRAY: 12}
"""Bytes that a value of a type takes at least."""
LEAST_KEY, LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8
"""Bytes of a shortest entry of metadata, and of a tensor's."""
MAX_AXES = 4
MAX_DEPTH = 4  # of arrays in arrays


class GgufTensor(NamedTuple):
    """A tensor of a file.

    Attributes:
        kind: ggml's number of its type.
        shape: with the axis whose elements are neighbours last.
        data: its bytes.
    """

    kind: int
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]


class GgufFile(NamedTuple):
    """The content of a file."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


class _Cursor:
    """A place in the bytes of a file, from which values are read one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self.at, self.size = data, 0, len(data)

    def check(self, count: int, least: int, name: str) -> int:
        """The count, if so many of so many bytes each may follow.

        Raises:
            FileFormatError
        """
        if count > (self.size - self.at) // least:
            raise FileFormatError(f"it says that {count} {name} follow byte {self.at} of {self.size}")
        return count

    def numbers(self, code: str, count: int = 1) -> tuple[Any, ...]:
        layout = struct.Struct(f"<{count}{code}")
        self.check(1, max(1, layout.size), f"{count} numbers")
        found = layout.unpack_from(self._data, self.at)
        self.at += layout.size
        return found

    def number(self, code: str) -> Any:
        return self.numbers(code)[0]

    def text(self) -> str:
        length = self.check(self.number("Q"), 1, "bytes of text")
        found = self._data[self.at : self.at + length]
        self.at += length
        return found.decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY or depth == MAX_DEPTH:
            raise FileFormatError(f"a value at byte {self.at} has the type {kind}, which is not known")
        inner, count = self.number("I"), self.number("Q")
        if inner not in LEAST_SIZES:
            raise FileFormatError(f"an array at byte {self.at} has elements of type {inner}")
        self.check(count, LEAST_SIZES[inner], "elements")
        if inner in SCALARS:
            return list(self.numbers(SCALARS[inner], count))
        return [self.value(inner, depth + 1) for _ in range(count)]


def read_gguf(path: Path) -> GgufFile:
    """The metadata and the tensors of a file, whose bytes are mapped: they are read when they are looked at.

    Raises:
        FileFormatError: the file is missing, cut, of another format, or says what cannot be.
    """
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # mmap refuses an empty file with the latter
        raise FileFormatError(f"[llm] {path} cannot be read: {error}") from error
    try:
        return _read(data)
    except FileFormatError as error:
        raise FileFormatError(f"[llm] {path} is no GGUF file that can be read: {error}") from None


def _read(data: mmap.mmap) -> GgufFile:
    cursor = _Cursor(data)
    if data[:4] != MAGIC:
        raise FileFormatError(f"it begins with {data[:4]!r}")
    cursor.at = 4
    if (version := cursor.number("I")) not in VERSIONS:
        raise FileFormatError(f"its version is {version}, expected one of {VERSIONS}")
    tensors, keys = cursor.numbers("Q", 2)
    cursor.check(keys, LEAST_KEY, "entries of metadata")
    metadata: dict[str, Any] = {}
    for _ in range(keys):
        key = cursor.text()
        if key in metadata:
            raise FileFormatError(f"it has {key} twice")
        metadata[key] = cursor.value(cursor.number("I"))
    cursor.check(tensors, LEAST_TENSOR, "tensors")
    named: dict[str, tuple[int, tuple[int, ...], int]] = {}
    for _ in range(tensors):
        name, axes = cursor.text(), cursor.number("I")
        if name in named or not 0 < axes <= MAX_AXES:
            raise FileFormatError(f"{name} is there twice, or has {axes} axes")
        shape = tuple(reversed(cursor.numbers("Q", axes)))
        if 0 in shape:  # which any other size would go with
            raise FileFormatError(f"{name} is {shape}: it has no elements")
        named[name] = (cursor.number("I"), shape, cursor.number("Q"))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 2**20 or alignment & (alignment - 1):
        raise FileFormatError(f"its alignment is {alignment!r}, expected a power of two")
    begin = -(-cursor.at // alignment) * alignment
    whole = np.frombuffer(data, np.uint8)
    made = {}
    for name, (kind, shape, offset) in named.items():
        size = _bytes(name, kind, shape)
        if offset % alignment or begin + offset + size > len(whole):
            raise FileFormatError(f"{name}, of {size} bytes, begins at byte {begin + offset} of {len(whole)}")
        made[name] = GgufTensor(kind, shape, whole[begin + offset : begin + offset + size])
    return GgufFile(metadata, made)


def _bytes(name: str, kind: int, shape: tuple[int, ...]) -> int:
    """The size of a tensor.

    Raises:
        FileFormatError: its type is not known, or its rows are no whole number of blocks.
    """
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise FileFormatError(f"{name} has the type {kind}, which is not known") from None
    if shape[-1] % block:
        raise FileFormatError(f"{name} is {shape}: its rows are no whole number of blocks of {block}")
    return math.prod(shape) // block * size
