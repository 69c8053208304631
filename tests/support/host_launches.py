"""Compiled kernels of the CPU in tests: what they compute beside NumPy's bodies, and whether they ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.ops.core.kernels.host_kernel import HostLaunch
from dl4all.runtime.cpu.llvm import provider


class HostLaunches:
    """Counts what compiled kernels do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._monkeypatch = monkeypatch
        run = HostLaunch.run

        def counted(launch: HostLaunch, *args: Any) -> None:
            self.count += 1
            run(launch, *args)

        monkeypatch.setattr(HostLaunch, "run", counted)

    def both(self, compute: Callable[[], dl.Tensor]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """What compiled kernels compute, at least one of them, and what NumPy does."""
        before = self.count
        compiled = compute().numpy().copy()
        assert self.count > before, "no compiled kernel was used"
        return compiled, self.by_numpy(compute)

    def by_numpy(self, compute: Callable[[], dl.Tensor]) -> npt.NDArray[Any]:
        """What is computed without compiled kernels."""
        plans = dl.device("cpu").plans
        with self._monkeypatch.context() as patch:
            patch.setattr(provider, "enabled", False)
            plans.clear()
            before = self.count
            result: npt.NDArray[Any] = compute().numpy().copy()
            assert self.count == before
        plans.clear()
        return result


def poison_memory(*sizes: int) -> None:
    """Leave memory full of nan for the next tensors of so many bytes on the CPU."""
    for nbytes in sizes:
        for _ in range(3):
            dl.full((max(nbytes // 4, 1),), np.nan, device="cpu")
