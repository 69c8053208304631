"""Positional encodings of sequences: sinusoidal, learned and rotary."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dl4all import ops
from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import init
from dl4all.nn.module import Module, Parameter
from dl4all.ops.core.limits import check_shape, host_memory
from dl4all.ops.core.strides import sizes
from dl4all.tensor.creation import empty, from_numpy
from dl4all.tensor.tensor import Tensor


class _AddedEncoding(Module):
    """Adds a row of a table to each element of a sequence."""

    def __init__(self, d_model: int, max_len: int, dropout: float, batch_first: bool) -> None:
        super().__init__()
        if d_model < 1 or max_len < 1:
            raise ArgumentError(f"[{type(self).__name__}] cannot have {max_len} places of {d_model} features")
        check_shape(type(self).__name__, sizes(type(self).__name__, (max_len, d_model)))
        self.d_model, self.max_len = d_model, max_len
        self.dropout, self.batch_first = dropout, batch_first

    def _add(self, x: Tensor, table: Tensor) -> Tensor:
        axis = 1 if self.batch_first else 0
        if x.ndim != 3 or x.shape[-1] != self.d_model or x.shape[axis] > self.max_len:
            order = "(N, T, features)" if self.batch_first else "(T, N, features)"
            raise ShapeError(
                f"[{type(self).__name__}] expected shape {order} with {self.d_model} features and T up to "
                f"{self.max_len}, got {x.shape}"
            )
        rows = table[: x.shape[axis]]
        return ops.dropout(x + (rows if self.batch_first else rows.unsqueeze(1)), self.dropout, self.training)

    def extra_repr(self) -> str:
        return f"{self.d_model}, max_len={self.max_len}"


class SinusoidalPositionalEncoding(_AddedEncoding):
    """Adds sines and cosines of the position, of different wavelengths (Vaswani et al., arXiv:1706.03762).

    Args:
        d_model: features; even ones get sines, odd ones cosines.
        max_len: the length of the longest sequence.
        dropout: the probability with which an element of the result becomes zero in training.
        batch_first: whether inputs are (N, T, d_model) rather than (T, N, d_model).

    Shape:
        (T, N, d_model), the same out.

    Raises:
        ArgumentError: a size is not positive.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.SinusoidalPositionalEncoding(2)(dl.zeros(1, 1, 2, device="cpu")).tolist()
        [[[0.0, 1.0]]]
    """

    def __init__(
        self, d_model: int, max_len: int = 5000, dropout: float = 0.0, batch_first: bool = False
    ) -> None:
        super().__init__(d_model, max_len, dropout, batch_first)
        with host_memory("SinusoidalPositionalEncoding"):
            angles = np.arange(max_len)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
            table = np.zeros((max_len, d_model), np.float32)
        table[:, 0::2] = np.sin(angles)
        table[:, 1::2] = np.cos(angles[:, : d_model // 2])
        self.register_buffer("pe", from_numpy(table))

    pe: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self._add(x, self.pe)


class LearnedPositionalEncoding(_AddedEncoding):
    """Adds a learned vector for each position.

    Args:
        d_model, max_len, dropout, batch_first: as for :class:`SinusoidalPositionalEncoding`.

    Shape:
        (T, N, d_model), the same out; ``weight`` is (max_len, d_model).

    Raises:
        ArgumentError: a size is not positive.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.LearnedPositionalEncoding(8, 100, batch_first=True)(dl.rand(2, 7, 8)).shape
        (2, 7, 8)
    """

    def __init__(self, d_model: int, max_len: int, dropout: float = 0.0, batch_first: bool = False) -> None:
        super().__init__(d_model, max_len, dropout, batch_first)
        self.weight = Parameter(init.normal_(empty((max_len, d_model), device="cpu"), std=0.02))

    def forward(self, x: Tensor) -> Tensor:
        return self._add(x, self.weight)


class RotaryPositionalEncoding(Module):
    """Rotates pairs of features by angles that grow with the position (Su et al., arXiv:2104.09864).

    Feature i is paired with feature ``i + dim / 2``. If queries and keys are rotated, their
    scores depend only on the distance between their positions.

    Args:
        dim: how many features there are, an even number.
        base: the longest wavelength is 2 pi times this many positions.

    Shape:
        (..., T, dim), the same out.

    Raises:
        ArgumentError: `dim` is odd.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[1.0, 0.0], [1.0, 0.0]], device="cpu")
        >>> dl.nn.RotaryPositionalEncoding(2)(x).numpy().round(3).tolist()
        [[1.0, 0.0], [0.5400000214576721, 0.8410000205039978]]
    """

    def __init__(self, dim: int, base: float = 10000.0) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise ArgumentError(f"[RotaryPositionalEncoding] expected an even number of features, got {dim}")
        self.dim, self.base = dim, base

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """`x` rotated; its first element is at position `offset`."""
        if x.ndim < 2 or x.shape[-1] != self.dim:
            raise ShapeError(f"[RotaryPositionalEncoding] expected shape (..., T, {self.dim}), got {x.shape}")
        cosines, sines = (from_numpy(a.astype(x.dtype), x.device) for a in self._table(x.shape[-2], offset))
        half = self.dim // 2
        rotated = ops.cat([-x[..., half:], x[..., :half]], -1)
        return x * cosines + rotated * sines

    def _table(self, length: int, offset: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        rates = np.exp(-math.log(self.base) * np.arange(0, self.dim, 2) / self.dim)
        angles = np.tile((offset + np.arange(length))[:, None] * rates, 2)
        return np.cos(angles), np.sin(angles)

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base}"
