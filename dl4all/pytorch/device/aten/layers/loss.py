"""Losses and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all import ops
from dl4all.autograd.functional import vjp
from dl4all.functions.host import to_device_of
from dl4all.ops.loss.classification import class_indices, three_axes, total_weight
from dl4all.ops.loss.reduction import reduced
from dl4all.pytorch.device.dispatch.registration import declare
from dl4all.pytorch.device.storage.layout import broadcast_shape
from dl4all.pytorch.device.storage.memory import NotNative
from dl4all.tensor.tensor import Tensor

Optional = Tensor | None

REDUCTIONS = ("none", "mean", "sum")
"""The names of PyTorch's numbers."""

MEAN = 1

# Of single elements


def _times(x: Any, factor: Any) -> Any:
    return x if factor is None else ops.mul(x, factor)


def _share(grad: Any, reduction: int, *operands: Any) -> Any:
    """The gradient of each element's loss."""
    if reduction != MEAN:
        return grad
    count = math.prod(broadcast_shape([x.shape for x in operands]))
    return ops.mul(grad, 1 / count) if count else grad


def mse_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Any:
    return reduced(ops.squared_error(x, target), REDUCTIONS[reduction])


def mse_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int) -> Any:
    return ops.squared_error_backward(_share(grad, reduction, x, target), x, target)


def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int = MEAN, beta: float = 1.0) -> Any:
    losses = ops.smooth_error(x, target, beta=beta) if beta else ops.abs(ops.sub(x, target))
    return reduced(losses, REDUCTIONS[reduction])


def smooth_l1_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float) -> Any:
    share = _share(grad, reduction, x, target)
    if not beta:
        return ops.mul(share, ops.sign(ops.sub(x, target)))
    return ops.smooth_error_backward(share, x, target, beta=beta)


def huber_loss(x: Tensor, target: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Any:
    _check_delta(delta)
    losses = ops.mul(ops.smooth_error(x, target, beta=delta), delta)
    return reduced(losses, REDUCTIONS[reduction])


def huber_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int, delta: float) -> Any:
    _check_delta(delta)
    share = ops.mul(_share(grad, reduction, x, target), delta)
    return ops.smooth_error_backward(share, x, target, beta=delta)


def _check_delta(delta: float) -> None:
    if delta <= 0:
        raise NotNative("a delta that is not positive")


def binary_cross_entropy(x: Tensor, target: Tensor, weight: Optional = None, reduction: int = MEAN) -> Any:
    _check_same(x, target)
    return reduced(_times(ops.binary_error(x, target), weight), REDUCTIONS[reduction])


def binary_cross_entropy_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Optional = None, reduction: int = MEAN
) -> Any:
    share = _share(grad, reduction, x)
    return _times(ops.binary_error_backward(share, x, target), weight)


def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Optional = None,
    pos_weight: Optional = None,
    reduction: int = MEAN,
) -> Any:
    _check_same(x, target)
    if pos_weight is None:
        losses = ops.logistic_error(x, target)
    else:
        negative, positive = ops.logistic_error(x, 0.0), ops.logistic_error(x, 1.0)
        losses = ops.add(ops.mul(1 - target, negative), ops.mul(ops.mul(target, pos_weight), positive))
    return reduced(_times(losses, weight), REDUCTIONS[reduction])


def _check_same(x: Tensor, target: Tensor) -> None:
    if x.shape != target.shape or x.dtype != target.dtype:
        raise NotNative(f"a target of {target.dtype} {target.shape} for {x.dtype} {x.shape}")


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "binary_cross_entropy": binary_cross_entropy,
    "binary_cross_entropy_backward": binary_cross_entropy_backward,
    "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    "huber_loss": huber_loss,
    "huber_loss_backward": huber_loss_backward,
    "mse_loss": mse_loss,
    "mse_loss_backward": mse_loss_backward,
    "smooth_l1_loss": smooth_l1_loss,
    "smooth_l1_loss_backward": smooth_l1_loss_backward,
}

# Of classes


def _rows(x: Tensor, target: Tensor, ignore_index: int) -> tuple[Any, Any]:
    """The scores as (N, C, inner), and the class of each row."""
    axis = 1 if len(x.shape) > 1 else 0
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    if not x.shape:
        raise NotNative("scores without classes")
    indices = class_indices("nll_loss", target, shape, x, x.shape[axis], ignore_index)
    return ops.reshape(x, *three_axes(x.shape)), indices


def nll_loss(
    x: Tensor, target: Tensor, weight: Optional, reduction: int, ignore_index: int
) -> tuple[Any, Any]:
    """The loss, and the sum of the weights of all targets, by which a mean is divided."""
    rows, classes = _rows(x, target, ignore_index)
    losses = ops.nll_each(rows, weight, target=classes)
    if REDUCTIONS[reduction] == "none":
        return ops.reshape(losses, target.shape), _number(x, 0)
    total = total_weight(classes, weight, x)
    total = _number(x, total) if isinstance(total, int) else ops.cast(total, x.dtype.name)
    loss = ops.sum(losses)
    return (ops.true_divide(loss, total) if reduction == MEAN else loss), total


def nll_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Optional,
    reduction: int,
    ignore_index: int,
    total: Tensor,
) -> Any:
    rows, classes = _rows(x, target, ignore_index)
    if reduction == MEAN:
        grad = ops.true_divide(grad, total)
    each = (rows.shape[0], rows.shape[2])
    grads = ops.reshape(grad, *each) if grad.numel() == math.prod(each) else ops.expand(grad, *each)
    gradient = ops.nll_backward(grads, weight, target=classes, classes=rows.shape[1])
    return ops.reshape(gradient, x.shape)


def _number(like: Tensor, value: float) -> Any:
    return to_device_of(like, np.asarray(value, like.dtype))


def multi_margin_loss(
    x: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1,
    weight: Optional = None,
    reduction: int = MEAN,
) -> Any:
    scores = x if x.shape else ops.reshape(x, 1)
    classes = ops.reshape(target, ()) if len(scores.shape) == 1 and target.numel() == 1 else target
    loss = ops.multi_margin_loss(scores, classes, p, margin, weight, reduction=REDUCTIONS[reduction])
    return ops.reshape(loss, target.shape) if REDUCTIONS[reduction] == "none" else loss


def multi_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, *arguments: Any, **keywords: Any
) -> Any:
    return vjp(lambda scores: multi_margin_loss(scores, target, *arguments, **keywords), x, grad)[1]


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Any, Any]:
    """The loss, and which classes are labels."""
    loss = _multilabel_margin_loss(x, target, reduction)
    labels = np.atleast_2d(target.on_host())
    is_label = np.zeros(labels.shape, x.dtype)
    rows, columns = np.nonzero(np.logical_and.accumulate(labels != -1, 1))
    is_label[rows, labels[rows, columns]] = 1
    return loss, to_device_of(x, is_label.reshape(target.shape))


def multilabel_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Any:
    return vjp(lambda scores: _multilabel_margin_loss(scores, target, reduction), x, grad)[1]


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> Any:
    if not x.shape:
        x, target = ops.reshape(x, 1), ops.reshape(target, 1)
    return ops.multilabel_margin_loss(x, target, reduction=REDUCTIONS[reduction])


OF_CLASSES: dict[str, Callable[..., Any]] = {
    "multi_margin_loss": multi_margin_loss,
    "multi_margin_loss_backward": multi_margin_loss_backward,
    "multilabel_margin_loss_backward": multilabel_margin_loss_backward,
    "multilabel_margin_loss_forward": multilabel_margin_loss,
    "nll_loss2d_backward": nll_loss_backward,
    "nll_loss2d_forward": nll_loss,
    "nll_loss_backward": nll_loss_backward,
    "nll_loss_forward": nll_loss,
}

for _name, _function in {**ELEMENTWISE, **OF_CLASSES}.items():
    declare(_name, _function)
