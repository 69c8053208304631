"""Reads PyTorch's `.pth` and `.pt` state dicts, without PyTorch and without running code.

Two containers hold the same pickle. Since torch 1.6 it is a zip archive: `<root>/data.pkl`, one
uncompressed `<root>/data/<key>` for each storage, and `<root>/byteorder`. Before, it was
five pickles (magic number, protocol version, system, object, storage keys), then each storage as its int64
length and its bytes. In the pickle a tensor is a call of `torch._utils._rebuild_tensor_v2` on a
persistent id that names its storage; here both become plain records first and arrays at the end.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterable
from io import BufferedReader
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from dl4all.io.torch_object import Element, Tensor, read_object
from dl4all.io.weight_file import (
    MAX_EXPANDED_BYTES,
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

__all__ = ["is_torch", "load_torch"]

ZIP_MAGIC = b"PK\x03\x04"
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001
HEAD = Limits(0)  # of the small pickles before the one with the tensors

_NAMES_IN_CHECKPOINTS = ("state_dict", "model")


def load_torch(path: StrPath, *, max_tensors: int = MAX_TENSORS) -> dict[str, Array]:
    """Read a PyTorch state dict into NumPy arrays.

    The file is a state dict, or a checkpoint that holds one under "state_dict" or "model". Arrays have
    the shape, the element type and the memory layout that the tensors had: bfloat16 is widened to
    float32, and tensors that shared a storage share memory. Those that were expanded, so that elements
    share memory within a tensor, come as copies; all copies of a file take at most 64 MiB.

    Args:
        path: a file written by `torch.save`, in the zip format or the one before torch 1.6.
        max_tensors: how many tensors there may be, with those of an optimizer's state. It bounds
            the time and the memory that a hostile file can take; raise it for a file to be trusted.

    Returns:
        Name -> writable array of float16/32/64, int8/16/32/64, uint8/16/32/64 or bool.

    Raises:
        FileFormatError: the file is missing, unreadable, damaged, holds no state dict or too many or too
            far expanded tensors, or refers to anything but tensors, as a file that wants to run code does.
        OutOfMemoryError: it does not fit in host memory.
        ArgumentError: `max_tensors` is negative.

    Example:
        >>> weights = load_torch("resnet18-f37072fd.pth")  # doctest: +SKIP
        >>> weights["conv1.weight"].shape  # doctest: +SKIP
        (64, 3, 7, 7)
    """
    limits = limits_of("load_torch", max_tensors)
    with opened(path) as file:
        start = file.read(64)
        file.seek(0)
        if start.startswith(ZIP_MAGIC):
            return _read_zip(file, limits)
        if is_torch(start):
            return _read_legacy(file, limits)
        raise Malformed("was not written by torch.save")


def is_torch(start: bytes) -> bool:
    """Whether a file that starts with these bytes (64 are enough) looks like one of torch.save.

    Example:
        >>> is_torch(b"PK\\x03\\x04..."), is_torch(b"GIF89a")
        (True, False)
    """
    return start.startswith(ZIP_MAGIC) or LEGACY_MAGIC.to_bytes(10, "little") in start[:32]


def _state_dict(root: object) -> dict[str, Tensor]:
    """The state dict in a checkpoint: the object itself, or its entry "state_dict" or "model".

    Raises:
        Malformed: there is none.
    """
    if not isinstance(root, dict):
        kind = "a single tensor" if isinstance(root, Tensor) else f"a {type(root).__name__}"
        raise Malformed(f"holds {kind}, not a state dict; save model.state_dict()")
    table, where = root, "its"
    if not all(isinstance(value, Tensor) for value in root.values()):
        for name in _NAMES_IN_CHECKPOINTS:
            if isinstance(root.get(name), dict):
                table, where = root[name], f"the {name}'s"
                break
    tensors = {name: value for name, value in table.items() if isinstance(value, Tensor)}
    if len(tensors) == len(table) and all(isinstance(name, str) for name in tensors):
        return tensors
    keys = ", ".join(brief(str(key), 40) for key in list(table)[:8])
    odd = next(key for key in table if key not in tensors or not isinstance(key, str))
    kind = type(table[odd]).__name__ if odd not in tensors else "tensor, but its name is no text"
    raise Malformed(
        f"holds no plain state dict: {where} entry '{brief(str(odd), 40)}' is of type {kind} "
        f"({len(table)} keys: {keys}{', ...' if len(table) > 8 else ''}); save model.state_dict()"
    )


def _arrays(
    tensors: dict[str, Tensor], raw: dict[str, NDArray[np.uint8]], order: str = "<"
) -> dict[str, Array]:
    """The tensors as arrays; `raw` has the bytes of the storages, `order` is their byte order."""
    decoded: dict[tuple[str, Element], Array] = {}
    arrays: dict[str, Array] = {}
    copied = 0
    for name, tensor in tensors.items():
        if tensor.key not in raw:
            raise Malformed(f"is truncated: storage {brief(tensor.key)} of {brief(name)} is missing")
        view = (tensor.key, tensor.element)
        if view not in decoded:
            decoded[view] = decode(raw[tensor.key], tensor.element.name, order)
        array = tensor.view(decoded[view])
        if tensor.overlaps:  # not as a view: writing to an element would change others
            copied += array.nbytes
            if copied > MAX_EXPANDED_BYTES:
                shape = brief(str(list(tensor.shape)))
                raise Malformed(
                    f"has expanded tensors of more than {MAX_EXPANDED_BYTES >> 20} MiB, {brief(name)} of "
                    f"{shape} among them; save them after .clone(), or expand them after loading"
                )
            array = array.copy()
        arrays[name] = array
    return arrays


def _storage_keys(tensors: Iterable[Tensor]) -> set[str]:
    """The keys of the storages that tensors view."""
    return {tensor.key for tensor in tensors}


class _Directory:
    """A file of which zipfile reads the directory, and no more of that than the limits allow."""

    def __init__(self, file: BufferedReader, limits: Limits) -> None:
        self._file, self._limits = file, limits
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        most = self._limits.directory_bytes
        if size > most:
            raise self._limits.refusal(f"an archive's directory of more than {most} bytes")
        return self._file.read(size)


def _read_zip(file: BufferedReader, limits: Limits) -> dict[str, Array]:
    """The state dict in a zip archive, the format since torch 1.6."""
    with zipfile.ZipFile(cast("BinaryIO", _Directory(file, limits))) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
    roots = [name.removesuffix("data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise Malformed("is a zip archive that torch.save did not write: it has no data.pkl of its own")
    root = roots[0]
    if f"{root}constants.pkl" in entries:
        raise Malformed("is a TorchScript program, not a state dict; save model.state_dict()")

    def read(name: str) -> NDArray[np.uint8]:
        if root + name not in entries:
            raise Malformed(f"is damaged: the archive has no entry {brief(name)}")
        return _read_entry(file, entries[root + name])

    if entries[f"{root}data.pkl"].file_size > limits.pickle_bytes:
        raise limits.refusal(f"a data.pkl of more than {limits.pickle_bytes >> 20} MiB")
    pickled = read("data.pkl").tobytes()
    order, byteorder = b"little", entries.get(f"{root}byteorder")
    if byteorder is not None:
        order = read("byteorder").tobytes() if byteorder.file_size < 10 else b""
    if order not in (b"little", b"big"):
        raise Malformed("is damaged: its byteorder is neither little nor big")
    root_object, storages = read_object(io.BytesIO(pickled), limits)
    tensors = _state_dict(root_object)
    limits.check(len(tensors))
    needed = _storage_keys(tensors.values())
    # Overlapping entries would let a small file fill the memory.
    if sum(storages[key].stop for key in needed) > file.seek(0, io.SEEK_END):
        raise Malformed("is truncated or damaged: its storages claim more bytes than the file has")
    raw: dict[str, NDArray[np.uint8]] = {}
    for key in sorted(needed):
        raw[key] = read(f"data/{key}")
        if raw[key].size != storages[key].stop:
            raise Malformed(
                f"is damaged: storage {brief(key)} claims {storages[key].stop} bytes, has {raw[key].size}"
            )
    return _arrays(tensors, raw, "<" if order == b"little" else ">")


def _read_entry(file: BufferedReader, entry: zipfile.ZipInfo) -> NDArray[np.uint8]:
    """The bytes of an uncompressed entry, read directly from the file to avoid zipfile's copies."""
    name = brief(entry.filename)
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
        raise Malformed(f"has a compressed or encrypted entry {name}, which torch.save never writes")
    file.seek(entry.header_offset)
    signature, name_length, extra_length = struct.unpack("<4s22xHH", file.read(30))
    if signature != ZIP_MAGIC:
        raise Malformed(f"is damaged: no entry {name} where the archive's directory says")
    file.seek(name_length + extra_length, io.SEEK_CUR)
    raw = read_bytes(file, entry.file_size, name)
    # torch.serialization.set_crc32_options(False) leaves every checksum 0.
    if entry.CRC and zlib.crc32(raw.data) != entry.CRC:
        raise Malformed(f"is damaged: the checksum of {name} does not match; fetch the file again")
    return raw


def _read_legacy(file: BufferedReader, limits: Limits) -> dict[str, Array]:
    """The state dict in the format before torch 1.6."""
    head = io.BytesIO(file.read(limits.pickle_bytes))
    magic, version, _system = (read_object(head, HEAD)[0] for _ in range(3))
    if magic != LEGACY_MAGIC or version != LEGACY_VERSION:
        raise Malformed("is damaged, or of a version of PyTorch's old format that nobody wrote")
    root_object, storages = read_object(head, limits)
    keys, _ = read_object(head, limits)
    tensors = _state_dict(root_object)
    limits.check(len(tensors))
    needed = _storage_keys(tensors.values())
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in storages for key in keys):
        raise Malformed("is damaged: its list of storages names some that no tensor has")
    file.seek(head.tell())
    raw: dict[str, NDArray[np.uint8]] = {}
    for key in keys:
        storage = storages[key]
        (numel,) = struct.unpack("<q", file.read(8))
        if numel * storage.element.itemsize != storage.stop:
            raise Malformed(f"is damaged: storage {brief(key)} is declared with two sizes")
        if key in needed and key not in raw:
            raw[key] = read_bytes(file, storage.stop, f"storage {brief(key)}")
        else:
            file.seek(storage.stop, io.SEEK_CUR)
    return _arrays(tensors, raw)
