"""Normalisation layers."""

from __future__ import annotations

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.nn import functional, init
from dl4all.nn.module import Module, Parameter
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor


class BatchNorm2d(Module):
    """Batch normalisation of images, in inference: each channel by its running statistics.

    Normalising by the batch's own statistics, as training does, is not there yet and is refused;
    call ``eval()`` on the network first.

    Args:
        num_features: channels.
        eps: keeps the square root away from 0.

    Shape:
        (N, num_features, H, W), the same out.
    """

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.num_features, self.eps = num_features, eps
        self.weight = Parameter(init.ones((num_features,)))
        self.bias = Parameter(init.zeros((num_features,)))
        self.register_buffer("running_mean", init.zeros((num_features,)))
        self.register_buffer("running_var", init.ones((num_features,)))
        self.register_buffer("num_batches_tracked", from_numpy(np.zeros((), np.int64)))

    running_mean: Tensor
    running_var: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise ArgumentError(
                "[BatchNorm2d] only inference is supported so far; call .eval() on the network"
            )
        return functional.batch_norm(  # type: ignore[no-any-return]
            x, self.running_mean, self.running_var, self.weight, self.bias, self.eps
        )

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}"
