"""Adafactor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import finfo
from dl4all.optim.optimizer import Optimizer, ParamsT
from dl4all.optim.state.options import check_not_negative, number
from dl4all.optim.state.saved_state import check_counts, check_numbers, on_host
from dl4all.scheduler import listeners
from dl4all.tensor.tensor import Tensor


class Adafactor(Optimizer):
    """Adafactor: as Adam, with the means of squares of a matrix by rows and by columns only.

    Shazeer and Stern, arXiv:1804.04235, in PyTorch's form. The state of a matrix of n rows and m columns has
    n + m elements.

    Args:
        params: tensors, or dicts that are groups of them.
        lr: the largest relative size of a step, a number or a tensor of one element.
        beta2_decay: the power of the step with which the weight of new squares falls, not above 0.
        eps: the least mean of squares, None for the dtype's epsilon, and the least size of a parameter.
        d: updates whose root mean square is larger than this are scaled to it; at least 1.
        weight_decay: each step shrinks the parameter by this times the learning rate.
        foreach: is accepted as in PyTorch, and changes nothing.
        maximize: maximize the objective instead of minimizing it.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([[1.0, -2.0], [3.0, 0.5]]).requires_grad_()
        >>> optimizer = dl.optim.Adafactor([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> {name: tuple(value.shape) for name, value in optimizer.state[w].items() if name != "step"}
        {'row_var': (2, 1), 'col_var': (1, 2)}
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative("Adafactor", group, "lr", "weight_decay")
        first, second = group["eps"]
        check_not_negative("Adafactor", {"eps": 0.0 if first is None else first}, "eps")
        check_not_negative("Adafactor", {"eps": second}, "eps")
        if not group["beta2_decay"] <= 0:
            raise ArgumentError(f"[Adafactor] beta2_decay must be at most 0, got {group['beta2_decay']}")
        if not group["d"] >= 1:
            raise ArgumentError(f"[Adafactor] d must be at least 1, got {group['d']}")

    def _step(self, group: dict[str, Any], number: int) -> None:
        listeners.refuse("counts steps of Adafactor")
        for p in group["params"]:
            if p.grad is not None and p.numel():
                self._update(group, p, -p.grad if group["maximize"] else p.grad)

    def _update(self, group: dict[str, Any], p: Tensor, g: Tensor) -> None:
        state = self.state[p]
        if not state:
            state["step"] = 0
            state.update({name: g.new_zeros(shape) for name, shape in _shapes(p).items()})
        state["step"] += 1
        step, lr = state["step"], number(group["lr"])
        eps = float(finfo(p.dtype).eps) if group["eps"][0] is None else group["eps"][0]
        weight = float(step) ** group["beta2_decay"]
        size = _root_mean_square(p).clamp(min=group["eps"][1]) * min(lr, 1.0 / math.sqrt(step))
        if group["weight_decay"]:
            p.mul_(1.0 - lr * group["weight_decay"])
        if p.ndim > 1:
            rows, columns = state["row_var"], state["col_var"]
            rows.lerp_(_mean_square(g, -1), weight)
            columns.lerp_(_mean_square(g, -2), weight)
            variance = rows * columns / rows.mean(-2, keepdim=True).clamp(min=eps)
        else:
            variance = state["variance"].lerp_(g * g, weight)
        update = variance.clamp(min=eps * eps).rsqrt() * g
        p.sub_(update * (size / (_root_mean_square(update) / group["d"]).clamp(min=1.0)))

    def _check_values(self, p: Tensor, values: Mapping[str, Any], group: dict[str, Any]) -> None:
        check_counts(self._name, {"step": values["step"]} if "step" in values else {})
        shapes = _shapes(p)
        for name, shape in shapes.items():
            if name not in values:
                raise ArgumentError(
                    f"[Adafactor] the state of a parameter of shape {p.shape} has {', '.join(shapes)}; "
                    f"got {', '.join(map(str, values)) or 'nothing'}"
                )
            array = on_host(values[name])
            if array.shape != shape:
                raise ArgumentError(f"[Adafactor] the saved {name} has shape {array.shape}, not {shape}")
            check_numbers(self._name, name, array)

    def _loaded_values(self, p: Tensor, values: Mapping[str, Any], group: dict[str, Any]) -> dict[str, Any]:
        return {**super()._loaded_values(p, values, group), "step": int(float(values.get("step", 0)))}


def _shapes(p: Tensor) -> dict[str, tuple[int, ...]]:
    """The tensors of a parameter's state, by name."""
    if p.ndim < 2:
        return {"variance": p.shape}
    return {"row_var": (*p.shape[:-1], 1), "col_var": (*p.shape[:-2], 1, p.shape[-1])}


def _mean_square(x: Tensor, dim: int) -> Tensor:
    return x.norm(dim=dim, keepdim=True).square() / x.shape[dim]


def _root_mean_square(x: Tensor) -> Tensor:
    return x.norm() / math.sqrt(x.numel())
