"""Optimizers whose state is spread over processes."""

from __future__ import annotations

import pytest

import dl4all as dl
from dl4all.distributed.ownership import owners
from dl4all.errors import DistError
from tests.conftest import need
from tests.distributed.processes import run_mpi, run_ranks


@pytest.mark.vulkan
@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.full), 3])
def test_it_is_the_optimizer_alone_to_the_last_bit(count: int) -> None:
    need("vulkan:0")
    for ended in run_ranks(count, "zero_redundancy", "cpu", "vulkan:0"):
        assert (ended.status, "complete" in ended.output) == (0, True), ended.output


def test_over_mpi() -> None:
    ended = run_mpi(2, "zero_redundancy", "cpu")
    assert ended.status == 0, ended.output
    assert ended.output.count("complete") == 2


@pytest.mark.parametrize("count", [1, 2, 5])
def test_parts_are_alike_in_size(count: int) -> None:
    sizes = [4000, 40, 1000, 10, 900, 30, 2000, 2000, 5]
    found = owners(sizes, count)
    loads = [
        sum(size for size, owner in zip(sizes, found, strict=True) if owner == rank) for rank in range(count)
    ]
    assert sum(loads) == sum(sizes)
    assert max(loads) <= max(sum(sizes) / count * 1.34, max(sizes))


def test_it_needs_a_group() -> None:
    with pytest.raises(DistError, match="init_process_group"):
        dl.optim.ZeroRedundancyOptimizer([dl.nn.Parameter(dl.ones(2))], dl.optim.SGD, lr=0.1)
