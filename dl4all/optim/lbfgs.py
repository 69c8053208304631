"""L-BFGS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dl4all.autograd import enable_grad, no_grad
from dl4all.errors import ArgumentError, GradientError
from dl4all.ops.indexing.concatenation import cat
from dl4all.optim.line_search import LinePoint, strong_wolfe
from dl4all.optim.optimizer import Optimizer, ParamsT
from dl4all.optim.state.options import check_not_negative, number
from dl4all.optim.state.saved_state import check_numbers, on_host
from dl4all.scheduler import listeners
from dl4all.tensor.tensor import Tensor

LEAST_CURVATURE = 1e-10
"""Changes of the gradient along a step that are not above it tell nothing of the loss's curvature."""


class LBFGS(Optimizer):
    """L-BFGS: a quasi-Newton method, which remembers the last steps and how the gradient changed in them.

    Liu and Nocedal, Math. Program. 45 (1989). For losses of all data: a step evaluates the closure again and
    again. It takes ``history_size + 1`` times the memory of the parameters, which are of one device, and the
    host waits for it in each iteration.

    Args:
        params: tensors, or one dict that is a group of them.
        lr: the size of the step along the direction, a number or a tensor of one element.
        max_iter: iterations of a step, at most.
        max_eval: evaluations of a step, at most; by default 5/4 of `max_iter`.
        tolerance_grad: a gradient whose largest element is not above it ends the step.
        tolerance_change: changes of parameters or of the loss that are not above it end the step.
        history_size: the number of steps that are remembered.
        line_search_fn: ``"strong_wolfe"``, or None for steps of the size `lr`.

    Raises:
        ArgumentError: an option is out of its range, or there are several groups.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([3.0, -2.0]).requires_grad_()
        >>> optimizer = dl.optim.LBFGS([w], line_search_fn="strong_wolfe")
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = ((w - 1) ** 2 * dl.tensor([1.0, 9.0])).sum()
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure).item()
        85.0
        >>> [round(x, 3) for x in w.tolist()]
        [1.0, 1.0]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        options = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, options)
        if len(self.param_groups) != 1:
            raise ArgumentError("[LBFGS] all parameters have the same options; pass one group")

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative("LBFGS", group, "lr", "max_iter", "max_eval", "history_size")
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ArgumentError(
                f"[LBFGS] line_search_fn must be None or 'strong_wolfe', got {group['line_search_fn']!r}"
            )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Minimize the loss by some iterations.

        Args:
            closure: computes the gradients anew and returns the loss.

        Returns:
            The loss before the step.

        Raises:
            ArgumentError: there is no closure.
            GradientError: parameters live on several devices.
        """
        if closure is None:
            raise ArgumentError(
                "[LBFGS] step() needs a closure that computes the gradients anew and returns the loss"
            )
        listeners.refuse("decides by values of the loss in LBFGS")
        with no_grad():
            return self._minimize(closure)

    def _minimize(self, closure: Callable[[], Any]) -> Any:
        group, params = self.param_groups[0], self.param_groups[0]["params"]
        if len({p.device for p in params}) > 1:
            raise GradientError("[LBFGS] expected all parameters on one device")
        state, lr = self.state[params[0]], number(group["lr"])
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluate() -> tuple[Any, Tensor]:
            with enable_grad():
                loss = closure()
            return loss, _flat_gradient(params)

        first_loss, gradient = evaluate()
        loss, evaluations = float(first_loss), 1
        state["func_evals"] += 1
        if _largest(gradient) <= group["tolerance_grad"]:
            return first_loss
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = _direction(state, gradient, group["history_size"])
            loss_before, state["prev_flat_grad"], state["prev_loss"] = loss, gradient, loss
            step = lr
            if state["n_iter"] == 1:
                step *= min(1.0, 1.0 / gradient.abs().sum().item())
            state["d"], state["t"] = direction, step
            slope = gradient.dot(direction).item()
            if slope > -group["tolerance_change"]:
                break
            is_last = iteration == group["max_iter"]
            if group["line_search_fn"] is None:
                _move(params, direction, step)
                evaluated = 0
                if not is_last:
                    value, gradient = evaluate()
                    loss, evaluated = float(value), 1
            else:
                start = LinePoint(0.0, loss, gradient, slope)
                point, evaluated = _search(group, params, evaluate, direction, start, step, evaluations)
                _move(params, direction, point.step)
                loss, gradient, step = point.loss, point.gradient, point.step
                state["t"] = step
            evaluations += evaluated
            state["func_evals"] += evaluated
            if (
                is_last
                or evaluations >= group["max_eval"]
                or _largest(gradient) <= group["tolerance_grad"]
                or _largest(direction) * abs(step) <= group["tolerance_change"]
                or abs(loss - loss_before) < group["tolerance_change"]
            ):
                break
        return first_loss

    def _check_values(self, p: Tensor, values: Mapping[str, Any], group: dict[str, Any]) -> None:
        for name in ("d", "prev_flat_grad", "old_dirs", "old_stps"):
            held = values.get(name)
            vectors = held if isinstance(held, (list, tuple)) else [held]
            count = sum(one.numel() for one in group["params"])
            for vector in vectors:
                array = on_host(np.zeros(count) if vector is None else vector)
                if array.shape != (count,):
                    raise ArgumentError(
                        f"[LBFGS] the saved {name} has shape {array.shape}, the parameters {count} elements"
                    )
                check_numbers("LBFGS", name, array)


def _search(
    group: dict[str, Any],
    params: list[Tensor],
    evaluate: Callable[[], tuple[Any, Tensor]],
    direction: Tensor,
    start: LinePoint,
    step: float,
    evaluations: int,
) -> tuple[LinePoint, int]:
    """The point that the line search finds, and its number of evaluations; parameters are as before."""
    before = [p.clone() for p in params]

    def point_at(step: float) -> LinePoint:
        _move(params, direction, step)
        loss, gradient = evaluate()
        for p, value in zip(params, before, strict=True):
            p.copy_(value)
        return LinePoint(step, float(loss), gradient, gradient.dot(direction).item())

    size, most = _largest(direction), group["max_eval"] - evaluations
    return strong_wolfe(point_at, start, step, size, group["tolerance_change"], most)


def _direction(state: dict[str, Any], gradient: Tensor, history_size: int) -> Tensor:
    """The direction of an iteration, after the last step was taken into the history."""
    if state["n_iter"] == 1:
        state["old_dirs"], state["old_stps"], state["ro"], state["H_diag"] = [], [], [], 1.0
        return -gradient
    changes, steps, factors = state["old_dirs"], state["old_stps"], state["ro"]
    change, step = gradient - state["prev_flat_grad"], state["d"] * number(state["t"])
    curvature = change.dot(step).item()
    if curvature > LEAST_CURVATURE:
        if len(changes) == history_size:
            for held in (changes, steps, factors):
                del held[:1]
        if history_size:
            changes.append(change)
            steps.append(step)
            factors.append(1.0 / curvature)
        state["H_diag"] = curvature / change.dot(change).item()
    direction, shares = -gradient, list[Any]()
    for change, step, factor in reversed(list(zip(changes, steps, factors, strict=True))):
        shares.append(step.dot(direction) * factor)
        direction = direction - change * shares[-1]
    direction = direction * number(state["H_diag"])
    for change, step, factor in zip(changes, steps, factors, strict=True):
        direction = direction + step * (shares.pop() - change.dot(direction) * factor)
    return direction


def _flat_gradient(params: list[Tensor]) -> Tensor:
    """All gradients in one vector."""
    parts = [p.new_zeros(p.numel()) if p.grad is None else p.grad.reshape(-1) for p in params]
    flat: Tensor = cat(parts)
    return flat.clone() if len(parts) == 1 else flat


def _move(params: list[Tensor], direction: Tensor, step: float) -> None:
    """Add a multiple of the direction to the parameters."""
    start = 0
    for p in params:
        p.add_(direction[start : start + p.numel()].reshape(p.shape), alpha=step)
        start += p.numel()


def _largest(x: Tensor) -> float:
    """The largest absolute value."""
    return float(x.abs().max().item())
