"""Adadelta."""

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

ADADELTA = UpdateRule(
    "adadelta",
    "square changes",
    "sign weight_decay lr rho one_minus_rho eps",
    f"""
    {DESCENT}
    square = rho * square + one_minus_rho * g * g
    change = sqrt(changes + eps) / sqrt(square + eps) * g
    changes = rho * changes + one_minus_rho * change * change
    p = p - lr * change
    """,
)


class Adadelta(ElementwiseOptimizer):
    """Adadelta: gradient descent, scaled by the root mean square of the changes over that of the gradients.

    Zeiler, arXiv:1212.5701.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        rho: decay rate of the means of squared gradients and changes.
        eps: is added to both means.
        weight_decay: factor of the parameter that is added to the gradient.
        maximize: maximize the objective instead of minimizing it.
        foreach, capturable: are accepted as in PyTorch; a step takes the fewest launches in any case.
        differentiable: must be False.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> w = dl.nn.Parameter(dl.tensor([1.0]))
        >>> optimizer = dl.optim.Adadelta([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.item() < 1.0
        True
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative("Adadelta", group, "lr", "eps", "weight_decay")
        check_decay_rates("Adadelta", "rho", group["rho"])

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return "square_avg", "acc_delta"

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        return step_constants(group, "weight_decay", "lr", "rho", 1.0 - number(group["rho"]), "eps")

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        return ADADELTA
