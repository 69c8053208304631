"""NAdam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

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

NADAM = UpdateRule(
    "nadam",
    "mean square",
    f"{MEANS_CONSTANTS} correction2 gradient_size mean_size eps",
    f"""
    {DECAY}{MEANS}
    divisor = sqrt(square / correction2) + eps
    p = p - gradient_size * (g / divisor) - mean_size * (mean / divisor)
    """,
)


class NAdam(ElementwiseOptimizer):
    """NAdam: Adam with Nesterov momentum.

    Dozat, "Incorporating Nesterov Momentum into Adam", ICLR workshop 2016.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        betas: decay rates of the means of gradients and of their squares.
        eps: is added to the root.
        weight_decay: factor of the parameter that is added to the gradient.
        momentum_decay: how fast the momentum rises to the first beta.
        decoupled_weight_decay: shrink the parameter itself, as :class:`AdamW` does.
        maximize: maximize the objective instead of minimizing it.
        foreach, capturable: are accepted as in PyTorch; a step takes the fewest launches in any case.
        differentiable: must be False.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0, -2.0]).requires_grad_()
        >>> optimizer = dl.optim.NAdam([w], lr=0.25)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> [round(x, 4) for x in w.tolist()]
        [0.7359, -1.7359]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative(self._name, group, "lr", "eps", "weight_decay", "momentum_decay")
        check_decay_rates(self._name, "betas", *group["betas"])

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"

    def _state_numbers(self, group: dict[str, Any]) -> dict[str, float]:
        return {"mu_product": 1.0}

    def _next_numbers(self, group: dict[str, Any], state: Mapping[str, Any]) -> dict[str, float]:
        product = np.float32(state["mu_product"]) * np.float32(_momentum(group, state["step"]))
        return {"mu_product": float(product)}

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        beta1, beta2 = map(number, group["betas"])
        lr, mu, next_mu = number(group["lr"]), _momentum(group, step), _momentum(group, step + 1)
        product = float(np.float32(numbers[0]) * np.float32(mu))
        return step_constants(
            group,
            *decay_constants(group),
            1.0 - beta1, beta2, 1.0 - beta2, 1.0 - beta2**step,
            lr * (1.0 - mu) / (1.0 - product), lr * next_mu / (1.0 - product * next_mu), "eps",
        )  # fmt: skip

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        return NADAM


def _momentum(group: dict[str, Any], step: int) -> float:
    """The momentum of a step, which rises from about half of the first beta."""
    rise: float = 0.96 ** (step * number(group["momentum_decay"]))
    return number(group["betas"][0]) * (1.0 - 0.5 * rise)
