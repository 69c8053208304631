"""A small network and its data, whose losses on dlall and on the CPU the frameworks' tests compare."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

ROWS, BATCH = 48, 8
CLOSE = 2e-5
"""Of losses after some 20 steps of float32, on two devices."""


def network() -> Any:
    """A network with normalization, whose running statistics are buffers."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 3))


def data() -> torch.utils.data.TensorDataset:
    """Rows and classes on the CPU, where a dataset has them."""
    torch.manual_seed(4)
    x = torch.randn(ROWS, 5)
    return torch.utils.data.TensorDataset(x, (x @ torch.randn(5, 3)).argmax(1))


def batches() -> Any:
    return torch.utils.data.DataLoader(data(), batch_size=BATCH)
