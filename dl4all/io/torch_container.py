"""The two containers of PyTorch's `.pth` and `.pt` files, opened without PyTorch and without running code.

Both hold the same pickle. Since torch 1.6 it is a zip archive: `<root>/data.pkl`, one uncompressed
`<root>/data/<key>` for each storage, and `<root>/byteorder`. Before, it was five pickles (magic number,
protocol version, system, object, storage keys), then each storage as its int64 length and its bytes. In the
pickle a tensor is a call of `torch._utils._rebuild_tensor_v2` on a persistent id that names its storage; here
both are plain records.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from dl4all.io.torch_object import Element, StoredStorage, StoredTensor, read_object
from dl4all.io.weight_file import Array, Malformed, ReadLimits, brief, decode, read_bytes

__all__ = ["DEVICES_FILE", "Contents", "is_torch", "open_container"]

ZIP_MAGIC = b"PK\x03\x04"
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001
HEAD = ReadLimits(0)  # of the small pickles before the one with the tensors

DEVICES_FILE = "devices.json"
"""An entry of dl4all's own: the devices of storages that were not on the CPU, by their keys. The pickle says
"cpu" of them all, because PyTorch does not know the names of our devices."""


@dataclass
class Contents:
    """The contents of a file, before the bytes of its storages are read."""

    root: object  # the pickled object, with records for its tensors
    storages: dict[str, StoredStorage]
    fetch: Callable[[set[str]], dict[str, NDArray[np.uint8]]]
    """Reads the bytes of storages."""
    order: str = "<"
    devices: dict[str, str] = field(default_factory=dict)  # of storages, where they differ from the tag

    def elements(self, tensors: Mapping[str, StoredTensor]) -> dict[tuple[str, Element], Array]:
        """The decoded elements of the storages that tensors view, by key and element type.

        Args:
            tensors: by a name for messages.

        Raises:
            Malformed: the file lacks one of them.
        """
        views = {(tensor.key, tensor.element): name for name, tensor in tensors.items()}
        raw = self.fetch({key for key, _ in views})
        for (key, _), name in views.items():
            if key not in raw:
                raise Malformed(f"is truncated: storage {brief(key)} of {brief(name)} is missing")
        return {view: decode(raw[view[0]], view[1].name, self.order) for view in views}


def is_torch(start: bytes) -> bool:
    """Whether a file that starts with these bytes (64 are enough) looks like one of torch.save.

    Example:
        >>> is_torch(b"PK\\x03\\x04..."), is_torch(b"GIF89a")
        (True, False)
    """
    return start.startswith(ZIP_MAGIC) or LEGACY_MAGIC.to_bytes(10, "little") in start[:32]


def open_container(file: BinaryIO, limits: ReadLimits) -> Contents:
    """The contents of a file of torch.save, in either container.

    Raises:
        Malformed: it is no such file, is damaged, or goes beyond the limits.
    """
    start = file.read(64)
    file.seek(0)
    if start.startswith(ZIP_MAGIC):
        return _open_zip(file, limits)
    if is_torch(start):
        return _open_legacy(file, limits)
    raise Malformed("was not written by torch.save")


class _Directory:
    """A file of which zipfile reads the directory, and no more of that than the limits allow."""

    def __init__(self, file: BinaryIO, limits: ReadLimits) -> None:
        self._file, self._limits = file, limits
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        most = self._limits.directory_bytes
        if size > most:
            raise self._limits.refusal(f"an archive's directory of more than {most} bytes")
        return self._file.read(size)


def _open_zip(file: BinaryIO, limits: ReadLimits) -> Contents:
    """The contents of a zip archive, the format since torch 1.6."""
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

    for name in ("data.pkl", DEVICES_FILE):
        if root + name in entries and entries[root + name].file_size > limits.pickle_bytes:
            raise limits.refusal(f"a {name} of more than {limits.pickle_bytes >> 20} MiB")
    pickled = read("data.pkl").tobytes()
    order, byteorder = b"little", entries.get(f"{root}byteorder")
    if byteorder is not None:
        order = read("byteorder").tobytes() if byteorder.file_size < 10 else b""
    if order not in (b"little", b"big"):
        raise Malformed("is damaged: its byteorder is neither little nor big")
    root_object, storages = read_object(io.BytesIO(pickled), limits)

    def fetch(keys: set[str]) -> dict[str, NDArray[np.uint8]]:
        # Overlapping entries would let a small file fill the memory.
        if sum(storages[key].stop for key in keys) > file.seek(0, io.SEEK_END):
            raise Malformed("is truncated or damaged: its storages claim more bytes than the file has")
        raw: dict[str, NDArray[np.uint8]] = {}
        for key in sorted(keys):
            raw[key] = read(f"data/{key}")
            if raw[key].size != storages[key].stop:
                raise Malformed(
                    f"is damaged: storage {brief(key)} claims {storages[key].stop} bytes, has {raw[key].size}"
                )
        return raw

    devices = _devices(read(DEVICES_FILE)) if root + DEVICES_FILE in entries else {}
    return Contents(root_object, storages, fetch, "<" if order == b"little" else ">", devices)


def _devices(raw: NDArray[np.uint8]) -> dict[str, str]:
    """The names of devices by the keys of storages."""
    try:
        found = json.loads(raw.tobytes())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        raise Malformed(f"is damaged: its {DEVICES_FILE} names no devices")
    return found


def _read_entry(file: BinaryIO, entry: zipfile.ZipInfo) -> NDArray[np.uint8]:
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


def _open_legacy(file: BinaryIO, limits: ReadLimits) -> Contents:
    """The contents in the format before torch 1.6."""
    head = io.BytesIO(file.read(limits.pickle_bytes))
    magic, version, _system = (read_object(head, HEAD)[0] for _ in range(3))
    if magic != LEGACY_MAGIC or version != LEGACY_VERSION:
        raise Malformed("is damaged, or of a version of PyTorch's old format that nobody wrote")
    root_object, storages = read_object(head, limits)
    keys, _ = read_object(head, limits)
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in storages for key in keys):
        raise Malformed("is damaged: its list of storages names some that no tensor has")

    def fetch(needed: set[str]) -> dict[str, NDArray[np.uint8]]:
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
        return raw

    return Contents(root_object, storages, fetch)
