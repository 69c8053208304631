"""RAdam."""

from __future__ import annotations

import math
from typing import Any

from dl4all.optim.adam import DECAY, MEANS, MEANS_CONSTANTS
from dl4all.optim.optimizer import ParamsT
from dl4all.optim.state.options import (
    check_decay_rates,
    check_not_negative,
    decay_constants,
    number,
    step_constants,
)
from dl4all.optim.step.elementwise import ElementwiseOptimizer
from dl4all.optim.step.kernels import Constants, UpdateRule
from dl4all.tensor.tensor import Tensor

RADAM = UpdateRule(
    "radam",
    "mean square",
    f"{MEANS_CONSTANTS} step_size rectification eps",
    f"""
    {DECAY}{MEANS}
    step = mean * step_size
    p = p - (rectification == 0.0 ? step : step * (rectification / (sqrt(square) + eps)))
    """,
)
"""``rectification`` is 0 as long as the variance of the squares is not known."""


class RAdam(ElementwiseOptimizer):
    """RAdam: Adam whose step is rectified while the variance of its divisor is large.

    Liu et al., arXiv:1908.03265. In its first steps it goes along the mean gradient, undivided.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        betas: decay rates of the means of gradients and of their squares.
        eps: is added to the root.
        weight_decay: factor of the parameter that is added to the gradient.
        decoupled_weight_decay: shrink the parameter itself, as :class:`AdamW` does.
        maximize: maximize the objective instead of minimizing it.
        foreach, capturable: are accepted as in PyTorch; a step takes the fewest launches in any case.
        differentiable: must be False.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0, -2.0]).requires_grad_()
        >>> optimizer = dl.optim.RAdam([w], lr=0.25)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.5, -1.0]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative(self._name, group, "lr", "eps", "weight_decay")
        check_decay_rates(self._name, "betas", *group["betas"])

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        beta1, beta2 = map(number, group["betas"])
        return step_constants(
            group,
            *decay_constants(group),
            1.0 - beta1, beta2, 1.0 - beta2,
            number(group["lr"]) / (1.0 - beta1**step), _rectification(beta2, step), "eps",
        )  # fmt: skip

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        return RADAM


def _rectification(beta2: float, step: int) -> float:
    """The factor of a step with the correction of its divisor's bias; 0 while the variance is not known."""
    longest = 2.0 / (1.0 - beta2) - 1.0
    correction = 1.0 - beta2**step
    length = longest - 2.0 * step * beta2**step / correction
    if length <= 5.0:
        return 0.0
    variance = (length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)
    return math.sqrt(correction * variance)
