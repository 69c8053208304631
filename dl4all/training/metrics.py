"""Metrics: functions of outputs and targets, averaged over samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from dl4all.errors import ShapeError
from dl4all.tensor.tensor import Tensor

Metric: TypeAlias = Callable[[Any, Any], float]


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of samples whose largest output is that of the target class.

    Args:
        outputs: scores of shape (N, C), or (N, C, ...) with a class for each position.
        targets: class indices of shape (N,), or (N, ...).

    Raises:
        ShapeError: the shapes do not fit each other.

    Example:
        >>> import dl4all as dl
        >>> scores = dl.tensor([[0.1, 0.9], [0.8, 0.2]], device="cpu")
        >>> dl.training.accuracy(scores, dl.tensor([1, 1], device="cpu"))
        0.5
    """
    scores, classes = outputs.detach().numpy(), targets.detach().numpy()
    if scores.ndim < 2 or classes.shape != scores.shape[:1] + scores.shape[2:]:
        raise ShapeError(f"[accuracy] outputs of shape {scores.shape} do not fit targets of {classes.shape}")
    return float(np.mean(scores.argmax(1) == classes)) if classes.size else float("nan")


def top5_accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of samples whose target class is among the five largest outputs.

    Args:
        outputs: scores of shape (N, C).
        targets: class indices of shape (N,).

    Raises:
        ShapeError: the shapes do not fit each other.
    """
    scores, classes = outputs.detach().numpy(), targets.detach().numpy()
    if scores.ndim != 2 or classes.shape != scores.shape[:1]:
        raise ShapeError(
            f"[top5_accuracy] outputs of shape {scores.shape} do not fit targets of {classes.shape}"
        )
    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    return float(np.mean((best == classes[:, None]).any(1))) if classes.size else float("nan")


def binary_accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of elements whose output is above 0 if the target is 1, and not if the target is 0.

    Args:
        outputs: logits, as for :class:`dl4all.nn.BCEWithLogitsLoss`.
        targets: zeros and ones of the same shape.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> import dl4all as dl
        >>> logits = dl.tensor([[1.5], [-0.5], [0.1]], device="cpu")
        >>> dl.training.binary_accuracy(logits, dl.tensor([[1.0], [0.0], [1.0]], device="cpu"))
        1.0
    """
    scores, classes = outputs.detach().numpy(), targets.detach().numpy()
    if scores.shape != classes.shape:
        raise ShapeError(
            f"[binary_accuracy] outputs of shape {scores.shape} do not fit targets of {classes.shape}"
        )
    return float(np.mean((scores > 0) == (classes > 0.5))) if classes.size else float("nan")


METRICS: dict[str, Metric] = {
    function.__name__: function for function in (accuracy, top5_accuracy, binary_accuracy)
}
