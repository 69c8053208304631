"""dl.save and dl.load: nested dicts of tensors and numbers in PyTorch's files; nothing is executed."""

from __future__ import annotations

import errno
import io
import logging
import os
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np

from dl4all.errors import ArgumentError, BackendMissingError, UnknownDeviceError
from dl4all.io import torch_object
from dl4all.io.files import replaced
from dl4all.io.torch_container import Contents, is_torch, open_container
from dl4all.io.torch_writer import Pickled, write_torch
from dl4all.io.weight_file import (
    MAX_TENSORS,
    Array,
    Malformed,
    ReadLimits,
    brief,
    explained,
    limits_of,
    opened,
)
from dl4all.io.weights import load_weights, save_weights
from dl4all.nn.module import Parameter
from dl4all.ops.core.dtypes import FLOATING, KINDS
from dl4all.ops.core.tensor_base import Size
from dl4all.scheduler.device.current import device
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

__all__ = ["load", "save"]

File: TypeAlias = str | PathLike[str] | BinaryIO
MapLocation: TypeAlias = str | Device | Mapping[str, str] | Callable[[Tensor, str], Any] | None

logger = logging.getLogger("dl4all")


def save(obj: object, f: File) -> None:
    """Save an object to a file that ``torch.load(weights_only=True)`` and :func:`load` read.

    Tensors that share memory share it in the file, whole storages are saved, and the devices are noted. What
    cannot be stored is refused before a file is touched, and the file takes its place when it is complete: a
    crash leaves the old one.

    Args:
        obj: tensors, parameters, numbers, texts, bytes, None, dtypes and shapes, and nested dicts,
            OrderedDicts, lists, tuples and sets of them. NumPy's scalars are saved as numbers.
        f: a path, or a binary file to write to. A path that ends in ``.safetensors`` makes a file of that
            format, for which `obj` is a dict of tensors.

    Raises:
        ArgumentError: it holds something else, such as a whole Module, or itself; the message says where, and
            what to save instead.
        DTypeError: a tensor's dtype has no place in the file.
        OSError: the file cannot be written.

    Example:
        >>> import io
        >>> import dl4all as dl
        >>> model = dl.nn.Linear(2, 3)
        >>> file = io.BytesIO()
        >>> dl.save({"model": model.state_dict(), "epoch": 7}, file)
        >>> _ = file.seek(0)
        >>> loaded = dl.load(file, map_location="cpu")
        >>> loaded["epoch"], loaded["model"]["weight"].shape
        (7, (3, 2))
    """
    if not isinstance(f, (str, PathLike)):
        _check_binary("write", f)
        write_torch(f, Pickled(obj, "obj"))
        return
    path = Path(f)
    if path.suffix == ".safetensors":
        save_weights(path, _arrays_of(obj))
        return
    pickled = Pickled(obj, "obj")
    with replaced(path) as draft, draft.open("wb") as file:
        write_torch(file, pickled)


def load(
    f: File,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = True,
    mmap: bool | None = None,
    max_tensors: int = MAX_TENSORS,
) -> Any:
    """Load what :func:`save` or ``torch.save`` wrote, or a safetensors file; the content decides.

    Nothing in a file is executed, whatever `weights_only` says: a file that needs it is refused.

    Args:
        f: a path, or a binary file to read from its present position on.
        map_location: where tensors go: a device or its name for all of them; a dict from the devices of the
            file to others; or a function of a storage on the CPU, as a flat uint8 tensor, and its device's
            name, which returns a tensor on the device that is meant, or None for the default. By default a
            tensor comes to the device that it was saved from, or to the CPU where that is not here, as
            PyTorch's "cuda:0" never is.
        pickle_module: None; here for PyTorch's order of the arguments.
        weights_only: accepted; every file is read as with True.
        mmap: accepted; files are read into memory.
        max_tensors: how many tensors there may be. It bounds the time and the memory that a hostile file can
            take; raise it for a file to be trusted.

    Returns:
        The object. Tensors that shared memory share it.

    Raises:
        FileNotFoundError: there is no such file.
        FileFormatError: the file is damaged, in another format, or refers to anything but tensors and plain
            values, as one with a whole module does.
        ArgumentError: `map_location` is none of the above, or another argument cannot be followed.
        OutOfMemoryError: it does not fit in memory.

    Example:
        >>> import pathlib, tempfile
        >>> import dl4all as dl
        >>> path = pathlib.Path(tempfile.mkdtemp(), "run.pth")
        >>> dl.save({"step": 3, "x": dl.arange(3, device="cpu")}, path)
        >>> dl.load(path)
        {'step': 3, 'x': tensor([0, 1, 2], dtype=int64)}
    """
    limits = limits_of("load", max_tensors)
    if pickle_module is not None:
        raise ArgumentError(
            "[load] pickle_module has no use: dl4all reads pickles itself and executes nothing"
        )
    places = _Places(map_location)
    if not isinstance(f, (str, PathLike)):
        _check_binary("read", f)
        file = f if f.seekable() and f.tell() == 0 else io.BytesIO(f.read())
        with explained(str(getattr(f, "name", type(f).__name__))):
            return _read(file, limits, places)
    if not Path(f).exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(f))
    with opened(f) as file:
        start = file.read(64)
        file.seek(0)
        if is_torch(start):
            return _read(file, limits, places)
    arrays = load_weights(f, max_tensors=max_tensors)
    target = places.of("cpu", lambda: np.empty(0, np.uint8))
    return {name: from_numpy(array, target) for name, array in arrays.items()}


def _read(file: BinaryIO, limits: ReadLimits, places: _Places) -> Any:
    contents = open_container(file, limits)
    try:
        tensors = _tensors(contents.root)
        limits.check(len(tensors))
        return _Rebuild(contents, contents.elements(tensors), places).value(contents.root)
    except RecursionError:
        raise Malformed("is nested too deeply for Python") from None


def _check_binary(action: str, file: Any) -> None:
    """Raise unless an object is a binary file that can be read or written."""
    if not hasattr(file, action) or isinstance(file, io.TextIOBase):
        raise ArgumentError(
            f"[{'save' if action == 'write' else 'load'}] expected a path or a binary file, got "
            f"{type(file).__name__}; open it in mode '{'wb' if action == 'write' else 'rb'}'"
        )


def _arrays_of(obj: Any) -> dict[str, Array]:
    """The arrays of a dict of tensors, which is all that a safetensors file holds."""
    odd = None
    if not isinstance(obj, Mapping):
        odd = f"a {type(obj).__name__}"
    else:
        for name, value in obj.items():
            if not isinstance(value, (Tensor, np.ndarray)):
                odd = f"a {type(value).__name__} under {name!r}"
    if odd is not None:
        raise ArgumentError(
            f"[save] a .safetensors file holds a dict of tensors and nothing else, got {odd}; "
            "save to a .pth file"
        )
    return {
        name: value.detach().numpy() if isinstance(value, Tensor) else value for name, value in obj.items()
    }


def _tensors(root: object) -> dict[str, torch_object.StoredTensor]:
    """All records of tensors in an object, by where they stand; what is met again, once."""
    found: dict[str, torch_object.StoredTensor] = {}
    seen: set[int] = set()

    def visit(value: object, place: str) -> None:
        if isinstance(value, torch_object.StoredTensor):
            found[place] = value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in pairs:
                visit(item, f"{place}[{key!r}]")

    visit(root, "")
    return found


class _Places:
    """The device of each tensor, by the caller's words."""

    def __init__(self, map_location: MapLocation) -> None:
        self._map = map_location
        self._all: Device | None = None
        if isinstance(map_location, (str, Device)):
            self._all = device(map_location)
        elif not (map_location is None or isinstance(map_location, Mapping) or callable(map_location)):
            raise ArgumentError(
                "[load] map_location must be a device, a dict from names to names, or a function of "
                f"a storage and a name, got {type(map_location).__name__}"
            )

    def of(self, location: str, contents: Callable[[], Array]) -> Device:
        """The device for a storage.

        Args:
            location: the device in the file.
            contents: gives the storage's elements.
        """
        if self._all is not None:
            return self._all
        if isinstance(self._map, Mapping):
            return device(self._map[location]) if location in self._map else _here(location)
        if self._map is None:
            return _here(location)
        storage = from_numpy(np.ascontiguousarray(contents()).reshape(-1).view(np.uint8), "cpu")
        chosen = cast("Callable[[Tensor, str], Any]", self._map)(storage, location)
        if chosen is None:
            return _here(location)
        if not isinstance(chosen, Tensor):
            raise ArgumentError(
                f"[load] map_location returned {type(chosen).__name__}; return the storage, "
                "storage.to(device) or None"
            )
        return chosen.device


def _here(location: str) -> Device:
    """The device of that name, or the CPU where there is none."""
    try:
        return device(location)
    except (UnknownDeviceError, BackendMissingError):
        logger.info("[load] the file's device %s is not here: its tensors come to the CPU", location)
        return device("cpu")


class _Rebuild:
    """The object of a file, with tensors in place of their records."""

    def __init__(
        self, contents: Contents, elements: dict[tuple[str, torch_object.Element], Array], places: _Places
    ) -> None:
        self._contents, self._elements, self._places = contents, elements, places
        self._flat: dict[tuple[str, torch_object.Element], Tensor] = {}
        self._made: dict[int, Any] = {}  # by the identity of what they were made from

    def value(self, found: Any) -> Any:
        """The value that stands for what was found in the pickle."""
        if id(found) not in self._made:
            made = self._make(found)
            if isinstance(found, (list, dict, torch_object.StoredTensor)):  # what others may refer to as well
                self._made[id(found)] = made
            return made
        return self._made[id(found)]

    def _make(self, found: Any) -> Any:
        if isinstance(found, torch_object.StoredTensor):
            return self._tensor(found)
        if isinstance(found, torch_object.Element):
            return np.dtype(found.name if np.dtype(found.name) in KINDS else "float32")
        if isinstance(found, torch_object.StoredSize):
            return Size(found.sizes)
        if isinstance(found, torch_object.StoredStorage):
            raise Malformed("holds a storage without a tensor; save the tensor")
        if isinstance(found, list):
            items = self._made[id(found)] = []
            items.extend(self.value(item) for item in found)
            return items
        if isinstance(found, dict):
            table: dict[Any, Any] = type(found)()  # a dict, OrderedDict or Counter
            self._made[id(found)] = table
            for key, item in found.items():  # a Counter's update would add
                table[key] = self.value(item)
            return table
        if isinstance(found, tuple):
            return tuple([self.value(item) for item in found])
        return found

    def _tensor(self, record: torch_object.StoredTensor) -> Tensor:
        view = (record.key, record.element)
        if view not in self._flat:
            elements = self._elements[view]
            location = self._contents.storages[record.key].location
            target = self._places.of(self._contents.devices.get(record.key, location), lambda: elements)
            if elements.dtype not in KINDS:
                raise Malformed(
                    f"has a tensor of {brief(elements.dtype.name)}, which dl4all has no tensors of; "
                    "dl.io.load_weights reads it as an array"
                )
            self._flat[view] = from_numpy(elements, target)
        flat = self._flat[view]
        offset = record.offset // record.element.itemsize
        tensor = Tensor(flat.storage, record.shape, flat.dtype, flat.device, record.strides, offset)
        if record.is_parameter:
            return Parameter(tensor, record.requires_grad)
        if record.requires_grad and tensor.dtype in FLOATING:
            tensor.requires_grad_()
        return tensor
