"""load_weights for all formats, and save_weights for that which a file's name says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dl4all.errors import ArgumentError, DTypeError
from dl4all.io.files import replaced
from dl4all.io.torch_pickle import is_torch, load_torch
from dl4all.io.torch_writer import Pickled, write_torch
from dl4all.io.weight_file import (
    MAX_TENSORS,
    Array,
    Malformed,
    ReadLimits,
    StrPath,
    brief,
    decode,
    limits_of,
    opened,
    read_bytes,
)
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

__all__ = ["load_weights", "save_weights"]

_ELEMENTS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
TORCH_SUFFIXES = (".pth", ".pt", ".ckpt", ".bin")
_SAVED = set(_ELEMENTS.values())


def load_weights(
    path: StrPath, *, max_tensors: int = MAX_TENSORS, key: str | None = None
) -> dict[str, Array]:
    """Read a weight file into NumPy arrays; its content decides the format, not its suffix.

    Args:
        path: a safetensors file, or a PyTorch `.pth`/`.pt` state dict (see `load_torch`).
        max_tensors: how many tensors there may be. It bounds the time and the memory that a hostile
            file can take; raise it for a file to be trusted.
        key: the entry of a PyTorch checkpoint that is the state dict; None takes "state_dict" or "model", and
            a warning names what else there is.

    Returns:
        Name -> writable array of float16/32/64, bfloat16 and float8 (of ml_dtypes), int8/16/32/64,
        uint8/16/32/64 or bool, in the file's shapes.

    Raises:
        FileFormatError: the file is missing, empty, a directory, truncated, damaged, hostile, in neither
            format, or has too many tensors.
        OutOfMemoryError: it does not fit in host memory.
        ArgumentError: `max_tensors` is negative.

    Example:
        >>> import tempfile, pathlib, numpy as np
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
        >>> save_weights(path, {"fc.bias": np.zeros(10, np.float32)})
        >>> load_weights(path)["fc.bias"].shape
        (10,)
    """
    return dict(each_weight(path, max_tensors=max_tensors, key=key))


def each_weight(
    path: StrPath, *, max_tensors: int = MAX_TENSORS, key: str | None = None
) -> Iterator[tuple[str, Array]]:
    """Names and arrays of a weight file, as :func:`load_weights` reads them; of safetensors one by one."""
    limits = limits_of("load_weights", max_tensors)
    with opened(path) as file:
        start = file.read(64)
        if not is_torch(start):
            # A safetensors header starts with "{" after its 8-byte length. The suffix only improves the
            # message about a file whose first bytes are damaged.
            if start[8:9] == b"{" or Path(path).suffix == ".safetensors":
                yield from _read_safetensors(path, file, limits)
                return
            raise Malformed(
                f"is in no format that dl4all reads (safetensors, and PyTorch state dicts .pth and .pt); "
                f"it starts with {start[:16]!r}"
            )
    yield from load_torch(path, max_tensors=max_tensors, key=key).items()


def save_weights(path: StrPath, arrays: Mapping[str, Array | Tensor]) -> None:
    """Write arrays or tensors to a weight file, atomically: a crash leaves the old file or the new one.

    Args:
        path: the file to write; its folder must exist. The suffixes `.pth`, `.pt`, `.ckpt` and `.bin` make
            it a PyTorch state dict, any other one a safetensors file.
        arrays: name -> array or tensor of any shape and layout, of float16/32/64, int8/16/32/64,
            uint8/16/32/64, bfloat16, float8 or bool; a PyTorch state dict has no uint16/32/64.

    Raises:
        ArgumentError: a name is no text, or is reserved by the format.
        DTypeError: an array has another element type.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile, pathlib, numpy as np
        >>> save_weights(pathlib.Path(tempfile.mkdtemp(), "a.safetensors"), {"w": np.eye(3)})
    """
    target = Path(path)
    storable = {name: _storable(name, array) for name, array in arrays.items()}
    if target.suffix in TORCH_SUFFIXES:
        pickled = Pickled({name: from_numpy(array) for name, array in storable.items()}, "arrays")
        with replaced(target) as draft, draft.open("wb") as file:
            write_torch(file, pickled)
        return
    with replaced(target) as draft:
        try:
            save_file(storable, draft)
        except SafetensorError as error:
            raise OSError(f"{target}: cannot be written: {error}") from error


def _read_safetensors(path: StrPath, file: BinaryIO, limits: ReadLimits) -> Iterator[tuple[str, Array]]:
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length <= file.seek(0, os.SEEK_END):  # otherwise it is damaged
        if length > limits.header_bytes:
            raise limits.refusal(f"a header of more than {limits.header_bytes >> 20} MiB")
        file.seek(8)
        header = file.read(length)
        if header.count(b":") + header.count(b",") > limits.header_values:
            raise limits.refusal(f"a header of more than {limits.header_values} values")
    # The package checks that the header is valid JSON and that the tensors fill the file exactly, without
    # overlap. It knows no bfloat16 of NumPy's, so the bytes are read here.
    try:
        with safe_open(path, framework="np"):
            pass
    except SafetensorError as error:
        raise Malformed(f"is a truncated or damaged safetensors file ({brief(str(error), 120)})") from None
    file.seek(8)
    entries = json.loads(file.read(length))
    limits.check(len(entries.keys() - {"__metadata__"}))
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _ELEMENTS:
            raise Malformed(f"holds {brief(name)} in {entry['dtype']}, which dl4all does not read")
        begin, end = entry["data_offsets"]
        file.seek(8 + length + begin)
        raw = read_bytes(file, end - begin, brief(name))
        yield name, decode(raw, _ELEMENTS[entry["dtype"]]).reshape(entry["shape"])


def _storable(name: object, array: Array | Tensor) -> Array:
    """The array in C order and little-endian, as safetensors stores it, with the same rank."""
    if not isinstance(name, str) or name == "__metadata__":
        raise ArgumentError(f"[save_weights] {name!r} cannot name an array; use any other text")
    stored = np.asarray(array, order="C")
    if stored.dtype.name not in _SAVED:
        raise DTypeError(f"[save_weights] {name} is {stored.dtype}; expected one of {sorted(_SAVED)}")
    return stored.astype(stored.dtype.newbyteorder("<"), copy=False)
