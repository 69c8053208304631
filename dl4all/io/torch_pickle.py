"""Reads PyTorch's `.pth` and `.pt` state dicts into arrays, without PyTorch and without running code."""

from __future__ import annotations

import logging
from os import fspath

from dl4all.io.torch_container import Contents, is_torch, open_container
from dl4all.io.torch_object import StoredTensor
from dl4all.io.weight_file import (
    MAX_EXPANDED_BYTES,
    MAX_TENSORS,
    Array,
    Malformed,
    StrPath,
    brief,
    limits_of,
    opened,
)

__all__ = ["is_torch", "load_torch"]

_NAMES_IN_CHECKPOINTS = ("state_dict", "model")

logger = logging.getLogger("dl4all")


def load_torch(path: StrPath, *, max_tensors: int = MAX_TENSORS, key: str | None = None) -> dict[str, Array]:
    """Read a PyTorch state dict into NumPy arrays.

    The file is a state dict, or a checkpoint that holds one under "state_dict" or "model"; a warning then
    names what else there is, which :func:`dl4all.load` reads. Arrays have the shape, the element type and
    the memory layout that the tensors had, and tensors that shared a storage share memory. Those that were
    expanded, so that elements share memory within a tensor, come as copies; all copies of a file take at
    most 64 MiB.

    Args:
        path: a file written by `torch.save` or `dl.save`, in the zip format or the one before torch 1.6.
        max_tensors: how many tensors there may be, with those of an optimizer's state. It bounds
            the time and the memory that a hostile file can take; raise it for a file to be trusted.
        key: the entry of a checkpoint that is the state dict.

    Returns:
        Name -> writable array of float16/32/64, bfloat16, float8, int8/16/32/64, uint8/16/32/64 or bool.

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
        contents = open_container(file, limits)
        tensors, found, rest = _state_dict(contents.root, key)
        limits.check(len(tensors))
        arrays = _arrays(tensors, contents)
    if rest and key is None:
        logger.warning(
            "%s: read %r of this checkpoint, not %s; key='...' picks another entry, and dl.load(path) reads "
            "all",
            fspath(path),
            found,
            _listed(rest),
        )
    return arrays


def _state_dict(root: object, key: str | None) -> tuple[dict[str, StoredTensor], str | None, list[object]]:
    """The state dict in a checkpoint: the object itself, or its entry `key`, "state_dict" or "model".

    Returns:
        The tensors, the entry that they are from, and the names of the others.

    Raises:
        Malformed: there is none.
    """
    if not isinstance(root, dict):
        kind = "a single tensor" if isinstance(root, StoredTensor) else f"a {type(root).__name__}"
        raise Malformed(f"holds {kind}, not a state dict; save model.state_dict(), or use dl.load(path)")
    table, where = root, "its"
    if key is not None:
        if not isinstance(root.get(key), dict):
            raise Malformed(f"has no state dict under {key!r}; its {len(root)} keys: {_listed(list(root))}")
        table, where = root[key], f"the {brief(key)}'s"
    elif not all(isinstance(value, StoredTensor) for value in root.values()):
        for name in _NAMES_IN_CHECKPOINTS:
            if isinstance(root.get(name), dict):
                key, table, where = name, root[name], f"the {name}'s"
                break
    tensors = {name: value for name, value in table.items() if isinstance(value, StoredTensor)}
    if len(tensors) == len(table) and all(isinstance(name, str) for name in tensors):
        return tensors, key, [name for name in root if name != key] if table is not root else []
    odd = next(name for name in table if name not in tensors or not isinstance(name, str))
    kind = type(table[odd]).__name__ if odd not in tensors else "tensor, but its name is no text"
    raise Malformed(
        f"holds no plain state dict: {where} entry '{brief(str(odd), 40)}' is of type {kind} "
        f"({len(table)} keys: {_listed(list(table))}); save model.state_dict(), pick an entry by key='...', "
        "or read all by dl.load(path)"
    )


def _listed(names: list[object]) -> str:
    return ", ".join(brief(str(name), 40) for name in names[:8]) + (", ..." if len(names) > 8 else "")


def _arrays(tensors: dict[str, StoredTensor], contents: Contents) -> dict[str, Array]:
    """The tensors as arrays."""
    elements = contents.elements(tensors)
    arrays: dict[str, Array] = {}
    copied = 0
    for name, tensor in tensors.items():
        array = tensor.view(elements[tensor.key, tensor.element])
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
