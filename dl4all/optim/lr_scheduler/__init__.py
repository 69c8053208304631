"""Learning rate schedulers, with the values of PyTorch's."""

from __future__ import annotations

from dl4all.optim.lr_scheduler.base import LRScheduler
from dl4all.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from dl4all.optim.lr_scheduler.cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from dl4all.optim.lr_scheduler.cyclic import CyclicLR
from dl4all.optim.lr_scheduler.factor import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from dl4all.optim.lr_scheduler.one_cycle import OneCycleLR
from dl4all.optim.lr_scheduler.plateau import ReduceLROnPlateau

_LRScheduler = LRScheduler  # as older scripts call it

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
