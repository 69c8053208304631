"""Layers that forget at random in training."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.nn import functional
from dl4all.nn.module import Module
from dl4all.tensor.tensor import Tensor


class Dropout(Module):
    """In training, zeros in the place of random elements, the others divided by ``1 - p``.

    Args:
        p: the probability of a zero.
        inplace: is taken as PyTorch has it; the result has memory of its own all the same.

    Raises:
        ArgumentError: `p` is no probability.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Dropout(0.5).eval()(dl.ones(3)).tolist()
        [1.0, 1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"[{type(self).__name__}] expected a probability from 0 to 1, got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout2d(Dropout):
    """In training, zeros in the place of random channels, the others divided by ``1 - p``.

    Args:
        p: the probability that a channel becomes zero.
        inplace: is taken as PyTorch has it; the result has memory of its own all the same.

    Shape:
        (N, C, ...), or (C, H, W).

    Raises:
        ArgumentError: `p` is no probability.
    """

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout2d(x, self.p, self.training, self.inplace)


class Dropout1d(Dropout):
    """:func:`~dl4all.nn.functional.dropout1d` in training: zeros in the place of random channels."""

    def forward(self, x: Tensor) -> Any:
        return functional.dropout1d(x, self.p, self.training)


class Dropout3d(Dropout):
    """:func:`~dl4all.nn.functional.dropout3d` in training: zeros in the place of random channels."""

    def forward(self, x: Tensor) -> Any:
        return functional.dropout3d(x, self.p, self.training)


class AlphaDropout(Dropout):
    """:func:`~dl4all.nn.functional.alpha_dropout` in training: mean and variance stay."""

    def forward(self, x: Tensor) -> Any:
        return functional.alpha_dropout(x, self.p, self.training)


class FeatureAlphaDropout(Dropout):
    """:func:`~dl4all.nn.functional.feature_alpha_dropout` in training, of whole channels."""

    def forward(self, x: Tensor) -> Any:
        return functional.feature_alpha_dropout(x, self.p, self.training)
