"""Adam and AdamW."""

from __future__ import annotations

import math
from typing import Any

from dl4all.optim.optimizer import ParamsT
from dl4all.optim.state.options import (
    check_decay_rates,
    check_not_negative,
    decay_constants,
    number,
    step_constants,
)
from dl4all.optim.step.elementwise import ElementwiseOptimizer
from dl4all.optim.step.kernels import DESCENT, Constants, UpdateRule
from dl4all.tensor.tensor import Tensor

DECAY = f"""
    p = p * shrink
    {DESCENT}
"""
"""Decay of the parameter itself by the factor ``shrink``, or of the gradient."""

MEANS = """
    mean = mean + one_minus_beta1 * (g - mean)
    square = beta2 * square + one_minus_beta2 * g * g
"""
"""The mean of gradients and the mean of their squares."""

MEANS_CONSTANTS = "sign weight_decay shrink one_minus_beta1 beta2 one_minus_beta2"


def _rule_of_adam(states: str, largest: str, divided_by: str) -> UpdateRule:
    step = f"p = p - step_size * (mean / (sqrt({divided_by}) / root_correction2 + eps))"
    constants = f"{MEANS_CONSTANTS} step_size root_correction2 eps"
    return UpdateRule("adam", states, constants, f"{DECAY}{MEANS}{largest}{step}")


ADAM = _rule_of_adam("mean square", "", "square")
AMSGRAD = _rule_of_adam("mean square largest", "largest = larger(square, largest)\n", "largest")


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

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        return AMSGRAD if group["amsgrad"] else ADAM


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
