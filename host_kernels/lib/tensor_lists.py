"""Elementwise work on lists of tensors by one call: what optimizers do with all parameters.

A job is a tensor of each role (gradient, parameter, ...), all of one size. The slots begin with the number of
jobs; the addresses follow role by role, then the sizes of the jobs, their sum, and the numbers. Addresses
that belong to no job may come before or after those of the jobs. The elements of all jobs are counted as one
row, which is cut into chunks: a thread takes a part of a large tensor, or many small tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dl4all.host_kernels.lib.rows import CHUNK, row_passes
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import LLVM_TYPES, SIZES, vector

Rule = Callable[[Code, list[IrValue], list[IrValue]], Sequence[IrValue]]
"""``rule(code, values, numbers)`` returns the new values of the roles that are written, which come last."""


def list_launch(
    text: Callable[..., IrModule],
    key: tuple[Any, ...],
    roles: int,
    tensors: Sequence[ArrayLayout],
    numbers: int = 0,
    others: int = 0,
    scratch: int = 0,
) -> HostLaunch:
    """The launch of a kernel of lists.

    Args:
        text: writes the module, called with `key`, the number of roles and the dtype's name.
        roles: how many tensors a job has.
        tensors: those of all jobs, role by role.
        numbers: how many it takes.
        others: how many addresses there are that belong to no job.
        scratch: bytes for each chunk.

    Raises:
        NoKernel: tensors have gaps, or are not all of float32 or of float64.
    """
    jobs = len(tensors) // roles
    sizes = [tensor.numel() for tensor in tensors[:jobs]]
    dtype = tensors[0].dtype
    if dtype not in (np.float32, np.float64) or any(tensor.dtype != dtype for tensor in tensors):
        raise NoKernel("other than tensors of float32 or of float64")
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise NoKernel("tensors with gaps")
    total = sum(sizes)
    constants: list[int | float] = [*sizes, total, *[0.0] * numbers]
    return HostLaunch(
        text, (*key, roles, dtype.name), others + len(tensors), constants, work=2 * total,
        numbers=range(jobs + 1, jobs + 1 + numbers), header=(jobs,), scratch=scratch * -(-total // CHUNK),
    )  # fmt: skip


@contextmanager
def pieces(
    code: Code, roles: int, before: int = 0, after: int = 0
) -> Iterator[tuple[list[IrValue], IrValue, IrValue]]:
    """A block that runs for each job of a range: with its addresses, first element and end.

    `before` and `after` count the other addresses.
    """
    slots, begin, end = code.parameters
    jobs = code.slot(0)
    sizes = jobs * roles + (1 + before + after)
    start = code.variable("i64", 0)
    with code.loop(0, jobs) as job:
        size, passed = code.load(slots, sizes + job, "i64"), start.value
        first = code.intrinsic("smax", begin - passed, code.constant("i64", 0))
        last = code.intrinsic("smin", end - passed, size)
        with code.if_(first < last):
            addresses = [code.load(slots, jobs * role + (job + (1 + before)), "ptr") for role in range(roles)]
            yield addresses, first, last
        start.value = passed + size


def elementwise_lists(name: str, rule: Rule, roles: int, written: int, numbers: int, dtype: str) -> IrModule:
    """The module of a kernel that computes new elements of the last `written` roles."""
    element = LLVM_TYPES[dtype]
    lanes = provider.processor().lanes(SIZES[element])
    type = vector(element, lanes)
    module = IrModule()
    with module.part("range") as part:
        slots = part.parameters[0]
        first_number = part.slot(0) * (roles + 1) + 2
        scalars = [
            part.convert(part.load(slots, first_number + place, "double"), element)
            for place in range(numbers)
        ]
        constants = [part.splat(scalar, lanes) for scalar in scalars]
        with pieces(part, roles) as (addresses, first, last):

            def step(i: IrValue, mask: IrValue | None) -> None:
                values = [part.load(address, i, type, mask) for address in addresses]
                results = rule(part, values, constants)
                for result, address in zip(results, addresses[roles - written :], strict=True):
                    part.store(result, address, i, mask)

            row_passes(part, last, lanes, step, first)
    with module.kernel(name) as code:
        for_all_jobs(code, part, roles)
    return module


def for_all_jobs(code: Code, part: Code, roles: int, others: int = 0) -> IrValue:
    """Run a part for all elements of the jobs; returns how many there are."""
    slots = code.parameters[0]
    total = code.load(slots, code.slot(0) * (roles + 1) + (1 + others), "i64")
    code.parallel(part, slots, total, CHUNK)
    return total
