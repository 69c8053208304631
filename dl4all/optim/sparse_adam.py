"""SparseAdam."""

from __future__ import annotations

import math
from typing import Any

from dl4all import ops
from dl4all.errors import GradientError
from dl4all.optim.optimizer import Optimizer, ParamsT
from dl4all.optim.state.options import check_decay_rates, check_not_negative, number
from dl4all.tensor.creation import zeros_like
from dl4all.tensor.sparse import SparseTensor
from dl4all.tensor.tensor import Tensor


class SparseAdam(Optimizer):
    """Adam for sparse gradients: rows that a gradient does not have keep their values and their means.

    ``backward`` gives dense gradients, of ``nn.Embedding(sparse=True)`` too: set ``p.grad`` to a sparse one
    before the step, or use :class:`Adam`.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        betas: decay rates of the means of gradients and of their squares.
        eps: is added to the root.
        maximize: maximize the objective instead of minimizing it.

    Raises:
        ArgumentError: an option is out of its range.
        GradientError: a step finds a dense gradient.

    Example:
        >>> import dl4all as dl
        >>> table = dl.nn.Embedding(5, 2)
        >>> optimizer = dl.optim.SparseAdam(table.parameters(), lr=0.1)
        >>> before = table.weight.detach().clone()
        >>> table(dl.tensor([1, 3])).sum().backward()
        >>> table.weight.grad = table.weight.grad.to_sparse(1)
        >>> optimizer.step()
        >>> (table.weight != before).any(1).tolist()
        [False, True, False, True, False]
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
        params = [p for p in group["params"] if p.grad is not None]
        if not all(isinstance(p.grad, SparseTensor) for p in params):
            raise GradientError(
                "[SparseAdam] expected sparse gradients, got dense ones; use p.grad.to_sparse(), or "
                "dl4all.optim.Adam"
            )
        for p in params:
            self._update(group, p, p.grad)

    def _update(self, group: dict[str, Any], p: Tensor, gradient: SparseTensor) -> None:
        """Kingma and Ba, arXiv:1412.6980, algorithm 1, of the gradient's rows."""
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=zeros_like(p), exp_avg_sq=zeros_like(p))
        state["step"] += 1
        gradient = gradient.coalesce()
        values = gradient.values()
        if not values.numel():
            return
        values = -values if group["maximize"] else values
        beta1, beta2 = group["betas"]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        means = _add_rows(mean, gradient, lambda old: (values - old) * (1 - beta1))
        squares = _add_rows(square, gradient, lambda old: (values * values - old) * (1 - beta2))
        scale = math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
        size = -number(group["lr"]) * scale
        _add_rows(p, gradient, lambda old: means / (squares.sqrt() + group["eps"]) * size)


def _add_rows(target: Tensor, gradient: SparseTensor, change: Any) -> Tensor:
    """Add to the rows of a dense tensor that a gradient has what a function makes of them.

    Returns:
        The new rows.
    """
    places, row = gradient.flat_indices(), gradient.values().shape[1:]
    flat = ops.reshape(target, (math.prod(gradient.shape[: gradient.sparse_dim()]), *row))
    old: Tensor = ops.index_select(flat, 0, places)
    rows: Tensor = old + change(old)
    target.copy_(ops.reshape(ops.index_copy(flat, 0, places, rows), target.shape))
    return rows
