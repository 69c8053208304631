"""Adamax."""

from __future__ import annotations

from typing import Any

from dl4all.optim.optimizer import ParamsT
from dl4all.optim.state.options import (
    check_decay_rates,
    check_not_negative,
    number,
    step_constants,
)
from dl4all.optim.step.elementwise import ElementwiseOptimizer
from dl4all.optim.step.kernels import DESCENT, Constants, UpdateRule
from dl4all.tensor.tensor import Tensor

ADAMAX = UpdateRule(
    "adamax",
    "mean largest",
    "sign weight_decay one_minus_beta1 beta2 step_size eps",
    f"""
    {DESCENT}
    mean = mean + one_minus_beta1 * (g - mean)
    largest = larger(largest * beta2, abs(g) + eps)
    p = p - step_size * (mean / largest)
    """,
)


class Adamax(ElementwiseOptimizer):
    """Adamax: Adam with the decaying maximum of gradients in place of their root mean square.

    Kingma and Ba, arXiv:1412.6980.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        betas: decay rates of the mean of gradients and of their maximum.
        eps: is added to the gradients' absolute values.
        weight_decay: factor of the parameter that is added to the gradient.
        maximize: maximize the objective instead of minimizing it.
        foreach, capturable: are accepted as in PyTorch; a step takes the fewest launches in any case.
        differentiable: must be False.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0, -2.0]).requires_grad_()
        >>> optimizer = dl.optim.Adamax([w], lr=0.25)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.75, -1.75]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative(self._name, group, "lr", "eps", "weight_decay")
        check_decay_rates(self._name, "betas", *group["betas"])

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return "exp_avg", "exp_inf"

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        beta1, beta2 = map(number, group["betas"])
        size = number(group["lr"]) / (1.0 - beta1**step)
        return step_constants(group, "weight_decay", 1.0 - beta1, beta2, size, "eps")

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        return ADAMAX
