"""Devices with kernels that sort: the CPU sorts by NumPy."""

from __future__ import annotations

import pytest

from tests.conftest import DEVICES, need, parameter


@pytest.fixture(params=[parameter(name) for name in DEVICES if name != "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device, each in turn."""
    name = str(request.param)
    need(name)
    return name
