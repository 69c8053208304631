"""Buffers that a model changes while it computes, other than the statistics of batch normalization."""

from __future__ import annotations

from typing import Any

from dl4all.multi_device.data_parallel.model_parts import ModelParts
from dl4all.multi_device.replica import Replica
from dl4all.ops.core import tape
from dl4all.ops.core.op import empty
from dl4all.ops.memory.copy import copy_into
from dl4all.tensor.tensor import Tensor


class Buffers:
    """The buffers as they were before a forward pass. The first shard's replica is the one that changes them.

    Args:
        model: the parts of what the replicas are copies of.
        first: the replica of the first shard.
    """

    def __init__(self, model: ModelParts, first: Replica) -> None:
        self._first = first
        self._before: list[tuple[Tensor, int, Any]] = []  # with the version of the replica's, and a copy
        if not model.training or not model.buffers:
            return
        with tape.gradients(False):
            for buffer in model.buffers:
                copy = None
                if first.pairs[id(buffer)][1].storage is buffer.storage:
                    copy = empty(Tensor, buffer.shape, buffer.dtype, buffer.device, "buffer")
                    copy_into(copy, buffer)
                self._before.append((buffer, first.pairs[id(buffer)][1].storage.version, copy))

    def keep(self) -> None:
        """Bring what the first replica has changed elsewhere to the model."""
        if not self._before:
            return
        with tape.gradients(False):
            for buffer, version, _ in self._before:
                made = self._first.pairs[id(buffer)][1]
                if made.storage is not buffer.storage and made.storage.version != version:
                    copy_into(buffer, made)
                    buffer.storage.version += 1

    def restore(self) -> None:
        """Undo the changes. Every replica may have made some, so that it gets the contents anew."""
        with tape.gradients(False):
            for buffer, version, copy in self._before:
                if copy is not None and buffer.storage.version != version:
                    copy_into(buffer, copy)
                buffer.storage.version += 1
