"""LeNet-5 (LeCun et al., 1998), with ReLU and max pooling."""

from __future__ import annotations

from dl4all import nn
from dl4all.models.init import Layer
from dl4all.tensor.tensor import Tensor


class LeNet(nn.Module):
    """Two convolutions, each followed by max pooling, and three linear layers.

    Parameters are named ``conv1``, ``conv2``, ``fc1``, ``fc2``, ``fc3``.

    Args:
        num_classes: size of the output.
        in_channels: how many channels the images have.
        base_channels: channels of the first convolution, 6 as published; the other layers grow with it.

    Shape:
        (N, in_channels, 28, 28) to logits (N, num_classes).

    Example:
        >>> import dl4all as dl
        >>> dl.models.LeNet()(dl.rand(2, 1, 28, 28, device="cpu")).shape
        (2, 10)
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 1, base_channels: int = 6) -> None:
        super().__init__()
        second = base_channels * 8 // 3
        self.conv1 = nn.Conv2d(in_channels, base_channels, 5, padding=2)
        self.conv2 = nn.Conv2d(base_channels, second, 5)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()
        self.fc1 = nn.Linear(second * 25, base_channels * 20)
        self.fc2 = nn.Linear(base_channels * 20, base_channels * 14)
        self.fc3 = nn.Linear(base_channels * 14, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x))).flatten(1)
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))  # type: ignore[no-any-return]

    def layers(self) -> list[tuple[str, Layer]]:
        """The modules that ``forward`` calls in turn, by name: a pipeline can be cut between them."""
        return [
            ("conv1", self.conv1),
            ("relu1", self.relu),
            ("pool1", self.pool),
            ("conv2", self.conv2),
            ("relu2", self.relu),
            ("pool2", self.pool),
            ("flatten", nn.Flatten()),
            ("fc1", self.fc1),
            ("relu3", self.relu),
            ("fc2", self.fc2),
            ("relu4", self.relu),
            ("fc3", self.fc3),
        ]
