"""Writes PyTorch's `.pth` and `.pt` files: the pickle of an object, and the zip archive around it.

The pickle has the opcodes and names that ``torch.load(weights_only=True)`` accepts, and no others. It is
complete before the first byte is written, so that what cannot be stored costs no file.
"""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from pickle import encode_long
from typing import Any, BinaryIO

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.io.torch_container import DEVICES_FILE
from dl4all.io.torch_object import STORAGES
from dl4all.nn.module import Module, Parameter
from dl4all.nn.state import State
from dl4all.ops.core.dtypes import KINDS, kind_of
from dl4all.ops.core.tensor_base import Size
from dl4all.tensor.tensor import Tensor

__all__ = ["Pickled", "write_torch"]

ALIGNMENT = 64  # of storages in the archive, as torch.save has it: they can then be mapped

LARGE = 1 << 31  # bytes of an entry that need the longer header


def write_torch(file: BinaryIO, pickled: Pickled) -> None:
    """Write an archive.

    Args:
        file: is written from its present position on; it need not be seekable.
        pickled: what the archive holds.
    """
    with zipfile.ZipFile(file, "w") as archive:
        _write(archive, "data.pkl", pickled.data)
        _write(archive, ".format_version", b"1")
        _write(archive, "byteorder", sys.byteorder.encode())
        if pickled.devices:
            _write(archive, DEVICES_FILE, json.dumps(pickled.devices).encode())
        for key, tensor in enumerate(pickled.storages):
            elements = np.ascontiguousarray(tensor.on_host())
            _write(archive, f"data/{key}", elements.view(np.uint8).data if elements.size else b"")
        _write(archive, "version", b"3\n")


def _write(archive: zipfile.ZipFile, name: str, content: bytes | memoryview) -> None:
    """Write an entry whose content begins at a multiple of 64 bytes."""
    info = zipfile.ZipInfo(f"archive/{name}", (1980, 1, 1, 0, 0, 0))  # the same bytes at any time
    info.file_size = len(content)
    large = len(content) >= LARGE
    start = archive.fp.tell() if archive.fp is not None else 0
    header = 30 + len(info.filename) + 4 + (20 if large else 0)
    padding = -(start + header) % ALIGNMENT
    info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    with archive.open(info, "w", force_zip64=large) as entry:
        entry.write(content)


class Pickled:
    """An object as a pickle, and the storages that its tensors view.

    Args:
        value: the object.
        name: what messages call it.

    Raises:
        ArgumentError: it holds itself, is nested too deeply, or holds what a file cannot store; the message
            says where, and what to save instead.
    """

    def __init__(self, value: object, name: str) -> None:
        self.storages: list[Tensor] = []  # each as one flat tensor
        self.devices: dict[str, str] = {}
        self._keys: dict[tuple[int, str], int] = {}  # of storages, by identity and element type
        self._memo: dict[int, int] = {}  # numbers of what was written, by identity
        self._kept: list[object] = []  # so that no identity is given to another object meanwhile
        self._open: set[int] = set()  # containers that are being written
        self._out = bytearray(b"\x80\x02")
        try:
            self._write(value, name)
        except RecursionError:
            raise ArgumentError(f"[save] {name} is nested too deeply; keep flat dicts of tensors") from None
        self._out += b"."
        self.data = bytes(self._out)

    def _write(self, value: Any, place: str) -> None:
        kind = type(value)
        if kind in WRITERS:
            WRITERS[kind](self, value, place)
        elif isinstance(value, Tensor):
            self._parameter(value, place) if isinstance(value, Parameter) else self._tensor(value, place)
        elif isinstance(value, np.dtype) and value in KINDS:
            self._global(f"torch {value.name}")
        elif isinstance(value, np.generic) and kind_of(value.dtype) in "biuf":
            self._write(value.item(), place)
        elif isinstance(value, Size):
            self._global("torch Size")
            self._tuple(tuple(value), place)
            self._out += b"\x85R"
        else:
            raise _unstorable(value, place)

    # Values

    def _none(self, value: None, place: str) -> None:
        self._out += b"N"

    def _bool(self, value: bool, place: str) -> None:
        self._out += b"\x88" if value else b"\x89"

    def _int(self, value: int, place: str) -> None:
        if 0 <= value < 1 << 8:
            self._out += b"K" + struct.pack("<B", value)
        elif 0 <= value < 1 << 16:
            self._out += b"M" + struct.pack("<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            self._out += b"J" + struct.pack("<i", value)
        else:
            encoded = encode_long(value)
            if len(encoded) > 255:
                raise ArgumentError(
                    f"[save] {place} is an int of {value.bit_length()} bits; save it as a text"
                )
            self._out += b"\x8a" + struct.pack("<B", len(encoded)) + encoded

    def _float(self, value: float, place: str) -> None:
        self._out += b"G" + struct.pack(">d", value)

    def _complex(self, value: complex, place: str) -> None:
        self._global("__builtin__ complex")
        self._float(value.real, place)
        self._float(value.imag, place)
        self._out += b"\x86R"

    def _str(self, value: str, place: str) -> None:
        encoded = value.encode("utf-8", "surrogatepass")
        self._out += b"X" + struct.pack("<I", len(encoded)) + encoded

    def _bytes(self, value: bytes, place: str) -> None:
        self._global("_codecs encode")
        self._str(value.decode("latin1"), place)
        self._str("latin1", place)
        self._out += b"\x86R"

    def _global(self, name: str) -> None:
        self._out += f"c{name}\n".replace(" ", "\n", 1).encode()

    # Containers: one that is met again is written once

    def _recalled(self, value: object) -> bool:
        """Whether a container was written before; it is then recalled."""
        number = self._memo.get(id(value))
        if number is not None:
            self._out += b"j" + struct.pack("<I", number)
        return number is not None

    def _remember(self, value: object) -> None:
        number = self._memo[id(value)] = len(self._memo)
        self._kept.append(value)
        self._out += b"r" + struct.pack("<I", number)

    def _items(self, value: object, items: Iterable[tuple[Any, str]], place: str) -> None:
        """Write what a container holds."""
        if id(value) in self._open:
            raise ArgumentError(f"[save] {place} holds itself; a file has no end of it")
        self._open.add(id(value))
        for item, where in items:
            self._write(item, where)
        self._open.discard(id(value))

    def _list(self, value: list[Any], place: str) -> None:
        if id(value) not in self._open and self._recalled(value):
            return
        self._out += b"]("
        self._items(value, ((item, f"{place}[{i}]") for i, item in enumerate(value)), place)
        self._out += b"e"
        self._remember(value)

    def _tuple(self, value: tuple[Any, ...], place: str) -> None:
        self._out += b"("
        self._items(value, ((item, f"{place}[{i}]") for i, item in enumerate(value)), place)
        self._out += b"t"

    def _set(self, value: set[Any], place: str) -> None:
        self._global("__builtin__ set")
        self._list(list(value), place)
        self._out += b"\x85R"

    def _dict(self, value: dict[Any, Any], place: str) -> None:
        if id(value) not in self._open and self._recalled(value):
            return
        if isinstance(value, OrderedDict):
            self._global("collections OrderedDict")
            self._out += b")R"
        else:
            self._out += b"}"
        self._out += b"("
        self._items(value, self._entries(value, place), place)
        self._out += b"u"
        self._remember(value)

    def _counter(self, value: Counter[Any], place: str) -> None:
        self._global("collections Counter")  # of a MultiStepLR's milestones
        self._dict(dict(value), place)
        self._out += b"\x85R"

    def _entries(self, value: dict[Any, Any], place: str) -> Iterable[tuple[Any, str]]:
        for key, item in value.items():
            if type(key) not in (str, int, float, bool, type(None)):
                raise ArgumentError(
                    f"[save] {place} has a {type(key).__name__} for a key; use texts or numbers"
                )
            yield key, place
            yield item, f"{place}[{key!r}]"

    # Tensors

    def _tensor(self, value: Tensor, place: str, *, requires_grad: bool | None = None) -> None:
        if type(value.storage).__name__ != "Storage" or value.dtype not in KINDS:
            raise _unstorable(value, place)
        typed = value.dtype.name in STORAGES
        self._global(f"torch._utils _rebuild_tensor_{'v2' if typed else 'v3'}")
        self._out += b"("
        self._storage(value)
        self._int(value.offset, place)
        self._tuple(tuple(map(int, value.shape)), place)
        self._tuple(tuple(map(int, value.strides)), place)
        self._bool(bool(value.requires_grad) if requires_grad is None else requires_grad, place)
        self._global("collections OrderedDict")  # hooks
        self._out += b")R"
        if not typed:
            self._global(f"torch {value.dtype.name}")
        self._out += b"tR"

    def _parameter(self, value: Parameter, place: str) -> None:
        self._global("torch._utils _rebuild_parameter")
        self._out += b"("
        self._tensor(value, place, requires_grad=False)  # what it holds is no leaf, as in PyTorch
        self._bool(bool(value.requires_grad), place)
        self._global("collections OrderedDict")
        self._out += b")RtR"

    def _storage(self, value: Tensor) -> None:
        """The persistent id of a tensor's storage: ("storage", type, key, device, elements)."""
        element = value.dtype.name
        identity = (id(value.storage), element)
        count = value.storage.nbytes // value.dtype.itemsize
        if identity not in self._keys:
            self._keys[identity] = len(self.storages)
            self.storages.append(Tensor(value.storage, (count,), value.dtype, value.device))
            if not value.device.is_host:
                self.devices[str(self._keys[identity])] = value.device.name
        self._out += b"("
        self._str("storage", "")
        self._global(f"torch {STORAGES[element]}" if element in STORAGES else "torch.storage UntypedStorage")
        self._str(str(self._keys[identity]), "")
        self._str("cpu", "")
        self._int(count, "")
        self._out += b"tQ"


WRITERS: dict[type, Callable[[Pickled, Any, str], None]] = {
    type(None): Pickled._none,
    bool: Pickled._bool,
    int: Pickled._int,
    float: Pickled._float,
    complex: Pickled._complex,
    str: Pickled._str,
    bytes: Pickled._bytes,
    list: Pickled._list,
    tuple: Pickled._tuple,
    set: Pickled._set,
    dict: Pickled._dict,
    OrderedDict: Pickled._dict,
    State: Pickled._dict,
    Counter: Pickled._counter,
}
"""By exact type: a subclass has a name that a file would have to import."""


def _unstorable(value: Any, place: str) -> ArgumentError:
    """The error about an object that a file cannot hold without code that makes it again."""
    kind = type(value).__name__
    if isinstance(value, Module):
        advice = f"save {place}.state_dict(), and load it by {place}.load_state_dict(dl.load(path))"
    elif hasattr(value, "state_dict"):
        advice = f"save {place}.state_dict()"
    elif isinstance(value, np.ndarray):
        advice = "save dl.from_numpy(array), or by dl.io.save_checkpoint, which keeps arrays"
    elif isinstance(value, tuple):
        advice = "save tuple(...) of it, or its _asdict()"
    elif isinstance(value, dict):
        advice = "save dict(...) of it"
    elif hasattr(value, "__dict__") and not callable(value):
        advice = "save what it holds, such as vars(...) of it"
    else:
        advice = "leave it out, or save a text or number from which to make it again"
    return ArgumentError(
        f"[save] {place} is of type {kind}, which a file cannot hold: reading it would run code. Files hold "
        f"tensors, numbers, texts, bytes, None, dtypes, and dicts, lists, tuples and sets of them; {advice}"
    )
