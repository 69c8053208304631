"""Trainer: a ready training loop, with metrics, history and TOML configurations."""

from __future__ import annotations

from dl4all.training.config import Config, read_config
from dl4all.training.history import History
from dl4all.training.metrics import accuracy, binary_accuracy, top5_accuracy
from dl4all.training.recipe import Prepared, prepare
from dl4all.training.tensorboard import TensorBoard
from dl4all.training.trainer import Trainer

__all__ = [
    "Config",
    "History",
    "Prepared",
    "TensorBoard",
    "Trainer",
    "accuracy",
    "binary_accuracy",
    "prepare",
    "read_config",
    "top5_accuracy",
]
