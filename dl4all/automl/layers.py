"""Layers of found networks that :mod:`dl4all.nn` does not have."""

from __future__ import annotations

from dl4all import nn
from dl4all.ops.indexing.concatenation import cat
from dl4all.tensor.random import randn
from dl4all.tensor.tensor import Tensor


class Residual(nn.Sequential):
    """Layers one after the other, whose input is added to their output.

    Example:
        >>> import dl4all as dl
        >>> dl.automl.Residual(dl.nn.Linear(4, 4), dl.nn.ReLU())(dl.rand(2, 4)).shape
        (2, 4)
    """

    def forward(self, x: Tensor) -> Tensor:
        """The sum, of the input's shape."""
        y: Tensor = super().forward(x)
        return x + y


class LastState(nn.Module):
    """The last state of a recurrent layer that reads series (N, C, steps).

    Args:
        layer: an LSTM, a GRU or an RNN with ``batch_first=True``.

    Example:
        >>> import dl4all as dl
        >>> dl.automl.LastState(dl.nn.GRU(3, 8, batch_first=True))(dl.rand(2, 3, 20)).shape
        (2, 8)
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """States (N, hidden)."""
        output: Tensor = self.layer(x.transpose(1, 2))[0]
        return output[:, -1]


class PeriodicEmbedding(nn.Module):
    """An embedding of each number: sines and cosines of learned frequencies, a linear layer, and ReLU.

    Args:
        inputs: numbers of a sample.
        frequencies: for each of them.
        width: numbers of an embedding.
        scale: deviation of the frequencies at first.

    Source: Y. Gorishniy et al., On Embeddings for Numerical Features in Tabular Deep Learning, 2022.

    Example:
        >>> import dl4all as dl
        >>> dl.automl.PeriodicEmbedding(5, width=4)(dl.rand(2, 5)).shape
        (2, 20)
    """

    def __init__(self, inputs: int, frequencies: int = 16, width: int = 8, scale: float = 0.1) -> None:
        super().__init__()
        self.inputs, self.width, self.scale = inputs, width, scale
        self.frequencies = nn.Parameter(randn(inputs, frequencies) * (scale * 6.283185307179586))
        self.linear = nn.Linear(2 * frequencies, width)

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings (N, inputs * width), of numbers (N, inputs)."""
        phases = x.unsqueeze(2) * self.frequencies
        embedded: Tensor = self.linear(cat([phases.sin(), phases.cos()], 2))
        return embedded.relu().flatten(1)

    def extra_repr(self) -> str:
        """The arguments, as they are given."""
        frequencies = self.frequencies.shape[1]
        return f"{self.inputs}, frequencies={frequencies}, width={self.width}, scale={self.scale:.6g}"
