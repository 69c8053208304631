"""Reading ONNX files: protobuf in, plain data out, and nothing believed that is not checked."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dl4all.errors import Dl4allError, FileFormatError, OperatorError
from dl4all.onnx.dtypes import NARROW, protobuf
from dl4all.onnx.graph import (
    AttributeReference,
    NDArray,
    OnnxFunction,
    OnnxGraph,
    OnnxModel,
    OnnxNode,
    ValueInfo,
)

OLDEST_OPSET = 1


def read_model(source: Any) -> OnnxModel:
    """The model of a file.

    Args:
        source: a path, the file's bytes, or an ``onnx.ModelProto``. External data of a path may lie in its
            folder and below; bytes have none.

    Raises:
        FileFormatError: it is truncated, contradicts itself, or names files outside of its folder.
        BackendMissingError: the package ``onnx`` is not installed.
    """
    onnx = protobuf()
    folder, where = None, "[onnx] the model"
    if isinstance(source, onnx.ModelProto):
        proto = source
    elif isinstance(source, (bytes, bytearray, memoryview)):
        proto = _parsed(onnx, source, where)
    else:
        path = Path(source)
        folder, where = Path(os.path.realpath(path.parent)), f"[onnx] {path}"
        try:
            proto = _parsed(onnx, path.read_bytes(), where)
        except OSError as error:
            raise FileFormatError(f"{where}: cannot be read: {error.strerror}") from None
    reader = _MessageReader(onnx, folder, where)
    try:
        return reader.model(proto)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        if isinstance(error, Dl4allError):
            raise
        raise FileFormatError(f"{where}: is not sound: {error}") from None


def reader_of_standard() -> _MessageReader:
    """The reader of functions of the standard."""
    return _MessageReader(protobuf(), None, "[onnx] the standard")


def _parsed(onnx: Any, content: Any, where: str) -> Any:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(bytes(content))
    except Exception as error:  # noqa: BLE001 - protobuf's own class, which is in another place in each of its versions
        raise FileFormatError(f"{where}: is no ONNX file, or a part of one: {error}") from None
    return proto


class _MessageReader:
    """The conversion of one file's messages."""

    def __init__(self, onnx: Any, folder: Path | None, where: str) -> None:
        self.onnx, self.folder, self.where = onnx, folder, where
        self.kinds = onnx.AttributeProto

    def refuse(self, what: str) -> FileFormatError:
        return FileFormatError(f"{self.where}: {what}")

    def model(self, proto: Any) -> OnnxModel:
        if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
            raise self.refuse("has no graph")
        opsets = self.opsets(proto.opset_import)
        version = opsets.setdefault("", OLDEST_OPSET)
        newest = self.onnx.defs.onnx_opset_version()
        if not OLDEST_OPSET <= version <= newest:
            raise OperatorError(
                f"{self.where}: is of opset {version}; {OLDEST_OPSET} to {newest} are read: convert it by "
                "onnx.version_converter, or install a newer onnx"
            )
        functions = {}
        for f in proto.functions:
            key = (_domain(f.domain), self.text(f.name), getattr(f, "overload", ""))
            functions[key] = self.function(f)
        graph = self.graph(proto.graph, frozenset())
        return OnnxModel(graph, opsets, functions, f"{proto.producer_name} {proto.producer_version}".strip())

    def opsets(self, imports: Iterable[Any]) -> dict[str, int]:
        return {_domain(one.domain): one.version for one in imports}

    def function(self, proto: Any, *, partial: bool = False) -> OnnxFunction:
        """A function of a model, or of the standard, some of whose outputs may be missing."""
        infos = [
            tuple(ValueInfo(self.text(name), "tensor", None, None) for name in names)
            for names in (proto.input, proto.output)
        ]
        wanted = set[str]() if partial else {info.name for info in infos[1]}
        nodes = self.nodes(proto.node, {info.name for info in infos[0]}, wanted)
        defaults = {a.name: self.attribute(a, frozenset()) for a in proto.attribute_proto}
        body = OnnxGraph(proto.name, infos[0], infos[1], nodes)
        return OnnxFunction(body, defaults, self.opsets(proto.opset_import))

    def graph(self, proto: Any, outer: frozenset[str]) -> OnnxGraph:
        inputs = tuple(map(self.value_info, proto.input))
        outputs = tuple(map(self.value_info, proto.output))
        initializers = {self.text(tensor.name): self.tensor(tensor) for tensor in proto.initializer}
        initializers |= {self.text(s.values.name): self.sparse_tensor(s) for s in proto.sparse_initializer}
        names = {info.name for info in inputs}
        if len(names) != len(inputs):
            raise self.refuse(f"graph {proto.name!r} has two inputs of one name")
        nodes = self.nodes(proto.node, names | set(initializers), {o.name for o in outputs}, outer)
        return OnnxGraph(proto.name, inputs, outputs, nodes, initializers)

    def nodes(
        self, protos: Iterable[Any], known: set[str], wanted: set[str], outer: frozenset[str] = frozenset()
    ) -> tuple[OnnxNode, ...]:
        """Nodes, each of which reads only what came before it."""
        known, own, nodes = known | outer, set[str](), list[OnnxNode]()
        for proto in protos:
            node = self.node(proto, frozenset(known))
            for name in node.inputs:
                if name and name not in known:
                    raise self.refuse(
                        f"{node} reads {name!r}, which nothing before it computes: a name is wrong, or "
                        "nodes are in a wrong order or a cycle"
                    )
            for name in filter(None, node.outputs):
                if name in own:
                    raise self.refuse(f"{node} computes {name!r}, which another node computes, too")
                own.add(name)
            known |= own
            nodes.append(node)
        if missing := sorted(wanted - known):
            raise self.refuse(f"nothing computes the output {missing[0]!r}")
        return tuple(nodes)

    def node(self, proto: Any, known: frozenset[str]) -> OnnxNode:
        attributes = {self.text(a.name): self.attribute(a, known) for a in proto.attribute}
        inputs, outputs = (tuple(map(self.text, names)) for names in (proto.input, proto.output))
        domain, op_type, name = map(self.text, (_domain(proto.domain), proto.op_type, proto.name))
        overload = self.text(getattr(proto, "overload", ""))
        return OnnxNode(domain, op_type, name, inputs, outputs, attributes, overload)

    def text(self, value: Any) -> str:
        """A name: protobuf hands on bytes where they are no text."""
        if not isinstance(value, str):
            raise self.refuse(f"the name {value!r} is no text")
        return value

    def attribute(self, proto: Any, known: frozenset[str]) -> Any:
        """The value of an attribute, or a reference to one of a function's caller."""
        if proto.ref_attr_name:
            return AttributeReference(self.text(proto.ref_attr_name))
        kinds = self.kinds
        readers: dict[int, Callable[[], Any]] = {
            kinds.FLOAT: lambda: proto.f,
            kinds.INT: lambda: proto.i,
            kinds.STRING: lambda: _text(proto.s),
            kinds.TENSOR: lambda: self.tensor(proto.t),
            kinds.SPARSE_TENSOR: lambda: self.sparse_tensor(proto.sparse_tensor),
            kinds.GRAPH: lambda: self.graph(proto.g, known),
            kinds.FLOATS: lambda: list(proto.floats),
            kinds.INTS: lambda: list(proto.ints),
            kinds.STRINGS: lambda: [_text(s) for s in proto.strings],
            kinds.TENSORS: lambda: [self.tensor(t) for t in proto.tensors],
            kinds.TYPE_PROTO: lambda: self.value_info(proto.tp, type_only=True),
        }
        if proto.type not in readers:
            raise self.refuse(f"attribute {proto.name!r} is of the unknown kind {proto.type}")
        return readers[proto.type]()

    def value_info(self, proto: Any, *, type_only: bool = False) -> ValueInfo:
        kind, name = (proto, "") if type_only else (proto.type, self.text(proto.name))
        which = kind.WhichOneof("value")
        while which in ("sequence_type", "optional_type"):
            inner = getattr(kind, which).elem_type
            if inner.WhichOneof("value") == "tensor_type":
                break
            kind, which = inner, inner.WhichOneof("value")
        if which == "tensor_type" or which is None:
            shape = _shape(kind.tensor_type) if which else None
            return ValueInfo(name, "tensor", self.dtype(kind.tensor_type.elem_type), shape)
        if which in ("sequence_type", "optional_type"):
            inner = getattr(kind, which).elem_type.tensor_type
            return ValueInfo(name, which.split("_")[0], self.dtype(inner.elem_type), None)
        return ValueInfo(name, str(which), None, None)

    def dtype(self, number: int) -> np.dtype[Any] | None:
        """The dtype of an element type's number; None for 0, which leaves it open."""
        if number == 0:
            return None
        try:
            return np.dtype(self.onnx.helper.tensor_dtype_to_np_dtype(number))
        except KeyError:
            raise self.refuse(f"has elements of the unknown type {number}") from None

    def tensor(self, proto: Any) -> NDArray:
        """The elements of a tensor, whose number of bytes must be that of its shape."""
        name, shape = proto.name or "a tensor", tuple(proto.dims)
        if any(size < 0 for size in shape):
            raise self.refuse(f"{name!r} has the shape {shape}")
        if proto.data_type == self.onnx.TensorProto.STRING:
            if len(proto.string_data) != math.prod(shape):
                raise self.refuse(f"{name!r} of shape {shape} has {len(proto.string_data)} strings")
            return np.array([_text(s) for s in proto.string_data], object).reshape(shape)
        stored = self.dtype(proto.data_type)
        if stored is None:
            raise self.refuse(f"{name!r} has no element type")
        count, bits = math.prod(shape), _bits(stored)
        expected = -(-count * bits // 8)
        if proto.data_location == self.onnx.TensorProto.EXTERNAL:
            raw = self.external(name, {e.key: e.value for e in proto.external_data}, expected)
        elif proto.HasField("raw_data"):
            raw = np.frombuffer(proto.raw_data, np.uint8)
        else:
            return self.listed(proto, name, shape, stored)
        if raw.nbytes != expected:
            raise self.refuse(
                f"{name!r} of shape {shape} and type {stored} takes {expected} bytes, and has {raw.nbytes}"
            )
        if stored.name in NARROW:
            numbers = _unpacked(raw, bits, count, signed=stored.name.startswith("i"))
            return numbers.astype(stored).reshape(shape)
        return raw.view(stored.newbyteorder("<")).reshape(shape)

    def listed(self, proto: Any, name: str, shape: tuple[int, ...], stored: np.dtype[Any]) -> NDArray:
        """A tensor whose elements are a list of numbers."""
        fields = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
        numbers, count = max(len(getattr(proto, field)) for field in fields), math.prod(shape)
        per = 2 if stored.kind == "c" else 1
        packs = 8 // min(_bits(stored), 8)
        if numbers not in (count * per, -(-count // packs)):
            raise self.refuse(f"{name!r} of shape {shape} takes {count} numbers, and has {numbers}")
        array: NDArray = self.onnx.numpy_helper.to_array(proto)
        return array

    def sparse_tensor(self, proto: Any) -> NDArray:
        """A sparse tensor with its zeros."""
        values, indices = self.tensor(proto.values), self.tensor(proto.indices)
        shape = tuple(proto.dims)
        if indices.ndim == 1:
            indices = np.stack(np.unravel_index(indices, shape), 1)
        if math.prod(shape) > 1 << 28 or len(indices) != len(values):
            raise self.refuse(f"the sparse tensor {proto.values.name!r} of shape {shape} is not sound")
        dense = np.zeros(shape, values.dtype)
        dense[tuple(indices.T)] = values
        return dense

    def external(self, name: str, entries: Mapping[str, str], expected: int) -> NDArray:
        """The bytes of a tensor in a file beside the model, as a view of that file."""
        location, offset = entries.get("location", ""), int(entries.get("offset", 0))
        if self.folder is None:
            raise self.refuse(f"{name!r} is in the file {location!r}; load the model by its path")
        path = Path(os.path.realpath(self.folder / location))
        if not location or Path(location).is_absolute() or not path.is_relative_to(self.folder):
            raise self.refuse(f"{name!r} is in {location!r}, outside of the model's folder")
        if not path.is_file():
            raise self.refuse(f"{name!r} is in {location!r}, and there is no such file")
        length = int(entries.get("length", expected))
        if offset < 0 or length != expected or offset + length > path.stat().st_size:
            raise self.refuse(
                f"{name!r} takes {expected} bytes; {location!r} has {path.stat().st_size}, of which {length} "
                f"from {offset} on are named"
            )
        if not expected:
            return np.empty(0, np.uint8)
        view: NDArray = np.memmap(path, np.uint8, "r", offset, (expected,))
        return view


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _shape(proto: Any) -> tuple[int | str | None, ...] | None:
    if not proto.HasField("shape"):
        return None
    sizes = (d.dim_value if d.WhichOneof("value") == "dim_value" else d.dim_param for d in proto.shape.dim)
    return tuple(size if isinstance(size, int) else str(size) or None for size in sizes)


def _bits(stored: np.dtype[Any]) -> int:
    """The bits of an element in a file.

    >>> _bits(np.dtype("float64"))
    64
    """
    narrow = next(
        (bits for bits in (4, 2) if stored.name in (f"int{bits}", f"uint{bits}", "float4_e2m1fn")), 0
    )
    return narrow or 8 * stored.itemsize


def _unpacked(raw: NDArray, bits: int, count: int, *, signed: bool) -> NDArray:
    """Integers of few bits, the lowest first in each byte.

    >>> _unpacked(np.array([0xF1, 0x08], np.uint8), 4, 3, signed=True).tolist()
    [1, -1, -8]
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts: NDArray = (raw[:, None] >> shifts & (2**bits - 1)).reshape(-1)[:count]
    if not signed:
        return parts
    low = 1 << bits - 1
    signs: NDArray = (parts ^ low).astype(np.int8) - np.int8(low)
    return signs
