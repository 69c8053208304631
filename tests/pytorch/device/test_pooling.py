"""Pooling, interpolation and sampling of images against PyTorch's on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all.torch  # noqa: E402 - registers the device

F = torch.nn.functional
SIGNAL, IMAGE, VOLUME = (2, 3, 13), (2, 3, 11, 7), (1, 2, 5, 6, 7)


def unpooled(x: Any) -> Any:
    values, indices = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(values, indices, 2, output_size=x.shape[-2:])


CASES: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "max of signals": (SIGNAL, lambda x: F.max_pool1d(x, 3, 2, 1)),
    "max": (IMAGE, lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), (1, 2), ceil_mode=True)),
    "max of one image": (IMAGE[1:], lambda x: F.max_pool2d(x, 3)),
    "max of volumes": (VOLUME, lambda x: F.max_pool3d(x, 3, 2, 1, return_indices=True)[0]),
    "adaptive max": (IMAGE, lambda x: F.adaptive_max_pool2d(x, (4, 3))),
    "adaptive max of volumes": (VOLUME, lambda x: F.adaptive_max_pool3d(x, (2, 3, 1))),
    "unpooling": (IMAGE, unpooled),
    "mean of signals": (SIGNAL, lambda x: F.avg_pool1d(x, 3, 2, 1, count_include_pad=False)),
    "mean": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5)),
    "mean of volumes": (VOLUME, lambda x: F.avg_pool3d(x, (2, 3, 2), padding=1, count_include_pad=False)),
    "adaptive mean": (IMAGE, lambda x: F.adaptive_avg_pool2d(x, (4, 3))),
    "adaptive mean of volumes": (VOLUME, lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2))),
    "nearest": (VOLUME, lambda x: F.interpolate(x, scale_factor=1.7)),
    "bilinear": (IMAGE, lambda x: F.interpolate(x, (5, 17), mode="bilinear", align_corners=True)),
    "bicubic": (IMAGE, lambda x: F.interpolate(x, scale_factor=(1.7, 0.6), mode="bicubic")),
    "trilinear": (VOLUME, lambda x: F.interpolate(x, (3, 7, 7), mode="trilinear")),
    "windows": (IMAGE, lambda x: F.fold(F.unfold(x, 3, 2, 1, 2) ** 2, IMAGE[2:], 3, 2, 1, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_images(case: str, place: str, natively: None) -> None:
    shape, function = CASES[case]
    torch.manual_seed(1)
    x, results = torch.randn(shape), []
    for where in ("cpu", place):
        leaf = x.to(where).requires_grad_()
        output = function(leaf)
        results.append((output, *torch.autograd.grad((output**2).sum(), leaf)))
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grids(mode: str, padding: str, place: str, natively: None) -> None:
    torch.manual_seed(2)
    operands, results = (torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 2)), []
    for where in ("cpu", place):
        leaves = [one.to(where).requires_grad_() for one in operands]
        output = F.grid_sample(*leaves, mode, padding, align_corners=False)
        results.append((output, *torch.autograd.grad((output**2).sum(), leaves)))
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("case", ["max", "mean", "adaptive max", "adaptive mean"])
def test_results_have_the_memory_format_of_images(case: str, natively: None) -> None:
    x = torch.randn(IMAGE).to(memory_format=torch.channels_last)
    strides = []
    for where in ("cpu", "dlall"):
        leaf = x.to(where).requires_grad_()
        output = CASES[case][1](leaf)
        (gradient,) = torch.autograd.grad(output, leaf, torch.ones_like(output))
        strides.append((output.stride(), gradient.stride()))
    assert strides[0] == strides[1]


def test_maxima_of_nan_and_of_equals(place: str, natively: None) -> None:
    x = torch.randint(3, (2, 3, 6, 7)).float()
    x[0, 1, 2, 3] = x[1, 2, 0, 0] = x[1, 2, 1, 1] = float("nan")
    expected = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    got = F.max_pool2d(x.to(place), 3, 2, 1, return_indices=True)
    for one, other in zip(expected, got, strict=True):
        torch.testing.assert_close(other.cpu(), one, equal_nan=True)


def test_integers_run_on_the_cpu() -> None:
    x = torch.randint(100, (1, 2, 6, 6))
    dl4all.torch.set_fallback("silent")
    assert torch.equal(F.max_pool2d(x.to("dlall"), 2).cpu(), F.max_pool2d(x, 2))
    dl4all.torch.set_fallback(None)
