"""RMSprop."""

from __future__ import annotations

from typing import Any

from dl4all.optim.optimizer import ParamsT
from dl4all.optim.state.options import check_not_negative, number, step_constants
from dl4all.optim.step.elementwise import ElementwiseOptimizer
from dl4all.optim.step.kernels import DESCENT, Constants, UpdateRule
from dl4all.tensor.tensor import Tensor

CENTER = "mean = mean + one_minus_alpha * (g - mean)"


def _rule_of_rmsprop(centered: bool, momentum: bool) -> UpdateRule:
    return UpdateRule(
        "rmsprop",
        " ".join(("square", *["mean"] * centered, *["changes"] * momentum)),
        "sign weight_decay lr alpha one_minus_alpha eps momentum",
        f"""
        {DESCENT}
        square = alpha * square + one_minus_alpha * g * g
        {CENTER if centered else ""}
        change = g / (sqrt({"square - mean * mean" if centered else "square"}) + eps)
        {"changes = momentum * changes + change" if momentum else ""}
        p = p - lr * {"changes" if momentum else "change"}
        """,
    )


RMSPROP = {
    (centered, momentum): _rule_of_rmsprop(centered, momentum)
    for centered in (False, True)
    for momentum in (False, True)
}


class RMSprop(ElementwiseOptimizer):
    """RMSprop: gradient descent, each element divided by its root mean square.

    Hinton, lecture 6 of "Neural Networks for Machine Learning"; with `centered` divided by the standard
    deviation (Graves, arXiv:1308.0850).

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        alpha: decay rate of the mean.
        eps: is added to the root.
        weight_decay: factor of the parameter that is added to the gradient.
        momentum: decay rate of the sum of changes.
        centered: subtract the squared mean of gradients from the mean square.
        maximize: maximize the objective instead of minimizing it.
        capturable, foreach: are accepted as in PyTorch; a step takes the fewest launches in any case.
        differentiable: must be False.

    Raises:
        ArgumentError: an option is negative.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0]).requires_grad_()
        >>> optimizer = dl.optim.RMSprop([w], lr=0.25, alpha=0.75)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.5]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative("RMSprop", group, "lr", "alpha", "eps", "weight_decay", "momentum")

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        centered = ("grad_avg",) if group["centered"] else ()
        return ("square_avg", *centered, *(("momentum_buffer",) if group["momentum"] else ()))

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        return step_constants(
            group, "weight_decay", "lr", "alpha", 1.0 - number(group["alpha"]), "eps", "momentum"
        )

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        return RMSPROP[bool(group["centered"]), group["momentum"] > 0]
