"""Numbers that are hard to sort: with ties, nan, infinities, zeros of both signs and the ends of a dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.dtypes import BFLOAT16, finfo, kind_of

NDArray = npt.NDArray[Any]


def sortable(shape: tuple[int, ...], dtype: npt.DTypeLike, seed: int = 0) -> NDArray:
    """Elements of a dtype, about half of which come several times."""
    rng = np.random.default_rng(seed)
    kind: np.dtype[Any] = np.dtype(dtype)
    if kind_of(kind) == "b":
        return rng.random(shape) < 0.5
    if kind_of(kind) in "iu":
        limits = np.iinfo(kind)
        wide = rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
        return np.where(rng.random(shape) < 0.5, wide, rng.integers(0, 9, shape, kind)).astype(kind)
    x = np.where(rng.random(shape) < 0.5, rng.standard_normal(shape), rng.integers(-9, 9, shape)).astype(kind)
    for special in (np.nan, np.inf, -np.inf, 0.0, -0.0, finfo(kind).smallest_subnormal):
        x[rng.random(shape) < 0.04] = special
    return x


def comparable(x: NDArray) -> NDArray:
    """Elements that NumPy orders and compares as numbers: nan of bfloat16 is like no other to it."""
    return x.astype(np.float32) if x.dtype == BFLOAT16 else x


def stable_order(x: NDArray, *, descending: bool) -> NDArray:
    """NumPy's order along the last axis, equal elements in their own order in either direction."""
    x = comparable(x)
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")
    flipped = np.argsort(np.flip(x, -1), axis=-1, kind="stable")
    return x.shape[-1] - 1 - np.flip(flipped, -1)
