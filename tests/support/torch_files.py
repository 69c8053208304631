"""Writes PyTorch files opcode by opcode: ones that torch.save writes no more, or never did."""

from __future__ import annotations

import pickle
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LEGACY = "legacy"
ZIP = "zip"


@dataclass
class Global:
    name: str


@dataclass
class Call:
    name: str
    arguments: tuple[object, ...]


@dataclass
class Stored:
    """A persistent id."""

    identity: tuple[object, ...]


def emit(value: object) -> bytes:
    match value:
        case Global(name):
            module, _, attribute = name.rpartition(".")
            return f"c{module}\n{attribute}\n".encode()
        case Call(name, arguments):
            return emit(Global(name)) + emit(arguments) + b"R"
        case Stored(identity):
            return emit(identity) + b"Q"
        case tuple():
            return b"(" + b"".join(map(emit, value)) + b"t"
        case list():
            return b"](" + b"".join(map(emit, value)) + b"e"
        case dict():
            return b"}(" + b"".join(emit(k) + emit(v) for k, v in value.items()) + b"u"
        case bytes():  # Python 2's str
            return b"U" + bytes([len(value)]) + value
        case _:
            return pickle.dumps(value, protocol=2)[2:-1].replace(b"q\x00", b"")


def write(path: Path, container: str, body: bytes, storages: dict[str, bytes] | None = None) -> Path:
    """A file around a pickle's opcodes (no PROTO, no STOP), with float32 storages."""
    pickled = b"\x80\x02" + body + b"."
    storages = {"0": np.arange(6, dtype="<f4").tobytes()} if storages is None else storages
    if container == ZIP:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", pickled)
            for key, data in storages.items():
                archive.writestr(f"archive/data/{key}", data)
        return path
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    content = b"".join(pickle.dumps(value, protocol=2) for value in head) + pickled
    content += pickle.dumps(list(storages), protocol=2)
    for data in storages.values():
        content += struct.pack("<q", len(data) // 4) + data
    path.write_bytes(content)
    return path


def stored(container: str, numel: object = 6, key: object = "0", view: object = None) -> Stored:
    identity = ("storage", Global("torch.FloatStorage"), key, "cpu", numel)
    return Stored(identity if container == ZIP else (*identity, view))


def tensor(storage: object, offset: object, shape: object, strides: object) -> Call:
    hooks = Call("collections.OrderedDict", ())
    return Call("torch._utils._rebuild_tensor_v2", (storage, offset, shape, strides, False, hooks))
