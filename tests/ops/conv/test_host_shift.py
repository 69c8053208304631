"""Products with shifted images compute the same as im2col on the host."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dl4all.ops.conv.on_host import convolution as host
from dl4all.ops.conv.on_host import shift as host_shift
from dl4all.ops.conv.window import Window

WINDOWS = [  # size, kernel, before, behind, dilation, groups
    ((19,), (5,), (2,), (2,), (1,), 1),
    ((23,), (3,), (0,), (4,), (2,), 2),
    ((14, 14), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((11, 13), (3, 2), (1, 0), (1, 1), (1, 1), 2),
    ((11, 17), (3, 3), (2, 1), (2, 1), (2, 1), 1),
    ((13, 12), (1, 3), (0, 1), (0, 1), (1, 1), 1),
    ((9, 8, 10), (2, 3, 3), (0, 1, 1), (1, 1, 1), (1, 1, 1), 2),
]


def with_and_without_shifts(monkeypatch: pytest.MonkeyPatch, work: Any) -> tuple[Any, Any]:
    """The results with shifted images and without."""
    monkeypatch.setattr(host_shift, "BLOCK_BYTES", 4096)  # several blocks
    monkeypatch.setattr(host_shift, "MIN_BLOCK_COLUMNS", 7)
    monkeypatch.setattr(host_shift, "MIN_ROWS", 0)
    monkeypatch.setattr(host_shift, "MIN_CHANNELS", 0)
    monkeypatch.setattr(host_shift, "MAX_WASTE", math.inf)
    shifted = work()
    monkeypatch.setattr(host_shift, "layout", lambda *_: None)
    return shifted, work()


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("number", range(len(WINDOWS)))
def test_shifted_images_and_columns_agree(number: int, images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(number)
    size, kernel, before, behind, dilation, groups = WINDOWS[number]
    win = Window(kernel, (1,) * len(size), before, behind, dilation)
    assert host_shift.layout(size, win) is not None
    x = rng.standard_normal((images, 6, *size))
    w = rng.standard_normal((4, 6 // groups, *kernel))
    g = rng.standard_normal((images, 4, *win.output_size(size)))
    for work in (
        lambda: host.forward(x, w, x[0, :4].reshape(4, -1)[:, 0], win, groups),
        lambda: host.input_gradient(g, w, size, win, groups),
        lambda: host.weight_gradient(g, x, win, groups),
    ):
        with monkeypatch.context() as patch:
            result, expected = with_and_without_shifts(patch, work)
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_pixels_outside_a_window_have_no_influence(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pixel in the corner meets only some elements of the filters; its neighbours in memory meet more."""
    rng = np.random.default_rng(0)
    win = Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    x, g = rng.standard_normal((2, 3, 7, 7)), rng.standard_normal((2, 4, 7, 7))
    w = rng.standard_normal((4, 3, 3, 3))
    x[0, 1, 0, 6] = bad
    for work in (
        lambda: host.weight_gradient(g, x, win, 1),
        lambda: host.forward(x, w, None, win, 1),
    ):
        with monkeypatch.context() as patch, np.errstate(invalid="ignore"):
            result, expected = with_and_without_shifts(patch, work)
        assert np.isfinite(expected).any()
        assert not np.isfinite(expected).all()
        assert (np.isfinite(result) == np.isfinite(expected)).all()
