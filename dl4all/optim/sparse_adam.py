"""SparseAdam."""

from __future__ import annotations

from typing import Any

from dl4all.errors import GradientError
from dl4all.optim.optimizer import Optimizer, ParamsT
from dl4all.optim.options import check_decay_rates, check_not_negative
from dl4all.tensor.tensor import Tensor


class SparseAdam(Optimizer):
    """Adam for sparse gradients. dl4all's gradients are dense, so that a step says to use :class:`Adam`.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        betas: decay rates of the means of gradients and of their squares.
        eps: is added to the root.
        maximize: maximize the objective instead of minimizing it.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> table = dl.nn.Embedding(5, 2)
        >>> optimizer = dl.optim.SparseAdam(table.parameters(), lr=0.1)
        >>> table(dl.tensor([1, 3])).sum().backward()
        >>> try:
        ...     optimizer.step()
        ... except dl.errors.GradientError:
        ...     optimizer = dl.optim.Adam(table.parameters(), lr=0.1)
        ...     optimizer.step()
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative("SparseAdam", group, "lr", "eps")
        check_decay_rates("SparseAdam", "betas", *group["betas"])

    def _step(self, group: dict[str, Any], number: int) -> None:
        if any(p.grad is not None for p in group["params"]):
            raise GradientError(
                "[SparseAdam] expected sparse gradients, got dense ones; use dl4all.optim.Adam"
            )
