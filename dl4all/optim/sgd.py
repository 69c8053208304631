"""Stochastic gradient descent (SGD)."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.optim.optimizer import ParamsT
from dl4all.optim.state.options import check_not_negative, number, step_constants
from dl4all.optim.step.elementwise import ElementwiseOptimizer
from dl4all.optim.step.kernels import DESCENT, Constants, UpdateRule
from dl4all.tensor.tensor import Tensor

_CONSTANTS = "sign weight_decay lr momentum gradient_weight nesterov"
PLAIN = UpdateRule("sgd", "", _CONSTANTS, f"{DESCENT}p = p - lr * g")
MOMENTUM = UpdateRule(
    "sgd",
    "buffer",
    _CONSTANTS,
    f"""
    {DESCENT}
    buffer = momentum * buffer + gradient_weight * g
    p = p - lr * (nesterov != 0.0 ? g + momentum * buffer : buffer)
    """,
)


class SGD(ElementwiseOptimizer):
    """Stochastic gradient descent: ``p -= lr * g``, where g with momentum is a decaying sum of gradients.

    Sutskever et al., ICML 2013, in PyTorch's form.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        momentum: decay rate of the sum.
        dampening: the share of a gradient that is not added to the sum.
        weight_decay: factor of the parameter that is added to the gradient.
        nesterov: use Nesterov momentum.
        maximize: maximize the objective instead of minimizing it.
        foreach, fused: are accepted as in PyTorch; a step takes the fewest launches in any case.
        differentiable: must be False.

    Raises:
        ArgumentError: an option is negative, or `nesterov` comes without momentum or with dampening.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0, 2.0]).requires_grad_()
        >>> optimizer = dl.optim.SGD([w], lr=0.5)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.0, 0.0]
    """

    _saves_step = False

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        options = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative("SGD", group, "lr", "momentum", "weight_decay")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ArgumentError("[SGD] nesterov needs a momentum and no dampening")

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        gradient_weight = 1.0 if step == 1 else 1.0 - number(group["dampening"])
        return step_constants(
            group, "weight_decay", "lr", "momentum", gradient_weight, float(group["nesterov"])
        )

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        return MOMENTUM if group["momentum"] else PLAIN
