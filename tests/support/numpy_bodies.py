"""The CPU without compiled kernels, as one more device: users without llvmlite compute so."""

from __future__ import annotations

import pytest

from dl4all.runtime.cpu.llvm import provider
from tests.conftest import DEVICES, need, parameter


@pytest.fixture(params=[*map(parameter, DEVICES), "numpy"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a device, each in turn, and that of the CPU without compiled kernels."""
    name = str(request.param)
    if name == "numpy":
        monkeypatch.setattr(provider, "enabled", False)
        return "cpu"
    need(name)
    return name
