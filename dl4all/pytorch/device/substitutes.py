"""``torch.Generator``, ``torch.Stream`` and ``torch.Event`` on ``dlall``.

PyTorch's extension cannot make these for a backend in Python. Each of the three classes is replaced by one
that makes the backend's own for ``dlall``, PyTorch's for other devices, and counts both as instances.
"""

from __future__ import annotations

from typing import Any

import torch

from dl4all.pytorch.device import streams
from dl4all.pytorch.device.devices import NAME, index_of


class DeviceGenerator(torch.Generator):
    """Random numbers on a device from a seed of their own.

    It is one of PyTorch's CPU generators: each call on a device takes a seed from it.
    """

    def __new__(cls, device: Any = NAME) -> DeviceGenerator:
        made: DeviceGenerator = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        return made

    def __init__(self, device: Any = NAME) -> None:
        self._index = index_of(device)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(NAME, self._index)

    def __reduce__(self) -> Any:
        return _rebuild_generator, (self._index, self.get_state())


def _rebuild_generator(index: int, state: torch.Tensor) -> DeviceGenerator:
    generator = DeviceGenerator(index)
    generator.set_state(state)
    return generator


class _Substitute(type):
    """The metaclass of what stands in for a class of PyTorch's extension."""

    replaced: Any
    ours: Any

    def __call__(cls, *args: Any, **options: Any) -> Any:
        device = options.get("device", args[0] if args else None)
        named = isinstance(device, (str, torch.device)) and torch.device(device).type == NAME
        return (cls.ours if named else cls.replaced)(*args, **options)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.replaced)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.replaced)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.replaced, name)


def substitute(replaced: Any, ours: Any) -> Any:
    """A class that is called for either."""
    names = {"replaced": replaced, "ours": ours, "__module__": "torch", "__doc__": replaced.__doc__}
    return _Substitute(replaced.__name__, (), names)


def patch() -> None:
    """Put them in place."""
    made: Any = torch
    made.Generator = substitute(torch.Generator, DeviceGenerator)
    made.Event = substitute(torch.Event, streams.Event)
    made.Stream = substitute(torch.Stream, streams.Stream)
