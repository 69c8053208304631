"""The operands of a sample: moved to the device, laid out otherwise in memory, or with other elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from dl4all.pytorch.device.devices import NAME

Change = Callable[[torch.Tensor], torch.Tensor]

ROUNDING = torch.Generator()
"""Draws last bits, apart from what ops draw."""


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in nested lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [one for item in value for one in tensors(item)] if isinstance(value, (list, tuple)) else []


def changed(value: Any, change: Change) -> Any:
    """The same nest with other tensors."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: changed(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [changed(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def copied(value: Any) -> Any:
    """Copies that are laid out as these, with all of the memory that is around views."""
    return changed(value, lambda one: _copy(one, "cpu"))


def on_device(value: Any) -> Any:
    """Such copies on the device; names of devices become the device's."""
    if isinstance(value, dict):
        value = {key: NAME if key == "device" and item is not None else item for key, item in value.items()}
    elif isinstance(value, tuple) and not hasattr(value, "_fields"):
        value = tuple(
            NAME if isinstance(item, (str, torch.device)) and str(item) == "cpu" else item for item in value
        )
    return changed(value, lambda one: _copy(one, NAME))


def _copy(one: torch.Tensor, device: str) -> torch.Tensor:
    plain = one.detach()
    if not is_plain(one) or one.is_conj() or one.is_neg() or not one.numel():
        return _like(one, plain.to(device, copy=True))
    count = plain.untyped_storage().nbytes() // one.itemsize
    whole = torch.empty(0, dtype=one.dtype).set_(plain.untyped_storage(), 0, (count,), (1,))
    moved = whole.to(device, copy=True)
    return _like(one, moved.as_strided(one.shape, one.stride(), one.storage_offset()).detach())


def transposed(one: torch.Tensor) -> torch.Tensor:
    """Equal, with its axes in the reverse order in memory."""
    axes = tuple(reversed(range(one.dim())))
    return _like(one, one.detach().permute(axes).contiguous().permute(axes))


def offset(one: torch.Tensor) -> torch.Tensor:
    """Equal, a view of every other element of a larger tensor, beginning at its third element."""
    if one.dim() == 0:
        return _like(one, torch.stack([one.detach()] * 4)[3])
    room = torch.full((*one.shape[:-1], 2 * one.shape[-1] + 3), 7, dtype=one.dtype)
    view = room[..., 3::2]
    view.copy_(one.detach())
    return _like(one, view)


LAYOUTS: dict[str, Change] = {"transposed": transposed, "offset": offset}


def widened(value: Any) -> Any:
    """The same numbers in float64."""

    def widen(one: torch.Tensor) -> torch.Tensor:
        return _like(one, one.detach().double()) if one.is_floating_point() else one

    if isinstance(value, dict):
        value = {key: _wide_dtype(item) for key, item in value.items()}
    return changed(value, widen)


def rounded(value: Any) -> Any:
    """Copies whose numbers differ from these by up to a unit in the last place."""

    def perturb(one: torch.Tensor) -> torch.Tensor:
        if not one.is_floating_point():
            return one
        units = torch.randint(-1, 2, one.shape, generator=ROUNDING).to(one.dtype)
        return _like(one, one.detach() * (1 + torch.finfo(one.dtype).eps * units))

    return changed(value, perturb)


def _wide_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _like(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return other.requires_grad_(one.requires_grad)


def is_plain(value: Any) -> bool:
    """Whether all tensors are strided, neither sparse nor quantized nor nested."""
    return all(
        one.layout == torch.strided and not one.is_quantized and not one.is_nested for one in tensors(value)
    )


def each_layout(value: Any) -> Iterator[tuple[str, Any]]:
    """The operands in other layouts, those that may differ from the given one."""
    if not is_plain(value) or not tensors(value):
        return
    for name, change in LAYOUTS.items():
        if name != "transposed" or any(one.dim() > 1 for one in tensors(value)):
            yield name, changed(value, change)
