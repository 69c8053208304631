"""Adagrad."""

from __future__ import annotations

from typing import Any

from dl4all.optim.optimizer import ParamsT
from dl4all.optim.state.options import check_not_negative, number, step_constants
from dl4all.optim.step.elementwise import ElementwiseOptimizer
from dl4all.optim.step.kernels import DESCENT, Constants, UpdateRule
from dl4all.tensor.tensor import Tensor

ADAGRAD = UpdateRule(
    "adagrad",
    "total",
    "sign weight_decay lr eps",
    f"""
    {DESCENT}
    total = total + g * g
    p = p - lr * (g / (sqrt(total) + eps))
    """,
)


class Adagrad(ElementwiseOptimizer):
    """Adagrad: gradient descent, each element divided by the root of the sum of its squares.

    Duchi et al., JMLR 12 (2011).

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        lr_decay: the learning rate is divided by 1 + (step - 1) times this.
        weight_decay: factor of the parameter that is added to the gradient.
        initial_accumulator_value: initial value of the sums.
        eps: is added to the root.
        maximize: maximize the objective instead of minimizing it.
        foreach, fused: are accepted as in PyTorch; a step takes the fewest launches in any case.
        differentiable: must be False.

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
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        options = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative(
            "Adagrad", group, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"
        )

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("sum",)

    def _initial_state(self, group: dict[str, Any], name: str) -> float:
        return float(group["initial_accumulator_value"])

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        lr = number(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        return step_constants(group, "weight_decay", lr, "eps")

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        return ADAGRAD
