"""Shared by the readers of weight files: errors, bounded reads, and conversion of bytes to arrays."""

from __future__ import annotations

import contextlib
import stat
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dl4all.errors import ArgumentError, FileFormatError, OutOfMemoryError

StrPath: TypeAlias = str | PathLike[str]
Array: TypeAlias = NDArray[Any]

LAYOUTS = {
    "float64": "f8",
    "float32": "f4",
    "float16": "f2",
    "bfloat16": "u2",
    "float8_e4m3fn": "u1",
    "float8_e5m2": "u1",
    "int64": "i8",
    "int32": "i4",
    "int16": "i2",
    "int8": "i1",
    "uint64": "u8",
    "uint32": "u4",
    "uint16": "u2",
    "uint8": "u1",
    "bool": "u1",
}
"""NumPy's type codes for the bytes of each element type in a file: integers for what NumPy does not have."""

MAX_TENSORS = 50_000
"""Tensors in a file, if the caller of load_weights does not say otherwise. The largest networks have some
thousands in one file, and a checkpoint with the state of Adam four times as many."""

MAX_EXPANDED_BYTES = 64 << 20  # of all copies of tensors whose elements share memory


class Malformed(Exception):
    """Says what is wrong with the file being read; `opened` adds the file's name."""


@dataclass(frozen=True)
class ReadLimits:
    """Limits for reading a file before its tensors are known: a bound on time and memory.

    A tensor takes about 38 opcodes and 150 bytes of a pickle, 80 bytes of a zip archive's directory, and 12
    colons and commas and 100 bytes of a safetensors header. With the usual number of tensors, reading as
    much as these limits allow takes some seconds and 300 MB.
    """

    tensors: int

    @property
    def opcodes(self) -> int:
        return 10_000 + 40 * self.tensors

    @property
    def pickle_bytes(self) -> int:
        return (1 << 20) + 320 * self.tensors

    @property
    def directory_bytes(self) -> int:
        return (1 << 20) + 256 * self.tensors

    @property
    def header_bytes(self) -> int:
        return (1 << 20) + 512 * self.tensors

    @property
    def header_values(self) -> int:
        return 10_000 + 20 * self.tensors

    def check(self, tensors: int) -> None:
        """
        Raises:
            Malformed: there are too many tensors.
        """
        if tensors > self.tensors:
            raise self.refusal(f"{tensors} tensors")

    def refusal(self, what: str) -> Malformed:
        """The error about a file that has more."""
        return Malformed(
            f"has {what}; the limit is {self.tensors} tensors and what belongs to them; for a file to be "
            "trusted, raise max_tensors of load_weights"
        )


USUAL_LIMITS = ReadLimits(MAX_TENSORS)


def limits_of(name: str, max_tensors: int) -> ReadLimits:
    """The limits that a caller chose.

    Raises:
        ArgumentError: the number is negative.
    """
    if max_tensors < 0:
        raise ArgumentError(f"[{name}] max_tensors must be at least 0, got {max_tensors}")
    return ReadLimits(max_tensors)


@contextlib.contextmanager
def opened(path: StrPath) -> Iterator[BinaryIO]:
    """Open a non-empty regular file; errors inside the block become FileFormatError.

    But a want of memory is an OutOfMemoryError: the file may be good.
    """
    with explained(fspath(path)):
        status = Path(path).stat()
        # Opening a pipe would wait for its writer, and a device has no end.
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise Malformed(f"is {kind}; give the path of one weight file")
        if status.st_size == 0:
            raise Malformed("is empty; it may be an interrupted download, fetch it again")
        with Path(path).open("rb") as file:
            yield file


@contextlib.contextmanager
def explained(name: str) -> Iterator[None]:
    """Let errors about a file's content be FileFormatErrors that begin with its name."""
    try:
        yield
    except Malformed as error:
        raise FileFormatError(f"{name}: {error}") from None
    except FileNotFoundError:
        raise FileFormatError(f"{name}: no such file") from None
    except OSError as error:
        raise FileFormatError(f"{name}: cannot be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise OutOfMemoryError(f"{name}: does not fit in host memory; free some and try again") from error
    except (
        ValueError,
        EOFError,
        RuntimeError,  # zipfile: encrypted; NotImplementedError: an unknown zip version
        OverflowError,
        struct.error,
        zipfile.BadZipFile,
    ) as error:
        raise FileFormatError(f"{name}: is damaged or truncated ({brief(str(error))})") from error


def brief(text: str, limit: int = 80) -> str:
    """Text from a file, shortened and escaped for one line of a message."""
    if not text.isprintable():
        text = ascii(text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def read_bytes(file: BinaryIO, nbytes: int, what: str) -> NDArray[np.uint8]:
    """The next nbytes of the file as a writable array; a size beyond the file's end allocates nothing."""
    position = file.tell()
    left = file.seek(0, 2) - position
    file.seek(position)
    if not 0 <= nbytes <= left:
        raise Malformed(f"is truncated or damaged: {what} claims {nbytes} bytes and {max(left, 0)} are left")
    raw = np.empty(nbytes, np.uint8)
    if nbytes and file.readinto(raw.data) != nbytes:  # type: ignore[attr-defined]
        raise Malformed(f"changed while {what} was being read")
    return raw


def decode(raw: NDArray[np.uint8], element: str, order: str = "<") -> Array:
    """Bytes as a flat array of the element type, in this machine's byte order; a view where possible."""
    layout = np.dtype(order + LAYOUTS[element])
    values = raw[: raw.size - raw.size % layout.itemsize].view(layout)
    if element == "bool":
        return np.asarray(np.not_equal(values, 0))  # NumPy allows no other bytes than 0 and 1 in bools
    native: Array = values.astype(layout.newbyteorder("="), copy=False)
    return native.view(element)
