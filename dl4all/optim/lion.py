"""Lion."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.optim.optimizer import NDArray, ParamsT
from dl4all.optim.state.options import check_decay_rates, check_not_negative, number, step_constants
from dl4all.optim.step.elementwise import ElementwiseOptimizer
from dl4all.optim.step.kernels import Constants, OptimizerKernels

LION = OptimizerKernels(
    "lion", 1, "float direction, shrink, lr, beta1, one_minus_beta1, beta2, one_minus_beta2;"
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

    def _kernels(self, group: dict[str, Any]) -> OptimizerKernels:
        return LION

    def _rule(self, group: dict[str, Any]) -> str:
        return "lion"

    def _update(self, group: dict[str, Any], p: NDArray, g: NDArray, states: list[NDArray], *c: Any) -> None:
        sign, shrink, lr, beta1, one_minus_beta1, beta2, one_minus_beta2 = c
        g = sign * g
        mean = states[0]
        p *= shrink
        p -= lr * np.sign(beta1 * mean + one_minus_beta1 * g)
        mean *= beta2
        mean += one_minus_beta2 * g
