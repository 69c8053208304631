"""Caches tensors that are derived from others: transformed filters, and filters with aligned rows.

Transforming filters for Winograd's algorithm costs more than convolving one small image with them, so the
filters of a network that is no longer trained are transformed once. A derived tensor is kept as long as the
memory of its source lives and is not changed, and until memory runs out.
"""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Hashable

from dl4all.allocator.storage import Storage
from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.scheduler import listeners

MIN_USES = 3
"""Derivations of a tensor from unchanged filters until it is kept. A step of training may convolve
twice with the same filters, where activations are recomputed, and must not fill the cache."""

MOST_KEYS = 256
"""Tensors derived from one storage until all are forgotten: filters may be any part of it."""


class _Entry:
    """The tensors that were derived from one version of a storage's content."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.uses: Counter[Hashable] = Counter()
        self.tensors: dict[Hashable, TensorBase] = {}


class DerivedCache:
    """Tensors that were derived from others, each until the memory of its source changes or is freed."""

    def __init__(self) -> None:
        self.min_uses = MIN_USES
        self._entries: weakref.WeakKeyDictionary[Storage, _Entry] = weakref.WeakKeyDictionary()

    def get(self, source: TensorBase, key: Hashable, derive: Callable[[], TensorBase]) -> TensorBase:
        """The result of `derive` for the present content of `source`; kept if it is asked for often."""
        if listeners.captured():  # a compiled graph keeps what follows from filters by itself
            return derive()
        storage = source.storage
        entry = self._entry(storage)
        if len(entry.uses) >= MOST_KEYS and key not in entry.uses:
            entry.uses.clear()
            entry.tensors.clear()
        cached = None if storage.shown else entry.tensors.get(key)
        if cached is not None:
            listeners.unplanned()
            return cached
        tensor = derive()
        entry.uses[key] += 1
        if entry.uses[key] >= self.min_uses and not storage.shown:
            entry.tensors[key] = tensor
            listeners.unplanned()
            return tensor
        for listener in listeners.here():
            listener.guard(storage, functools.partial(self._derives_again, key))
        return tensor

    def _entry(self, storage: Storage) -> _Entry:
        """The cache entry for the storage's current version, if any."""
        entry = self._entries.get(storage)
        if entry is None or entry.version != storage.version:
            entry = self._entries[storage] = _Entry(storage.version)
        return entry

    def _derives_again(self, key: Hashable, storage: Storage) -> bool:
        """Count one more use; False, and it is not counted, where a tensor is kept or is to be kept now."""
        entry = self._entry(storage)
        full = len(entry.uses) >= MOST_KEYS and key not in entry.uses
        if full or (not storage.shown and entry.uses[key] + 1 >= self.min_uses):
            return False
        entry.uses[key] += 1
        return True

    def clear(self) -> None:
        """Free all tensors, and keep new ones only after four times as many uses."""
        self._entries.clear()
        self.min_uses *= 4


def derived_cache(source: TensorBase) -> DerivedCache:
    """The cache on the device of a tensor."""
    device = source.device
    if "derived" not in device.tables:
        device.tables["derived"] = new_cache = DerivedCache()
        device.pool.caches.append(new_cache.clear)
    cache: DerivedCache = device.tables["derived"]
    return cache


def empty_filters(like: TensorBase, *shape: int) -> TensorBase:
    """Memory for derived filters, under a name of its own in memory statistics."""
    filters: TensorBase = empty(type(like).result_class, shape, FLOAT32, like.device, "conv filters")
    return filters
