"""Lion."""

from __future__ import annotations

from typing import Any

from dl4all.optim.optimizer import ParamsT
from dl4all.optim.state.options import check_decay_rates, check_not_negative, number, step_constants
from dl4all.optim.step.elementwise import ElementwiseOptimizer
from dl4all.optim.step.kernels import Constants, UpdateRule

LION = UpdateRule(
    "lion",
    "mean",
    "direction shrink lr beta1 one_minus_beta1 beta2 one_minus_beta2",
    """
    g = direction * g
    step = beta1 * mean + one_minus_beta1 * g
    p = p * shrink - lr * (is_nan(step) ? step : sign(step))
    mean = beta2 * mean + one_minus_beta2 * g
    """,
)


class Lion(ElementwiseOptimizer):
    """Lion: steps by the learning rate along the sign of an interpolated mean of gradients.

    Chen et al., arXiv:2302.06675. Its state is half of Adam's.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate; a third to a tenth of Adam's.
        betas: the weight of the mean in the step, and the decay rate of the mean.
        weight_decay: each step shrinks the parameter by this times the learning rate.
        maximize: maximize the objective instead of minimizing it.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0, -3.0]).requires_grad_()
        >>> optimizer = dl.optim.Lion([w], lr=0.25)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.75, -2.75]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        )

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative("Lion", group, "lr", "weight_decay")
        check_decay_rates("Lion", "betas", *group["betas"])

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg",)

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        beta1, beta2 = map(number, group["betas"])
        shrink = 1.0 - number(group["lr"]) * number(group["weight_decay"])
        return step_constants(group, shrink, "lr", beta1, 1.0 - beta1, beta2, 1.0 - beta2)

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        return LION
