"""The dtype of new tensors of floats where none is named, and names of dtypes that tensors cannot have."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import DTypeError
from dl4all.ops.core.tensor_base import DTYPES


class MissingDType:
    """The name of a dtype of PyTorch that tensors here cannot have: scripts may list it, but not use it.

    >>> import dl4all as dl
    >>> dl.bfloat16
    bfloat16
    """

    def __init__(self, name: str, itemsize: int, advice: str) -> None:
        self.name = name
        self.itemsize = itemsize
        self.advice = advice

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str | tuple[Any, ...]:
        return MissingDType, (self.name, self.itemsize, self.advice)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MissingDType) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def error(self, op: str) -> DTypeError:
        """The error of whatever it is given to."""
        return DTypeError(f"[{op}] dl4all has no tensors of {self.name}; {self.advice}")


BFLOAT16 = MissingDType("bfloat16", 2, 'use float32, or float16, which has the same size ("dl.float16")')


def checked_dtype(op: str, dtype: Any) -> np.dtype[Any]:
    """The dtype that an argument `dtype` names.

    Raises:
        DTypeError: it is not a dtype of tensors.
    """
    if isinstance(dtype, MissingDType):
        raise dtype.error(op)
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        pass
    else:
        if result in DTYPES:
            return result
    raise DTypeError(f"[{op}] {dtype!r} is no dtype of tensors; use one of {', '.join(map(str, DTYPES))}")


class _Default:
    """The dtype that ``dl.set_default_dtype`` sets."""

    def __init__(self) -> None:
        self.dtype: np.dtype[Any] = np.dtype(np.float32)


default = _Default()
