"""Interpolation, pixel shuffling, fold and unfold beside PyTorch: values and gradients."""

from __future__ import annotations

from typing import Any

import pytest

import dl4all as dl
from tests.support.compare_torch import check_against_torch, torch, values

F, TF = dl.nn.functional, torch.nn.functional
DTYPES = ("float64", "float16", "int64", "int32", "int16", "uint8", "bool")


@pytest.mark.parametrize(
    ("shape", "arguments"),
    [
        ((2, 3, 5), {"size": 8}), ((2, 3, 5), {"scale_factor": 2.5}), ((2, 3, 5, 7), {"size": (3, 11)}),
        ((1, 2, 3, 4, 5), {"scale_factor": 2}), ((2, 3, 5, 7), {"scale_factor": 1.7}),
        ((2, 3, 5, 7), {"size": (10, 3), "mode": "nearest-exact"}),
        *(((2, 3, 5), {"size": size, "mode": "linear", "align_corners": corners})
          for size in (1, 3, 9) for corners in (False, True)),
        *(((2, 3, 5, 7), {"size": (9, 4), "mode": mode, "align_corners": corners})
          for mode in ("bilinear", "bicubic") for corners in (False, True)),
        *(((2, 3, 5, 7), {"scale_factor": (2.0, 1.5), "mode": mode}) for mode in ("bilinear", "bicubic")),
        ((1, 2, 3, 4, 5), {"size": (5, 3, 7), "mode": "trilinear"}),
    ],
    ids=str,
)  # fmt: skip
def test_interpolate(shape: tuple[int, ...], arguments: dict[str, Any], device: str) -> None:
    check_against_torch(
        device,
        lambda x: F.interpolate(x, **arguments),
        values(*shape),
        g=lambda x: TF.interpolate(x, **arguments),
    )


def test_pixel_shuffle(device: str) -> None:
    check_against_torch(
        device, lambda x: F.pixel_shuffle(x, 2), values(2, 12, 3, 5), g=lambda x: TF.pixel_shuffle(x, 2)
    )
    check_against_torch(
        device, lambda x: F.pixel_unshuffle(x, 3), values(2, 2, 6, 9), g=lambda x: TF.pixel_unshuffle(x, 3)
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"kernel_size": 2}, {"kernel_size": (3, 2), "padding": 1},
        {"kernel_size": 3, "stride": 2, "padding": (0, 1)},
        {"kernel_size": (2, 3), "dilation": 2, "stride": (1, 2), "padding": (1, 2)},
    ],
    ids=str,
)  # fmt: skip
def test_fold_and_unfold(arguments: dict[str, Any], device: str) -> None:
    check_against_torch(
        device, lambda x: F.unfold(x, **arguments), values(2, 3, 7, 8), g=lambda x: TF.unfold(x, **arguments)
    )
    columns = TF.unfold(torch.zeros(2, 3, 7, 8), **arguments).shape
    check_against_torch(
        device,
        lambda x: F.fold(x, (7, 8), **arguments),
        values(*columns),
        g=lambda x: TF.fold(x, (7, 8), **arguments),
    )
