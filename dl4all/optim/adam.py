"""Adam, and with decoupled weight decay AdamW."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.optim.optimizer import Constants, Kernels, NDArray, Optimizer, Params, at_least_0, below_1

TWO = Kernels("adam", 2)
AMSGRAD = Kernels("adam", 3)


class Adam(Optimizer):
    """Steps along the mean gradient, each element divided by the root of its mean square.

    Kingma and Ba, arXiv:1412.6980; with `amsgrad` the largest mean square so far is taken (Reddi et al.,
    arXiv:1904.09237).

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        betas: what is left of the two means with each step.
        eps: is added to the root.
        weight_decay: times the parameter is added to the gradient.
        amsgrad: never let the divisor become smaller.
        maximize: climb instead.
        decoupled_weight_decay: shrink the parameter itself, as :class:`AdamW`.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0, -2.0]).requires_grad_()
        >>> optimizer = dl.optim.Adam([w], lr=0.25)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.75, -1.75]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        at_least_0(self._name, group, "lr", "eps", "weight_decay")
        below_1(self._name, "betas", *group["betas"])

    def _parts(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))

    def _constants(self, group: dict[str, Any], step: int) -> Constants:
        beta1, beta2 = group["betas"]
        decay, decoupled = float(group["weight_decay"]), group["decoupled_weight_decay"]
        return (
            -1.0 if group["maximize"] else 1.0,
            0.0 if decoupled else decay,
            1.0 - group["lr"] * decay if decoupled else 1.0,
            1.0 - beta1, float(beta2), 1.0 - beta2,
            group["lr"] / (1.0 - beta1**step), math.sqrt(1.0 - beta2**step), float(group["eps"]),
        )  # fmt: skip

    def _kernels(self, group: dict[str, Any]) -> Kernels:
        return AMSGRAD if group["amsgrad"] else TWO

    def _update(self, group: dict[str, Any], p: NDArray, g: NDArray, parts: list[NDArray], *c: Any) -> None:
        sign, weight_decay, shrink, fresh1, beta2, fresh2, step_size, root_correction2, eps = c
        mean, square = parts[:2]
        if shrink != 1:
            p *= shrink
        g = sign * g
        if weight_decay:
            g += weight_decay * p
        mean += fresh1 * (g - mean)
        square *= beta2
        g *= g
        g *= fresh2
        square += g
        if len(parts) > 2:
            np.maximum(parts[2], square, out=parts[2])
            square = parts[2]
        divisor = np.sqrt(square, out=g)
        divisor /= root_correction2
        divisor += eps
        np.divide(mean, divisor, out=divisor)
        divisor *= step_size
        p -= divisor


class AdamW(Adam):
    """Adam with a weight decay of its own, which does not pass through the means.

    Loshchilov and Hutter, arXiv:1711.05101.

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        betas: what is left of the two means with each step.
        eps: is added to the root.
        weight_decay: times the learning rate is the share that each step takes off the parameter.
        amsgrad: never let the divisor become smaller.
        maximize: climb instead.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0]).requires_grad_()
        >>> optimizer = dl.optim.AdamW([w], lr=0.25, weight_decay=1.0)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.5]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True
        )
