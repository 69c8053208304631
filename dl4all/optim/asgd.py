"""ASGD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dl4all.optim.optimizer import ParamsT
from dl4all.optim.state.options import (
    as_float32,
    check_not_negative,
    number,
    step_constants,
)
from dl4all.optim.step.elementwise import ElementwiseOptimizer
from dl4all.optim.step.kernels import DESCENT, Constants, UpdateRule
from dl4all.tensor.tensor import Tensor

AVERAGED = UpdateRule(
    "asgd",
    "average",
    "sign weight_decay shrink step_size weight",
    f"""
    {DESCENT}
    p = p * shrink - step_size * g
    average = weight == 1.0 ? p : average + (p - average) * weight
    """,
)


class ASGD(ElementwiseOptimizer):
    """Averaged stochastic gradient descent.

    Polyak and Juditsky, SIAM J. Control Optim. 30 (1992). ``state[parameter]["ax"]`` is the average.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        lambd: each step shrinks the parameter by this times the step's rate.
        alpha: the power with which the rate falls.
        t0: the step from which on parameters are averaged.
        weight_decay: factor of the parameter that is added to the gradient.
        maximize: maximize the objective instead of minimizing it.
        foreach, capturable: are accepted as in PyTorch; a step takes the fewest launches in any case.
        differentiable: must be False.

    Raises:
        ArgumentError: an option is negative.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0, -2.0]).requires_grad_()
        >>> optimizer = dl.optim.ASGD([w], lr=0.25, lambd=0)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.5, -1.0]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative(self._name, group, "lr", "weight_decay")

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("ax",)

    def _state_numbers(self, group: dict[str, Any]) -> dict[str, float]:
        return {"eta": as_float32(number(group["lr"])), "mu": 1.0}

    def _next_numbers(self, group: dict[str, Any], state: Mapping[str, Any]) -> dict[str, float]:
        lr, step = number(group["lr"]), state["step"]
        with np.errstate(all="ignore"):  # what is too large becomes inf, as on devices
            rate = float(lr / np.float64(1.0 + group["lambd"] * lr * step) ** group["alpha"])
        return {"eta": as_float32(rate), "mu": as_float32(1.0 / max(1.0, step - group["t0"]))}

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        rate, weight = numbers
        return step_constants(group, "weight_decay", 1.0 - group["lambd"] * rate, rate, weight)

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        return AVERAGED
