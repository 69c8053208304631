"""Rprop."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.optim.optimizer import ParamsT
from dl4all.optim.state.options import check_not_negative, number, step_constants
from dl4all.optim.step.elementwise import ElementwiseOptimizer
from dl4all.optim.step.kernels import Constants, UpdateRule
from dl4all.tensor.tensor import Tensor

RPROP = UpdateRule(
    "rprop",
    "before size",
    "direction decrease increase smallest largest",
    """
    g = direction * g
    product = g * before
    size = size * (product > 0.0 ? increase : product < 0.0 ? decrease : 1.0)
    size = size < smallest ? smallest : size > largest ? largest : size
    before = product < 0.0 ? 0.0 : g
    p = p - (before > 0.0 ? size : before < 0.0 ? -size : 0.0)
    """,
)


class Rprop(ElementwiseOptimizer):
    """Rprop: steps whose size grows as long as an element of the gradient keeps its sign.

    Riedmiller and Braun, ICNN 1993. For gradients of all data; batches change signs by chance.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the size of the first step, a number or a tensor of one element.
        etas: the factors of the size where the sign changes, and where it does not.
        step_sizes: the smallest and the largest size.
        maximize: maximize the objective instead of minimizing it.
        foreach, capturable: are accepted as in PyTorch; a step takes the fewest launches in any case.
        differentiable: must be False.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0, -2.0]).requires_grad_()
        >>> optimizer = dl.optim.Rprop([w], lr=0.25)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.75, -1.75]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative(self._name, group, "lr")
        decrease, increase = group["etas"]
        if not 0 < decrease < 1 < increase:
            raise ArgumentError(
                f"[Rprop] etas must be a factor below 1 and one above, got {decrease} and {increase}"
            )

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return "prev", "step_size"

    def _initial_state(self, group: dict[str, Any], name: str) -> float:
        return number(group["lr"]) if name == "step_size" else 0.0

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        return step_constants(group, *map(float, (*group["etas"], *group["step_sizes"])))

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        return RPROP
