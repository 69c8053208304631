"""What is measured beside the loss: functions of outputs and targets, averaged over samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.tensor.tensor import Tensor

Metric = Callable[[Any, Any], float]


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of samples whose largest output is at the target class.

    Args:
        outputs: scores of shape (N, C), or (N, C, ...) with a class for each place.
        targets: class indices of shape (N,), or (N, ...).

    Raises:
        ShapeError: the shapes do not fit each other.

    Example:
        >>> import dl4all as dl
        >>> scores = dl.tensor([[0.1, 0.9], [0.8, 0.2]], device="cpu")
        >>> dl.training.accuracy(scores, dl.tensor([1, 1], device="cpu"))
        0.5
    """
    scores, wanted = outputs.detach().numpy(), targets.detach().numpy()
    if scores.ndim < 2 or wanted.shape != scores.shape[:1] + scores.shape[2:]:
        raise ShapeError(f"[accuracy] outputs of shape {scores.shape} do not fit targets of {wanted.shape}")
    return float(np.mean(scores.argmax(1) == wanted)) if wanted.size else float("nan")


def top5_accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of samples whose target class is among the five largest outputs.

    Args:
        outputs: scores of shape (N, C).
        targets: class indices of shape (N,).

    Raises:
        ShapeError: the shapes do not fit each other.
    """
    scores, wanted = outputs.detach().numpy(), targets.detach().numpy()
    if scores.ndim != 2 or wanted.shape != scores.shape[:1]:
        raise ShapeError(
            f"[top5_accuracy] outputs of shape {scores.shape} do not fit targets of {wanted.shape}"
        )
    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    return float(np.mean((best == wanted[:, None]).any(1))) if wanted.size else float("nan")


def binary_accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of elements whose output is above 0 just where the target, 0 or 1, is 1.

    Args:
        outputs: logits, as for :class:`dl4all.nn.BCEWithLogitsLoss`.
        targets: of the same shape.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> import dl4all as dl
        >>> logits = dl.tensor([[1.5], [-0.5], [0.1]], device="cpu")
        >>> dl.training.binary_accuracy(logits, dl.tensor([[1.0], [0.0], [1.0]], device="cpu"))
        1.0
    """
    scores, wanted = outputs.detach().numpy(), targets.detach().numpy()
    if scores.shape != wanted.shape:
        raise ShapeError(
            f"[binary_accuracy] outputs of shape {scores.shape} do not fit targets of {wanted.shape}"
        )
    return float(np.mean((scores > 0) == (wanted > 0.5))) if wanted.size else float("nan")


METRICS: dict[str, Metric] = {
    function.__name__: function for function in (accuracy, top5_accuracy, binary_accuracy)
}
