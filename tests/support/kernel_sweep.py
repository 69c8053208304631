"""Every example of every op on the CPU, compared with its NumPy body: in a process of its own.

    python -m tests.support.kernel_sweep [guarded] [plain] [some] [ops ...]

``guarded``: operands and results lie at the very end of their pages, and then at the very start, and the
pages beside them cannot be touched: a kernel that reads or writes outside of what it is given ends the
process. ``plain``: kernels are compiled for a processor without AVX2, FMA or anything else that is optional.
``some``: one example of each op. The last line is the number of calls, and how many of them ran compiled
kernels.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from typing import Any

import numpy as np
import pytest

from dl4all.ops import REGISTRY
from dl4all.ops.core.kernels.host_kernel import HostLaunch
from dl4all.runtime.cpu.buffer import CpuBuffer
from dl4all.runtime.cpu.llvm import target
from tests.support.operands import LAYOUTS, compare, operands_of, reference
from tests.support.subcases import spread

PAGE = mmap.PAGESIZE
launches = 0
patch = pytest.MonkeyPatch()


def guarded(nbytes: int, *, at_end: bool) -> CpuBuffer:
    """Memory between two pages that cannot be touched."""
    inner = -(-nbytes // PAGE) * PAGE
    area = mmap.mmap(-1, inner + 2 * PAGE)
    whole = np.frombuffer(area, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    start = whole.ctypes.data
    for page in (start, start + PAGE + inner):
        if protect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = PAGE + inner - nbytes if at_end else PAGE
    data = whole[offset : offset + nbytes]
    data[:] = 0xFF  # nan in every float type
    return CpuBuffer(data)  # the array keeps the area


def count_launches() -> None:
    run = HostLaunch.run

    def counted(self: HostLaunch, *args: Any) -> None:
        global launches
        launches += 1
        run(self, *args)

    patch.setattr(HostLaunch, "run", counted)


def sweep(names: list[str], most: int | None) -> int:
    """Compute examples, `most` of each op; returns how many calls there were."""
    calls = 0
    for op in REGISTRY.values():
        if names and op.name not in names:
            continue
        for case in op.examples if most is None else spread(op.examples, most):
            for layout in LAYOUTS.values():
                tensors, elements = operands_of(op, case, layout, "cpu")
                result = op(*tensors, **dict(case.arguments))
                compare(result, reference(op, list(elements), **dict(case.arguments)))
                calls += 1
    return calls


def main(args: list[str]) -> None:
    if "plain" in args:
        plain = target.described("x86-64", {})
        patch.setattr(target, "host", lambda: plain)
    count_launches()
    names = [arg for arg in args if arg not in ("guarded", "plain", "some")]
    most = 1 if "some" in args else None
    calls = 0
    if "guarded" in args:
        for at_end in (True, False):
            patch.setattr(CpuBuffer, "empty", functools.partial(guarded, at_end=at_end))
            calls += sweep(names, most)
    else:
        calls = sweep(names, most)
    print(calls, launches)


if __name__ == "__main__":
    main(sys.argv[1:])
