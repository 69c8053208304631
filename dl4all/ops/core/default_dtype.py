"""The dtype of new tensors of floats where none is named."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core.dtypes import FLOAT32


class _Default:
    """The dtype that ``dl.set_default_dtype`` sets."""

    def __init__(self) -> None:
        self.dtype: np.dtype[Any] = FLOAT32


default = _Default()
