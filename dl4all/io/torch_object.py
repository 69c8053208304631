"""Reads the object in a PyTorch pickle as plain records of storages and of tensors that view them."""

from __future__ import annotations

import codecs
import math
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np

from dl4all.io.safe_pickle import REMEDY, Constructor, check_key, mapping, unpickle
from dl4all.io.weight_file import LAYOUTS, USUAL_LIMITS, Array, Malformed, ReadLimits, brief

__all__ = ["STORAGES", "Element", "StoredSize", "StoredStorage", "StoredTensor", "read_object"]

MAX_RANK = 32  # of arrays in NumPy 1.26

STORAGES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}
"""PyTorch's class of storage for each dtype; of newer ones it has bytes."""


@dataclass(frozen=True)
class Element:
    """An element type by its name in LAYOUTS; stands for `torch.float32` and `torch.FloatStorage`."""

    name: str

    @property
    def itemsize(self) -> int:
        return np.dtype(LAYOUTS[self.name]).itemsize


@dataclass(frozen=True)
class StoredStorage:
    """The bytes from start to stop of the storage with a key."""

    key: str
    element: Element
    start: int
    stop: int
    location: str = "cpu"  # the device, as torch.save names it


@dataclass(frozen=True)
class StoredSize:
    """Stands for a `torch.Size`."""

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class StoredTensor:
    """A view of a storage: offset in bytes, strides in elements."""

    key: str
    element: Element
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool = False
    is_parameter: bool = False

    def view(self, values: Array) -> Array:
        """The tensor as a view of its storage's decoded elements."""
        array: Array = np.ndarray(
            self.shape,
            values.dtype,
            buffer=values,
            offset=self.offset,
            strides=[stride * values.itemsize for stride in self.strides],
        )
        return array

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def overlaps(self) -> bool:
        """Whether elements share memory, as those of an expanded tensor do.

        Also true of some in which none do, though none that PyTorch's own views make.
        """
        reach = 0
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size > 1:
                if stride <= reach:
                    return self.numel > 0
                reach += (size - 1) * stride
        return False


def _sizes(*values: object) -> list[int]:
    """The values, checked to be ints of at least 0.

    Raises:
        Malformed: one of them is not.
    """
    sizes = [value for value in values if type(value) is int and value >= 0]
    if len(sizes) != len(values):
        raise Malformed("is damaged: a size, stride or offset is negative or no integer")
    return sizes


def _tensor(storage: object, offset: object, shape: object, strides: object, element: object) -> StoredTensor:
    """The record of a tensor, checked to lie within its storage.

    Raises:
        Malformed: an argument is of another type or out of range.
    """
    if not isinstance(storage, StoredStorage) or not isinstance(element, Element):
        raise Malformed("is damaged: a tensor without a storage or an element type")
    if not isinstance(shape, tuple) or not isinstance(strides, tuple) or len(shape) != len(strides):
        raise Malformed("is damaged: a tensor's shape and strides do not match")
    if len(shape) > MAX_RANK:
        raise Malformed(f"has a tensor of rank {len(shape)}; NumPy's limit is {MAX_RANK}")
    sizes, steps, (first,) = _sizes(*shape), _sizes(*strides), _sizes(offset)
    count = math.prod(sizes)
    reach = 1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True)) if count else 0
    begin = storage.start + first * element.itemsize
    if begin + reach * element.itemsize > storage.stop:
        raise Malformed("is damaged: a tensor reaches beyond the end of its storage")
    if math.prod(max(size, 1) for size in sizes) > 1 << 48:
        raise Malformed(f"is damaged: a tensor of {brief(str(sizes))} elements")
    if not count:
        begin, steps = storage.start, [0] * len(sizes)  # nothing is read, so nothing can be out of range
    return StoredTensor(storage.key, element, begin, tuple(sizes), tuple(steps))


def _refuse_metadata(metadata: object) -> None:
    if metadata:  # a pending negation or conjugation; without it the values would be wrong
        raise Malformed(f"has a tensor with metadata (a lazy negation, say); {REMEDY}")


def _rebuild_tensor(storage: object, offset: object, shape: object, strides: object) -> StoredTensor:
    element = storage.element if isinstance(storage, StoredStorage) else None
    return _tensor(storage, offset, shape, strides, element)


def _rebuild_tensor_v2(
    storage: object,
    offset: object,
    shape: object,
    strides: object,
    requires_grad: object,
    hooks: object,
    metadata: object = None,
) -> StoredTensor:
    _refuse_metadata(metadata)
    return replace(_rebuild_tensor(storage, offset, shape, strides), requires_grad=requires_grad is True)


def _rebuild_tensor_v3(
    storage: object,
    offset: object,
    shape: object,
    strides: object,
    requires_grad: object,
    hooks: object,
    element: object,
    metadata: object = None,
) -> StoredTensor:
    _refuse_metadata(metadata)
    return replace(_tensor(storage, offset, shape, strides, element), requires_grad=requires_grad is True)


def _parameter(data: object, requires_grad: object = True, hooks: object = None) -> StoredTensor:
    if not isinstance(data, StoredTensor):
        raise Malformed("is damaged: a parameter without a tensor")
    return replace(data, requires_grad=requires_grad is True, is_parameter=True)


def _ordered(pairs: Iterable[tuple[object, object]] = ()) -> OrderedDict[object, object]:
    return OrderedDict(mapping(pairs))


def _counter(counts: object = None) -> Counter[object]:
    pairs = {} if counts is None else counts
    if not isinstance(pairs, dict) or not all(isinstance(count, int) for count in pairs.values()):
        raise Malformed("is damaged: a counter without counts")
    return Counter(pairs)


def _set(items: Iterable[object] = ()) -> set[object]:
    found = list(items)
    for item in found:
        check_key(item, "a set with")
    return set(found)


def _size(sizes: Iterable[object] = ()) -> StoredSize:
    return StoredSize(tuple(_sizes(*sizes)))


def _bytes(text: object, encoding: object = "latin1") -> bytes:
    """Bytes as Python writes them in protocol 2: a text of as many characters."""
    if not isinstance(text, str) or encoding != "latin1":
        raise Malformed(f"encodes a text as {brief(str(encoding))}, which is refused; {REMEDY}")
    return codecs.latin_1_encode(text)[0]


def _no_bytes() -> bytes:
    return b""


def _complex(real: object, imag: object) -> complex:
    if not isinstance(real, float) or not isinstance(imag, float):
        raise Malformed("is damaged: a complex number of no two numbers")
    return complex(real, imag)


_GLOBALS: dict[str, object] = {
    "collections.OrderedDict": Constructor(_ordered),
    "collections.Counter": Constructor(_counter),
    "_codecs.encode": Constructor(_bytes),
    "__builtin__.bytes": Constructor(_no_bytes),
    "__builtin__.set": Constructor(_set),
    "builtins.set": Constructor(_set),
    "__builtin__.complex": Constructor(_complex),
    "builtins.complex": Constructor(_complex),
    "torch.Size": Constructor(_size),
    "torch._utils._rebuild_tensor": Constructor(_rebuild_tensor),  # before torch 0.4
    "torch._utils._rebuild_tensor_v2": Constructor(_rebuild_tensor_v2),
    "torch._utils._rebuild_tensor_v3": Constructor(_rebuild_tensor_v3),  # dtypes without a storage type
    "torch._utils._rebuild_parameter": Constructor(_parameter),
    "torch.nn.parameter.Parameter": Constructor(_parameter),  # before torch 0.4
    "torch.storage.UntypedStorage": Element("uint8"),
    **{f"torch.{storage}": Element(name) for name, storage in STORAGES.items()},
    **{f"torch.{name}": Element(name) for name in LAYOUTS},
}


def _find_global(name: str) -> object:
    if name not in _GLOBALS:
        raise Malformed(f"refers to {brief(name)}, which is not part of a state dict; {REMEDY}")
    return _GLOBALS[name]


def read_object(
    stream: BinaryIO, limits: ReadLimits = USUAL_LIMITS
) -> tuple[object, dict[str, StoredStorage]]:
    """The pickled object, and the storages that its tensors view, by key."""
    storages: dict[str, StoredStorage] = {}

    def load_persistent(saved: object) -> StoredStorage:
        if not isinstance(saved, tuple) or saved[0] != "storage":
            raise Malformed(f"holds a whole module, not its weights; {REMEDY}")
        _, element, key, location, numel, *view = saved
        if not isinstance(key, str) or not isinstance(element, Element) or not isinstance(location, str):
            raise TypeError
        (count,) = _sizes(numel)
        whole = storages.setdefault(key, StoredStorage(key, element, 0, count * element.itemsize, location))
        if whole.stop != count * element.itemsize or whole.element != element:
            raise Malformed(f"is damaged: it declares storage {brief(key)} in two ways")
        if not view or view[0] is None:
            return whole
        _, first, length = view[0]  # before torch 0.4 a storage could be a part of another
        begin, stop = (n * element.itemsize for n in (_sizes(first)[0], sum(_sizes(first, length))))
        if stop > whole.stop:
            raise Malformed(f"is damaged: a view reaches beyond the end of storage {brief(key)}")
        return StoredStorage(key, element, begin, stop, location)

    return unpickle(stream, _find_global, load_persistent, limits), storages
