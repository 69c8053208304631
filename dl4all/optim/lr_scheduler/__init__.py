"""Schedules of learning rates, with the values of PyTorch's."""

from __future__ import annotations

from dl4all.optim.lr_scheduler.base import LRScheduler, SequentialLR
from dl4all.optim.lr_scheduler.cyclic import ChainedScheduler, CyclicLR
from dl4all.optim.lr_scheduler.one_cycle import OneCycleLR
from dl4all.optim.lr_scheduler.plateau import ReduceLROnPlateau
from dl4all.optim.lr_scheduler.step import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

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
