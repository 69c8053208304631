"""load_weights for all formats, and save_weights for safetensors."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dl4all.errors import ArgumentError, DTypeError
from dl4all.io.torch_pickle import is_torch, load_torch
from dl4all.io.weight_file import (
    MAX_TENSORS,
    Array,
    Limits,
    Malformed,
    StrPath,
    brief,
    decode,
    limits_of,
    opened,
    read_bytes,
)

__all__ = ["load_weights", "save_weights"]

_ELEMENTS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
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
_SAVED = {name for name in _ELEMENTS.values() if name != "bfloat16"}


def load_weights(path: StrPath, *, max_tensors: int = MAX_TENSORS) -> dict[str, Array]:
    """Read a weight file into NumPy arrays; its content decides the format, not its suffix.

    Args:
        path: a safetensors file, or a PyTorch `.pth`/`.pt` state dict (see `load_torch`).
        max_tensors: how many tensors there may be. It bounds the time and the memory that a hostile
            file can take; raise it for a file to be trusted.

    Returns:
        Name -> writable array of float16/32/64, int8/16/32/64, uint8/16/32/64 or bool, in the file's
        shapes; bfloat16 is widened to float32, which loses nothing.

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
    limits = limits_of("load_weights", max_tensors)
    with opened(path) as file:
        start = file.read(64)
        if not is_torch(start):
            # A safetensors header starts with "{" after its 8-byte length. The suffix only improves the
            # message about a file whose first bytes are damaged.
            if start[8:9] == b"{" or Path(path).suffix == ".safetensors":
                return _read_safetensors(path, file, limits)
            raise Malformed(
                f"is in no format that dl4all reads (safetensors, and PyTorch state dicts .pth and .pt); "
                f"it starts with {start[:16]!r}"
            )
    return load_torch(path, max_tensors=max_tensors)


def save_weights(path: StrPath, arrays: Mapping[str, Array]) -> None:
    """Write arrays as a safetensors file, atomically: a crash leaves the old file or the new one.

    Args:
        path: the file to write; its folder must exist.
        arrays: name -> array of any shape and layout, of float16/32/64, int8/16/32/64, uint8/16/32/64
            or bool.

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
    # In the target's folder, because a rename is atomic only within one file system.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            draft.touch()
            mode = draft.stat().st_mode
            save_file(storable, draft)
            draft.chmod(mode)  # safetensors lets only the owner read the file
        except SafetensorError as error:
            raise OSError(f"{target}: cannot be written: {error}") from error
        _flush(draft)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # some systems cannot open a folder, and the file is complete
        _flush(target.parent)


def _read_safetensors(path: StrPath, file: BufferedReader, limits: Limits) -> dict[str, Array]:
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
    # overlap. It cannot convert bfloat16 to NumPy, so the bytes are read here.
    try:
        with safe_open(path, framework="np"):
            pass
    except SafetensorError as error:
        raise Malformed(f"is a truncated or damaged safetensors file ({brief(str(error), 120)})") from None
    file.seek(8)
    entries = json.loads(file.read(length))
    limits.check(len(entries.keys() - {"__metadata__"}))
    arrays: dict[str, Array] = {}
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _ELEMENTS:
            raise Malformed(f"holds {brief(name)} in {entry['dtype']}, which dl4all does not read")
        begin, end = entry["data_offsets"]
        file.seek(8 + length + begin)
        raw = read_bytes(file, end - begin, brief(name))
        arrays[name] = decode(raw, _ELEMENTS[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def _storable(name: object, array: Array) -> Array:
    """The array in C order and little-endian, as safetensors stores it, with the same rank."""
    if not isinstance(name, str) or name == "__metadata__":
        raise ArgumentError(f"[save_weights] {name!r} cannot name an array; use any other text")
    array = np.asarray(array, order="C")
    if array.dtype.name not in _SAVED:
        raise DTypeError(f"[save_weights] {name} is {array.dtype}; expected one of {sorted(_SAVED)}")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _flush(path: Path) -> None:
    """Sync a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
