"""Operands and results: PyTorch's tensors as dl4all's, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import dl4all as dl
from dl4all.tensor.sparse import SparseTensor
from lab.torch_databases.samples import changed, is_plain


def to_peer(value: Any) -> Any:
    """The same nest of dl4all's tensors on the default device, laid out in memory as PyTorch's are.

    Dtypes, devices, layouts and generators become dl4all's of that name.

    Raises:
        TypeError: dl4all has none of that name.
    """
    return named(moved(value))


def moved(value: Any) -> Any:
    """The same nest of dl4all's tensors; all else stays PyTorch's."""
    return changed(value, _tensor)


def to_torch(value: Any) -> Any:
    """The same nest of PyTorch's tensors, with numbers where PyTorch has numbers."""
    if isinstance(value, dl.Tensor):
        return torch.utils.dlpack.from_dlpack(value.detach().cpu().clone())
    if isinstance(value, SparseTensor):
        return to_torch(value.to_dense()).to_sparse()
    if isinstance(value, np.dtype):
        return getattr(torch, value.name)
    if isinstance(value, dict):
        return {key: to_torch(item) for key, item in value.items()}
    if isinstance(value, dl.Size):
        return torch.Size(value)
    if isinstance(value, tuple):
        return tuple(to_torch(item) for item in value)
    return [to_torch(item) for item in value] if isinstance(value, list) else value


def peer_tensors(value: Any) -> list[Any]:
    """dl4all's tensors in nested lists, tuples and dicts, in order."""
    if isinstance(value, dl.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [one for item in value for one in peer_tensors(item)] if isinstance(value, (list, tuple)) else []


def _tensor(one: torch.Tensor) -> Any:
    if not is_plain(one) or one.is_complex():
        raise TypeError(f"[to_peer] no tensor of {one.dtype} and {one.layout} in dl4all")
    plain = one.detach()
    count = plain.untyped_storage().nbytes() // one.itemsize
    if not one.numel() or (one.is_contiguous() and count == one.numel()):
        made = dl.from_dlpack(plain).clone().to(dl.get_default_device())
    else:
        whole = plain.as_strided((count,), (1,), 0)
        made = dl.from_dlpack(whole).clone().to(dl.get_default_device())
        made = made.as_strided(tuple(one.shape), one.stride(), int(one.storage_offset())).detach()
    return made.requires_grad_() if one.requires_grad else made


def named(value: Any) -> Any:
    """The same nest with dl4all's dtypes, devices, layouts and generators.

    Raises:
        TypeError: dl4all has none of that name.
    """
    if isinstance(value, dict):
        return {
            key: named(torch.device(item) if key == "device" and isinstance(item, str) else item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        items = [
            named(torch.device(item) if isinstance(item, str) and item == "cpu" else item) for item in value
        ]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, torch.device):
        return dl.tensor([]).device if value.type == "cpu" else str(value)
    if isinstance(value, torch.Generator):
        return dl.Generator(value.initial_seed())
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        name = str(value).removeprefix("torch.")
        name = name if hasattr(dl, name) else f"{name}_"
        if not hasattr(dl, name):
            raise TypeError(f"[to_peer] dl4all has no {value}")
        return getattr(dl, name)
    return value
