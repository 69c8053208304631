"""Tensors on the CPU as arguments and results of compiled graphs.

A model on the CPU is compiled for ``dlall``, too. Arguments are uploaded, results downloaded, and what a
graph changes in place is written back. Of a parameter or buffer the device keeps a copy, as an attribute of
its storage on the CPU, which lives as long. The copy is made anew where PyTorch has counted another version
of the tensor since, or where some words differ: PyTorch counts nothing that is written through ``.data``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dl4all.pytorch.device.devices import is_here
from dl4all.pytorch.device.storage import memory

SAMPLES = 64
"""Words of a parameter that are compared with those that were uploaded."""


@dataclass
class _Copy:
    """PyTorch's storage on the device with what a storage on the CPU held."""

    storage: Any
    index: int
    version: int
    sample: bytes


class HostOperands:
    """The way of arguments onto the device that a graph runs on, and of results to where the graph has them.

    Args:
        index: of the device.
        kept: positions of arguments of which the device keeps a copy.
        changed: positions of arguments that the graph changes in place.
        to_cpu: positions of results that belong on the CPU.
    """

    def __init__(
        self,
        index: int,
        kept: Collection[int] = (),
        changed: Sequence[int] = (),
        to_cpu: Collection[int] = (),
    ) -> None:
        self.index = index
        self._kept, self._changed, self._to_cpu = frozenset(kept), tuple(changed), frozenset(to_cpu)

    def arrive(self, arguments: Sequence[Any]) -> list[Any]:
        """The arguments of a call, with tensors of the CPU on the device."""
        return [
            self._uploaded(position, value)
            if isinstance(value, torch.Tensor) and value.device.type == "cpu"
            else value
            for position, value in enumerate(arguments)
        ]

    def leave(self, results: list[Any], given: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """The results of a call where they belong, after arguments of the CPU got what was written to them.

        Args:
            results: of the graph.
            given: what :meth:`arrive` returned.
            arguments: what it was called with.
        """
        for position in self._changed:
            if given[position] is not arguments[position]:
                arguments[position].detach().copy_(memory.download(given[position]))
        own = {id(one): value for one, value in zip(given, arguments, strict=True)}
        for position in self._to_cpu:
            result = results[position]
            if is_here(result):
                before = own.get(id(result), result)
                results[position] = memory.download(result) if before is result else before
        return results

    def _uploaded(self, position: int, host: torch.Tensor) -> torch.Tensor:
        if position in self._kept and not host.is_inference():
            storage = host.untyped_storage()
            if 2 * host.nbytes >= storage.nbytes() > 0:
                return self._kept_copy(host, storage)
        shape, strides = host.shape, host.stride()
        count = memory.extent(shape, strides)
        line = host.detach().as_strided((count,), (1,), host.storage_offset())
        copy = memory.upload(line, self.index)
        return memory.over(copy.untyped_storage(), self.index, host.dtype, tuple(shape), strides)

    def _kept_copy(self, host: torch.Tensor, storage: Any) -> torch.Tensor:
        whole = torch.empty(0, dtype=torch.uint8).set_(storage)
        copy: _Copy | None = getattr(storage, "on_dlall", None)
        version, sample = host._version, _sample(whole)
        if copy is None or (copy.index, copy.version, copy.sample) != (self.index, version, sample):
            uploaded = memory.upload(whole, self.index).untyped_storage()
            copy = storage.on_dlall = _Copy(uploaded, self.index, version, sample)
        return memory.over(
            copy.storage, self.index, host.dtype, tuple(host.shape), host.stride(), int(host.storage_offset())
        )


def _sample(data: torch.Tensor) -> bytes:
    """Bytes from all over a storage."""
    words = data[: len(data) // 8 * 8].view(torch.int64) if len(data) >= 8 else data
    return words[:: max(len(words) // SAMPLES, 1)].numpy().tobytes()
