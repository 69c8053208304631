"""Per-channel sums by rows and by slices, both against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.reduce import row_kernels
from dl4all.runtime.device_info import DeviceInfo

# Short rows, read element by element and as vec4s; several rows for a channel; rows that cannot be cut short
# enough (16411 is a prime); and too many rows.
SHAPES = (
    (2, 3, 8),
    (3, 5, 7, 7),
    (2, 3, 8200),
    (1, 2, 16388),
    (2, 1, 16411),
    (4099, 2, 9),
    (7, 1, 12),
    (3, 13),
)


@pytest.fixture(params=("rows", "slices", "slices on a GPU"))
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "rows":
        monkeypatch.setattr(DeviceInfo, "short_subgroups", property(lambda info: False))
    if request.param == "slices on a GPU":
        monkeypatch.setattr(
            row_kernels, "adds_in_subgroups", lambda device: "subgroup_arithmetic" in device.info.features
        )
    return str(request.param)


def numbers(*shape: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) + 0.5


@pytest.mark.vulkan
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_statistics_and_sums_by_channel(shape: tuple[int, ...], first: int, method: str) -> None:
    """Also of tensors at odd offsets, which cannot be read as vec4s."""
    count = int(np.prod(shape))
    x, g = (numbers(first + count, seed=seed) for seed in (1, 2))
    on_device = [dl.tensor(a, device="vulkan:0")[first:].reshape(*shape) for a in (x, g)]
    x, g = (a[first:].reshape(shape).astype(np.float64) for a in (x, g))
    axes = (0, *range(2, len(shape)))
    mean, var = x.mean(axes), x.var(axes)
    found = dl.ops.batch_norm_stats(on_device[0])
    np.testing.assert_allclose(found.numpy(), np.stack([mean, var]), rtol=2e-6, atol=1e-6)

    along = (1, -1) + (1,) * (len(shape) - 2)
    normalised = (x - mean.reshape(along)) / np.sqrt(var.reshape(along) + 1e-5)
    sums = dl.ops.batch_norm_sums(on_device[1], on_device[0], found[0], found[1]).numpy()
    scale = np.abs(g).sum(axes).max()  # the size of the terms that cancel
    np.testing.assert_allclose(
        sums / scale, np.stack([g.sum(axes), (g * normalised).sum(axes)]) / scale, atol=2e-6
    )


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", [(2, 6, 20), (3, 4, 8200), (5, 6, 7, 7)], ids=str)
def test_sums_by_channel_with_group_normalization(shape: tuple[int, ...], method: str) -> None:
    """Where rows of several channels are normalised together."""
    x, g = (numbers(*shape, seed=seed) for seed in (3, 4))
    rows = x.astype(np.float64).reshape(shape[0], 2, -1)
    rows = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    axes = (0, *range(2, len(shape)))
    expected = np.stack([g.sum(axes, np.float64), (g * rows.reshape(shape)).sum(axes)])
    on_device = [dl.tensor(a, device="vulkan:0") for a in (g, x)]
    found = dl.ops.grouped_norm_sums(on_device[0], on_device[1], groups=2).numpy()
    scale = np.abs(g).sum(axes).max()
    np.testing.assert_allclose(found / scale, expected / scale, atol=2e-6)
