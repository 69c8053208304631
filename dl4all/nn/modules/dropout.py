"""Dropout layers."""

from __future__ import annotations

from dl4all.errors import ArgumentError
from dl4all.nn import functional
from dl4all.nn.module import Module
from dl4all.tensor.tensor import Tensor


class Dropout(Module):
    """Set random elements to zero in training, and divide the others by ``1 - p``.

    Args:
        p: the probability of a zero.
        inplace: write the result into the input.

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

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout2d(Dropout):
    """Set random channels to zero in training, and divide the others by ``1 - p``.

    Args:
        p: the probability that a channel becomes zero.
        inplace: write the result into the input.

    Shape:
        (N, C, ...), or (C, H, W).

    Raises:
        ArgumentError: `p` is no probability.

    Example:
        >>> import dl4all as dl
        >>> x = dl.rand(2, 4, 12, 10)
        >>> dl.nn.Dropout2d(0.5).eval()(x).shape == x.shape
        True
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout2d(input, self.p, self.training, self.inplace)


class Dropout1d(Dropout):
    """:func:`~dl4all.nn.functional.dropout1d` as a layer: set random channels to zero in training.

    Example:
        >>> import dl4all as dl
        >>> x = dl.rand(2, 4, 12)
        >>> dl.nn.Dropout1d(0.5).eval()(x).shape == x.shape
        True
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout1d(input, self.p, self.training, self.inplace)


class Dropout3d(Dropout):
    """:func:`~dl4all.nn.functional.dropout3d` as a layer: set random channels to zero in training.

    Example:
        >>> import dl4all as dl
        >>> x = dl.rand(1, 4, 6, 8, 8)
        >>> dl.nn.Dropout3d(0.5).eval()(x).shape == x.shape
        True
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(Dropout):
    """:func:`~dl4all.nn.functional.alpha_dropout` as a layer: dropout that keeps mean and variance.

    Example:
        >>> import dl4all as dl
        >>> x = dl.rand(2, 3)
        >>> dl.nn.AlphaDropout(0.5).eval()(x).tolist() == x.tolist()
        True
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(Dropout):
    """:func:`~dl4all.nn.functional.feature_alpha_dropout` as a layer: alpha dropout of whole channels.

    Example:
        >>> import dl4all as dl
        >>> x = dl.rand(2, 3, 4)
        >>> dl.nn.FeatureAlphaDropout(0.5).eval()(x).tolist() == x.tolist()
        True
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.feature_alpha_dropout(input, self.p, self.training, self.inplace)
