"""Choosing elements on the host without a branch for each, which costs more than the arithmetic around it."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt


def kept(values: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values where the mask is true, 0 elsewhere, whatever they are there.

    >>> import numpy as np
    >>> kept(np.array([1.0, np.nan, 3.0]), np.array([True, False, True])).tolist()
    [1.0, 0.0, 3.0]
    """
    bits = f"u{values.dtype.itemsize}"
    found: npt.NDArray[Any] = (values.view(bits) & -mask.astype(bits)).view(values.dtype)
    return found
