"""Convolution by Fourier transforms says what the other ways say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops import conv_host, fourier
from dl4all.ops.window import Window

CASES = [  # input, weight, stride, before, behind, dilation, groups
    ((2, 3, 40), (4, 3, 17), (1,), (8,), (8,), (1,), 1),
    ((3, 4, 29), (6, 2, 5), (3,), (0,), (2,), (2,), 2),
    ((2, 3, 19, 23), (5, 3, 7, 9), (1, 1), (3, 4), (3, 4), (1, 1), 1),
    ((2, 6, 17, 13), (6, 1, 5, 3), (2, 1), (2, 0), (1, 1), (1, 2), 6),
    ((1, 2, 9, 8, 7), (4, 1, 3, 4, 2), (1, 2, 1), (1, 0, 0), (1, 0, 1), (1, 1, 1), 2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transforms_and_products_agree(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, weight, stride, before, behind, dilation, groups = case
    win = Window(weight[2:], stride, before, behind, dilation)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape), rng.standard_normal(weight)
    g = rng.standard_normal((shape[0], weight[0], *win.output_size(shape[2:])))
    monkeypatch.setattr(fourier, "IMAGE_BYTES", 1)  # an image at a time
    monkeypatch.setattr(fourier, "worthwhile", lambda *_: False)
    pairs = (
        (fourier.forward(x, w, win, groups), conv_host.forward(x, w, None, win, groups)),
        (
            fourier.input_gradient(g, w, shape[2:], win, groups),
            conv_host.input_gradient(g, w, shape[2:], win, groups),
        ),
        (fourier.weight_gradient(g, x, win, groups), conv_host.weight_gradient(g, x, win, groups)),
    )
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_large_filters_are_transformed_and_small_ones_are_not() -> None:
    one, stride = (1, 1), (1, 1)

    def chosen(x: tuple[int, ...], w: tuple[int, ...], groups: int) -> bool:
        pad = tuple(k // 2 for k in w[2:])
        return fourier.worthwhile(x, w, Window(w[2:], stride, pad, pad, one), groups)

    assert chosen((8, 64, 56, 56), (64, 1, 31, 31), 64)
    assert chosen((1, 1, 512, 512), (1, 1, 63, 63), 1)
    assert chosen((4, 16, 64, 64), (16, 16, 31, 31), 1)
    assert not chosen((8, 64, 56, 56), (64, 64, 3, 3), 1)
    assert not chosen((8, 64, 56, 56), (64, 1, 5, 5), 64)
    assert not chosen((1, 3, 7, 7), (2, 3, 7, 7), 1)
    assert not chosen((0, 3, 64, 64), (2, 3, 31, 31), 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_stays_where_it_is(bad: float) -> None:
    """In a tensor that would be transformed otherwise, and beside PyTorch's result for the clean one."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 1, 128, 128), (1, 1, 41, 41)))
    clean = dl.nn.functional.conv2d(
        dl.tensor(x, device="cpu"), dl.tensor(w, device="cpu"), padding=20
    ).numpy()
    expected = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=20).numpy()
    np.testing.assert_allclose(clean, expected, rtol=1e-4, atol=1e-4)
    x[0, 0, 0, 0] = bad
    spoilt = dl.nn.functional.conv2d(
        dl.tensor(x, device="cpu"), dl.tensor(w, device="cpu"), padding=20
    ).numpy()
    assert not np.isfinite(spoilt[0, 0, 0, 0])
    np.testing.assert_allclose(spoilt[0, 0, 60:], clean[0, 0, 60:], rtol=1e-4, atol=1e-4)
