"""Multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dl4all import nn
from dl4all.errors import ArgumentError
from dl4all.models.init import Layer
from dl4all.tensor.tensor import Tensor


class MLP(nn.Sequential):
    """A multi-layer perceptron: linear layers with rectifiers, and dropout, between them.

    The state dict is that of torchvision's ``ops.MLP``: ``0.weight``, ``0.bias``, ``3.weight``, ...

    Args:
        in_features: how many numbers a sample has; samples of several axes are flattened.
        hidden: the sizes of the hidden layers.
        num_classes: size of the output.
        dropout: the dropout probability of each hidden layer in training.

    Shape:
        (N, ...) with `in_features` numbers a sample, to (N, num_classes).

    Raises:
        ArgumentError: a size is less than 1, or `dropout` is no probability.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.MLP(64, [32, 16], 10)
        >>> net(dl.rand(5, 1, 8, 8, device="cpu")).shape
        (5, 10)
        >>> list(net.state_dict())
        ['0.weight', '0.bias', '3.weight', '3.bias', '6.weight', '6.bias']
    """

    def __init__(
        self, in_features: int, hidden: Sequence[int] = (128,), num_classes: int = 10, dropout: float = 0.0
    ) -> None:
        sizes = [in_features, *hidden, num_classes]
        if min(sizes) < 1:
            raise ArgumentError(f"[MLP] sizes must be at least 1, got {sizes}")
        layers: list[nn.Module] = []
        for size, next_size in pairwise(sizes[:-1]):
            layers += [nn.Linear(size, next_size), nn.ReLU(), nn.Dropout(dropout)]
        super().__init__(*layers, nn.Linear(sizes[-2], num_classes))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(_flattened(x))
        return y

    def layers(self) -> list[tuple[str, Layer]]:
        """The modules that ``forward`` calls in turn, by name: a pipeline can be cut between them."""
        return [("flatten", _flattened), *self.named_children()]


def _flattened(x: Tensor) -> Tensor:
    return x.flatten(1) if len(x.shape) > 2 else x
