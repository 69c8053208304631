"""Metrics: functions of outputs and targets, averaged over samples.

They are computed where the outputs are, and their results stay there: nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops import where
from dl4all.tensor.ranges import arange
from dl4all.tensor.tensor import Tensor

Metric: TypeAlias = Callable[[Any, Any], float | Tensor]


@no_grad()
def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of samples whose largest output is that of the target class.

    Args:
        outputs: scores of shape (N, C), or (N, C, ...) with a class for each position.
        targets: class indices of shape (N,), or (N, ...); an index that is no class is never right.

    Returns:
        A float32 of shape (), on the device of the outputs; nan without samples.

    Raises:
        ShapeError: the shapes do not fit each other.

    Example:
        >>> import dl4all as dl
        >>> scores = dl.tensor([[0.1, 0.9], [0.8, 0.2]], device="cpu")
        >>> dl.training.accuracy(scores, dl.tensor([1, 1], device="cpu")).item()
        0.5
    """
    fits = outputs.ndim >= 2 and targets.shape == outputs.shape[:1] + outputs.shape[2:]
    classes = _checked("accuracy", outputs, targets, fits)
    return _share(outputs.argmax(1) == classes)


@no_grad()
def top5_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of samples whose target class is among the five largest outputs.

    Of equal outputs, the one with the lower index counts as the larger.

    Args:
        outputs: scores of shape (N, C).
        targets: class indices of shape (N,); an index that is no class is never right.

    Returns:
        A float32 of shape (), on the device of the outputs; nan without samples.

    Raises:
        ShapeError: the shapes do not fit each other.

    Example:
        >>> import dl4all as dl
        >>> scores = dl.tensor([[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]] * 2, device="cpu")
        >>> dl.training.top5_accuracy(scores, dl.tensor([4, 5], device="cpu")).item()
        0.5
    """
    fits = outputs.ndim == 2 and targets.shape == outputs.shape[:1]
    classes = _checked("top5_accuracy", outputs, targets, fits).unsqueeze(1)
    places = arange(outputs.shape[1], device=outputs.device)
    is_target = places == classes
    score = where(is_target, outputs, 0.0).sum(1, keepdim=True)
    # Not `outputs > score`, so that nan is never right.
    before = ~(outputs <= score) | ((outputs == score) & (places < classes))
    return _share((before.sum(1) < 5) & (is_target.sum(1) > 0))


@no_grad()
def binary_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of elements whose output is above 0 if the target is 1, and not if the target is 0.

    Args:
        outputs: logits, as for :class:`dl4all.nn.BCEWithLogitsLoss`.
        targets: zeros and ones of the same shape.

    Returns:
        A float32 of shape (), on the device of the outputs; nan without elements.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> import dl4all as dl
        >>> logits = dl.tensor([[1.5], [-0.5], [0.1]], device="cpu")
        >>> dl.training.binary_accuracy(logits, dl.tensor([[1.0], [0.0], [1.0]], device="cpu")).item()
        1.0
    """
    classes = _checked("binary_accuracy", outputs, targets, outputs.shape == targets.shape)
    return _share((outputs > 0) == (classes > 0.5))


def _checked(name: str, outputs: Tensor, targets: Tensor, fits: bool) -> Tensor:
    """The targets, on the device of the outputs.

    Raises:
        ShapeError: the shapes do not fit each other.
    """
    if not fits:
        raise ShapeError(f"[{name}] outputs of shape {outputs.shape} do not fit targets of {targets.shape}")
    return targets.to(outputs.device)


def _share(hits: Tensor) -> Tensor:
    """The share of true elements."""
    return hits.float().mean()


METRICS: dict[str, Metric] = {
    function.__name__: function for function in (accuracy, top5_accuracy, binary_accuracy)
}


def known_metrics(names: Sequence[str]) -> dict[str, Metric]:
    """The metrics of these names.

    Raises:
        ArgumentError: one is unknown.
    """
    if unknown := [name for name in names if name not in METRICS]:
        raise ArgumentError(f"[Trainer] unknown metric {unknown[0]!r}; known are {', '.join(METRICS)}")
    return {name: METRICS[name] for name in names}
