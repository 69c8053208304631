"""Methods that divide by the root of a mean or sum of squares: RMSprop, Adagrad, Adadelta."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.optim.optimizer import Constants, Kernels, NDArray, Optimizer, Params, at_least_0, below_1

RMSPROP = {
    (centered, momentum): Kernels("rmsprop", 1 + centered + momentum, CENTERED=centered, MOMENTUM=momentum)
    for centered in (0, 1)
    for momentum in (0, 1)
}
ADAGRAD = Kernels("adagrad", 1)
ADADELTA = Kernels("adadelta", 2)


class RMSprop(Optimizer):
    """Gradient descent, each element divided by the root of its mean square.

    Hinton, lecture 6 of "Neural Networks for Machine Learning"; with `centered` by the deviation (Graves,
    arXiv:1308.0850).

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        alpha: what is left of the mean with each step.
        eps: is added to the root.
        weight_decay: times the parameter is added to the gradient.
        momentum: what is left of the sum of changes with each step.
        centered: subtract the squared mean.
        maximize: climb instead.

    Raises:
        ArgumentError: an option is negative.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0]).requires_grad_()
        >>> optimizer = dl.optim.RMSprop([w], lr=0.25, alpha=0.75)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.5]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        at_least_0("RMSprop", group, "lr", "alpha", "eps", "weight_decay", "momentum")

    def _parts(self, group: dict[str, Any]) -> tuple[str, ...]:
        centered = ("grad_avg",) if group["centered"] else ()
        return ("square_avg", *centered, *(("momentum_buffer",) if group["momentum"] else ()))

    def _constants(self, group: dict[str, Any], step: int) -> Constants:
        return (
            -1.0 if group["maximize"] else 1.0, float(group["weight_decay"]), float(group["lr"]),
            float(group["alpha"]), 1.0 - group["alpha"], float(group["eps"]), float(group["momentum"]),
        )  # fmt: skip

    def _kernels(self, group: dict[str, Any]) -> Kernels:
        return RMSPROP[int(group["centered"]), int(group["momentum"] > 0)]

    def _update(self, group: dict[str, Any], p: NDArray, g: NDArray, parts: list[NDArray], *c: Any) -> None:
        sign, weight_decay, lr, alpha, fresh, eps, momentum = c
        g = sign * g
        if weight_decay:
            g += weight_decay * p
        square = parts[0]
        square *= alpha
        square += fresh * g * g
        if group["centered"]:
            mean = parts[1]
            mean += fresh * (g - mean)
            square = square - mean * mean
        change = g / (np.sqrt(square) + eps)
        if momentum:
            parts[-1] *= momentum
            parts[-1] += change
            change = parts[-1]
        p -= lr * change


class Adagrad(Optimizer):
    """Gradient descent, each element divided by the root of the sum of its squares.

    Duchi et al., JMLR 12 (2011).

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        lr_decay: how fast the learning rate falls with the steps.
        weight_decay: times the parameter is added to the gradient.
        initial_accumulator_value: what the sums start from.
        eps: is added to the root.
        maximize: climb instead.

    Raises:
        ArgumentError: an option is negative.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0]).requires_grad_()
        >>> optimizer = dl.optim.Adagrad([w], lr=0.25)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.75]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        at_least_0("Adagrad", group, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def _parts(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("sum",)

    def _start(self, group: dict[str, Any]) -> float:
        return float(group["initial_accumulator_value"])

    def _constants(self, group: dict[str, Any], step: int) -> Constants:
        lr = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        return -1.0 if group["maximize"] else 1.0, float(group["weight_decay"]), lr, float(group["eps"])

    def _kernels(self, group: dict[str, Any]) -> Kernels:
        return ADAGRAD

    def _update(self, group: dict[str, Any], p: NDArray, g: NDArray, parts: list[NDArray], *c: Any) -> None:
        sign, weight_decay, lr, eps = c
        g = sign * g
        if weight_decay:
            g += weight_decay * p
        parts[0] += g * g
        p -= lr * (g / (np.sqrt(parts[0]) + eps))


class Adadelta(Optimizer):
    """Gradient descent, scaled by the root mean square of the changes over that of the gradients.

    Zeiler, arXiv:1212.5701.

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        rho: what is left of the two means with each step.
        eps: is added to both.
        weight_decay: times the parameter is added to the gradient.
        maximize: climb instead.

    Raises:
        ArgumentError: an option is out of its range.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        )

    def _check(self, group: dict[str, Any]) -> None:
        at_least_0("Adadelta", group, "lr", "eps", "weight_decay")
        below_1("Adadelta", "rho", group["rho"])

    def _parts(self, group: dict[str, Any]) -> tuple[str, ...]:
        return "square_avg", "acc_delta"

    def _constants(self, group: dict[str, Any], step: int) -> Constants:
        return (
            -1.0 if group["maximize"] else 1.0, float(group["weight_decay"]), float(group["lr"]),
            float(group["rho"]), 1.0 - group["rho"], float(group["eps"]),
        )  # fmt: skip

    def _kernels(self, group: dict[str, Any]) -> Kernels:
        return ADADELTA

    def _update(self, group: dict[str, Any], p: NDArray, g: NDArray, parts: list[NDArray], *c: Any) -> None:
        sign, weight_decay, lr, rho, fresh, eps = c
        g = sign * g
        if weight_decay:
            g += weight_decay * p
        square, changes = parts
        square *= rho
        square += fresh * g * g
        change = np.sqrt(changes + eps) / np.sqrt(square + eps) * g
        changes *= rho
        changes += fresh * change * change
        p -= lr * change
