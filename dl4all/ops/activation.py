"""Activation functions."""

from __future__ import annotations

import numpy as np

from dl4all.ops.base import Array
from dl4all.ops.elementwise import elementwise


# max(x, 0.0) would turn nan into 0 on some drivers; a comparison with nan is false everywhere.
@elementwise(glsl="x < 0.0 ? 0.0 : x")
def relu(x: Array) -> Array:
    """Rectified linear unit: each element where it is positive, 0 elsewhere; nan stays nan.

    Example:
        >>> import dl4all as dl
        >>> dl.relu(dl.tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """
    return np.maximum(x, np.zeros((), x.dtype))
