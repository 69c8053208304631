"""Interpolation to another size, sampling at the coordinates of a grid, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dl4all import autograd, ops
from dl4all.errors import ShapeError
from dl4all.functions.vision.grid_sampler import PADDING_MODES, SAMPLING_MODES
from dl4all.functions.vision.interpolation import resized
from dl4all.ops.indexing.gather_scatter import expanded_number
from dl4all.pytorch.device.dispatch.registration import declare

Sizes = Sequence[int]

MODES = {
    "upsample_nearest1d": "nearest",
    "upsample_nearest2d": "nearest",
    "upsample_nearest3d": "nearest",
    "_upsample_nearest_exact1d": "nearest-exact",
    "_upsample_nearest_exact2d": "nearest-exact",
    "_upsample_nearest_exact3d": "nearest-exact",
    "upsample_linear1d": "linear",
    "upsample_bilinear2d": "bilinear",
    "upsample_bicubic2d": "bicubic",
    "upsample_trilinear3d": "trilinear",
}
"""ATen's interpolations, and dl4all's names of their modes."""


def interpolation(mode: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function of a mode, and its gradient."""
    has_corners = not mode.startswith("nearest")

    def forward(input: Any, output_size: Sizes, *options: Any) -> Any:
        align_corners = options[0] if has_corners else False
        scales = options[1:] if has_corners else options
        if min(output_size) < 1 or 0 in input.shape or len(input.shape) != len(output_size) + 2:
            raise ShapeError(f"[interpolate] {tuple(output_size)} for an input of shape {input.shape}")
        given = [scale if scale is not None and scale > 0 else None for scale in scales]
        given += [None] * (len(output_size) - len(given))
        return resized(input, tuple(output_size), given, mode, align_corners)

    def backward(grad: Any, output_size: Sizes, input_size: Sizes, *options: Any) -> Any:
        base = expanded_number(grad, 0, tuple(input_size))
        return autograd.vjp(lambda x: forward(x, output_size, *options), base, grad)[1]

    return forward, backward


for _name, _mode in MODES.items():
    _forward, _backward = interpolation(_mode)
    declare(_name, _forward)
    declare(f"{_name}_backward", _backward)


# Grids


def affine_grid(theta: Any, size: Sizes, align_corners: bool) -> Any:
    return ops.affine_grid(theta, tuple(size), align_corners)


def grid_sampler(input: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
    return ops.grid_sample(input, grid, SAMPLING_MODES[mode], PADDING_MODES[padding], align_corners)


def grid_sampler_backward(
    grad: Any,
    input: Any,
    grid: Any,
    mode: int,
    padding: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Any, Any]:
    def sample(x: Any, coordinates: Any) -> Any:
        return grid_sampler(x, coordinates, mode, padding, align_corners)

    gradients = autograd.vjp(sample, [input, grid], grad)[1]
    of_input, of_grid = (one if wanted else None for one, wanted in zip(gradients, output_mask, strict=True))
    return of_input, of_grid


GRIDS: dict[str, Callable[..., Any]] = {
    "affine_grid_generator": affine_grid,
    "grid_sampler_2d": grid_sampler,
    "grid_sampler_2d_backward": grid_sampler_backward,
    "grid_sampler_3d": grid_sampler,
    "grid_sampler_3d_backward": grid_sampler_backward,
}

for _name, _function in GRIDS.items():
    declare(_name, _function)
