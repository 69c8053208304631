"""Where PyTorch's tensors live in these tests, and a mode in which a fallback is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def _dl4all_devices() -> list[str]:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from dl4all.torch.devices import names

    return list(names())


@pytest.fixture(params=["cpu", "vulkan:0"])
def place(request: Any) -> str:
    """A device of PyTorch for a dl4all device."""
    devices = _dl4all_devices()
    if request.param not in devices:
        pytest.skip(f"there is no {request.param}")
    return f"dlall:{devices.index(request.param)}"


@pytest.fixture
def natively(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing runs on the CPU that the device does not compute."""
    import torch

    import dl4all as dl
    import dl4all.torch

    monkeypatch.setenv("DL4ALL_FALLBACK", "error")  # of processes that a test starts; this one reads it once
    dl4all.torch.set_fallback("error")
    # PyTorch's threads know dlall:0 only:
    with dl.fallback.policy("error"), torch.autograd.set_multithreading_enabled(False):
        yield
    dl4all.torch.set_fallback(None)
