"""Long sums of a matrix product shared by several workgroups, where it has too few tiles to keep a GPU busy.

Each computes a slice of the terms, and a second launch adds the partial sums in their order, so that the
result is the same each time.
"""

from __future__ import annotations

from dl4all.ops.core.kernels.launch import run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.device_info import DeviceInfo

ADD_SLICES_PUSH = PushBlock("linalg/add_slices.comp", "uint n, slices, y_offset;")
ADD_SLICES = shader("linalg/add_slices.comp")
WORKGROUP = 64  # invocations of ADD_SLICES

MIN_TERMS = 256  # of a slice: partial sums of fewer take longer to store and add than they save
MOST_SLICES = 32
SLICE_UNIT = 16  # terms: slices begin where operands can be read four elements at a time

BUSY_WORKGROUPS = {"discrete": 128, "virtual": 128, "integrated": 32}
"""Workgroups of a tile that keep a GPU busy: about two for each of its compute units."""


def busy_workgroups(info: DeviceInfo) -> int:
    """The number of workgroups that keep a device busy; 0 for one that is no GPU, or unknown."""
    return BUSY_WORKGROUPS.get(info.type, 0)


def slice_count(info: DeviceInfo, groups: int, terms: int) -> int:
    """The number of slices of `terms` products for a launch of that many workgroups: a power of two.

    >>> from dl4all.runtime.null.backend import describe
    >>> import dataclasses
    >>> gpu = dataclasses.replace(describe(), type="discrete")
    >>> slice_count(gpu, 4, 8192), slice_count(gpu, 4, 1024), slice_count(gpu, 128, 8192)
    (32, 4, 1)
    """
    most = min(busy_workgroups(info) // groups, terms // MIN_TERMS, MOST_SLICES)
    return 1 << (most.bit_length() - 1) if most > 1 else 1


def slice_terms(terms: int, slices: int) -> int:
    """The terms of each slice but the last one, which takes what is left, too.

    >>> slice_terms(1030, 2), slice_terms(1030, 1)
    (512, 1030)
    """
    return terms if slices == 1 else terms // slices // SLICE_UNIT * SLICE_UNIT


def add_slices(out: TensorBase, offset: int, partial: TensorBase) -> None:
    """Fill `out` from `offset` on with the sums of `partial`, of shape (slices, elements)."""
    slices, elements = partial.shape
    run(
        ADD_SLICES,
        strided_grid(elements, WORKGROUP),
        ADD_SLICES_PUSH.pack(n=elements, slices=slices, y_offset=offset),
        partial,
        out,
    )
