"""Adam and AdamW."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.optim.optimizer import NDArray, ParamsT
from dl4all.optim.state.options import (
    check_decay_rates,
    check_not_negative,
    decay_constants,
    descent_gradient,
    number,
    step_constants,
)
from dl4all.optim.step.elementwise import ElementwiseOptimizer
from dl4all.optim.step.kernels import Constants, OptimizerKernels
from dl4all.tensor.tensor import Tensor

_CONSTANTS = (
    "float sign, weight_decay, shrink, one_minus_beta1, beta2, one_minus_beta2, step_size, "
    "root_correction2, eps;"
)
ADAM = OptimizerKernels("adam", 2, _CONSTANTS)
AMSGRAD = OptimizerKernels("adam", 3, _CONSTANTS)


class Adam(ElementwiseOptimizer):
    """Adam: steps along the mean gradient, divided element by element by its root mean square.

    Kingma and Ba, arXiv:1412.6980; `amsgrad` divides by the largest root mean square so far (Reddi et al.,
    arXiv:1904.09237).

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        betas: decay rates of the means of gradients and of their squares.
        eps: is added to the root.
        weight_decay: factor of the parameter that is added to the gradient.
        amsgrad: divide by the largest root mean square so far.
        maximize: maximize the objective instead of minimizing it.
        foreach, capturable, fused: are accepted as in PyTorch; a step takes the fewest launches in any case.
        differentiable: must be False.
        decoupled_weight_decay: shrink the parameter itself, as :class:`AdamW` does.

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
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative(self._name, group, "lr", "eps", "weight_decay")
        check_decay_rates(self._name, "betas", *group["betas"])

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        beta1, beta2 = map(number, group["betas"])
        return step_constants(
            group,
            *decay_constants(group),
            1.0 - beta1, beta2, 1.0 - beta2,
            number(group["lr"]) / (1.0 - beta1**step), math.sqrt(1.0 - beta2**step), "eps",
        )  # fmt: skip

    def _kernels(self, group: dict[str, Any]) -> OptimizerKernels:
        return AMSGRAD if group["amsgrad"] else ADAM

    def _rule(self, group: dict[str, Any]) -> str:
        return "adam"

    def _update(self, group: dict[str, Any], p: NDArray, g: NDArray, states: list[NDArray], *c: Any) -> None:
        update_on_host(p, g, states, *c)


def update_on_host(p: NDArray, g: NDArray, states: list[NDArray], *c: Any) -> None:
    """Update the parameter `p` and its state in place; `c` are the constants of a step."""
    sign, weight_decay, shrink, *rates, step_size, root_correction2, eps = c
    one_minus_beta1, beta2, one_minus_beta2 = rates
    mean, square = states[:2]
    if shrink != 1:
        p *= shrink
    g = descent_gradient(g, p, sign, weight_decay)
    change = g - mean
    change *= one_minus_beta1
    mean += change
    square *= beta2
    np.multiply(g, one_minus_beta2, out=change)  # first, as the square of g alone may overflow
    change *= g
    square += change
    if len(states) > 2:
        np.maximum(states[2], square, out=states[2])
        square = states[2]
    divisor = np.sqrt(square, out=g)
    divisor /= root_correction2
    divisor += eps
    np.divide(mean, divisor, out=divisor)
    divisor *= step_size
    p -= divisor


class AdamW(Adam):
    """AdamW: Adam with decoupled weight decay, which does not enter the means.

    Loshchilov and Hutter, arXiv:1711.05101.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        betas: decay rates of the means of gradients and of their squares.
        eps: is added to the root.
        weight_decay: each step shrinks the parameter by this times the learning rate.
        amsgrad: divide by the largest root mean square so far.
        maximize: maximize the objective instead of minimizing it.
        foreach, capturable, fused: are accepted as in PyTorch; a step takes the fewest launches in any case.
        differentiable: must be False.

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
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, foreach=foreach,
            capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip
