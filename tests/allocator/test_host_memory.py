"""Memory of the host is used again where nobody else sees it, and never where somebody does."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.allocator.host_memory import KEPT_BYTES, MOST


@pytest.fixture
def poisoned() -> None:
    """Memory as the allocator gives it."""


def place(tensor: dl.Tensor) -> int:
    return int(tensor.storage.address)


def test_what_was_freed_is_used_for_the_same_size() -> None:
    first = dl.empty(1001, device="cpu")
    where = place(first)
    del first
    other = dl.empty(1003, device="cpu")
    assert place(other) != where
    assert place(dl.empty(1001, device="cpu")) == where


VIEWS: dict[str, Callable[[dl.Tensor], Any]] = {
    "numpy": lambda tensor: tensor.numpy(),
    "part": lambda tensor: tensor.numpy()[3:5],
    "bytes": lambda tensor: tensor.numpy().view(np.uint8),
    "dlpack": np.from_dlpack,
    "memoryview": lambda tensor: memoryview(tensor.numpy().data),
}


@pytest.mark.parametrize("view", VIEWS)
def test_what_somebody_still_sees_is_not(view: str) -> None:
    first = dl.full((1009,), 7.0, device="cpu")
    shown = VIEWS[view](first)
    before = np.array(shown)
    del first
    gc.collect()
    others = [dl.zeros(1009, device="cpu") for _ in range(3)]
    np.testing.assert_array_equal(np.array(shown), before)
    assert all((other.numpy() == 0).all() for other in others)


def test_an_array_that_a_tensor_took_over_is_its_owners() -> None:
    array = np.full(1013, 7.0, np.float32)
    tensor = dl.from_numpy(array)
    del tensor
    dl.zeros(1013, device="cpu").add_(1)
    assert (array == 7).all()


def test_trim_gives_it_back() -> None:
    first = dl.empty(1019, device="cpu")
    del first
    spare = dl.device("cpu").pool._adopted._spare
    dl.device("cpu").pool.stats  # noqa: B018 - sorts in what came back
    assert 4 * 1019 in spare
    dl.memory.trim("cpu")
    assert not spare


def test_no_more_is_kept_than_the_limit() -> None:
    memory = dl.device("cpu").pool._adopted
    tensors = [dl.empty(1021, device="cpu") for _ in range(2 * MOST)]
    tensors.append(dl.empty(KEPT_BYTES // 4 + 1, device="cpu"))
    tensors += [dl.empty(KEPT_BYTES // 16 - n, device="cpu") for n in range(6)]
    tensors.clear()
    dl.device("cpu").pool.stats  # noqa: B018
    assert all(len(pieces) <= MOST for pieces in memory._spare.values())
    assert sum(size * len(pieces) for size, pieces in memory._spare.items()) <= KEPT_BYTES
