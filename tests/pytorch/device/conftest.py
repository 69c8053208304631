"""Where PyTorch's tensors live in these tests, and a mode in which a fallback is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import parameter


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """PyTorch's threads and those of BLAS would wait for each other."""
    pytest.importorskip("torch", reason="PyTorch is not installed").set_num_threads(1)


def _dl4all_devices() -> list[str]:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from dl4all.pytorch.device.devices import names

    return list(names())


@pytest.fixture(params=map(parameter, ("cpu", "vulkan:0")))
def place(request: Any) -> str:
    """A device of PyTorch for a dl4all device."""
    devices = _dl4all_devices()
    if request.param not in devices:
        pytest.skip(f"there is no {request.param}")
    return f"dlall:{devices.index(request.param)}"


@pytest.fixture
def natively() -> Iterator[None]:
    """Nothing runs on the CPU that the device does not compute."""
    import torch

    import dl4all as dl
    import dl4all.torch

    dl4all.torch.set_fallback("error")
    # PyTorch's threads know dlall:0 only
    with dl.fallback.policy("error"), torch.autograd.set_multithreading_enabled(False):
        yield
    dl4all.torch.set_fallback(None)
