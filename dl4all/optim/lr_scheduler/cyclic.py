"""Cyclical learning rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from dl4all.errors import ArgumentError
from dl4all.optim.lr_scheduler.base import LRScheduler, has_betas, per_group, set_momentum
from dl4all.optim.optimizer import Optimizer
from dl4all.optim.state.options import set_option

MODES = ("triangular", "triangular2", "exp_range")


class CyclicLR(LRScheduler):
    """From `base_lr` to `max_lr` and back, linearly, a step for each batch; the momentum moves inversely.

    Smith, arXiv:1506.01186.

    Args:
        optimizer: the optimizer whose rates are set.
        base_lr, max_lr: the lowest and the highest rate, or one for each group.
        step_size_up: the number of steps with rising rates.
        step_size_down: the number of steps with falling rates; `step_size_up` by default.
        mode: "triangular" for a constant amplitude, "triangular2" to halve it in each cycle, "exp_range" to
            multiply it by `gamma` to the power of the step.
        gamma: the factor of "exp_range".
        scale_fn: a function that returns the factor of the amplitude, in place of `mode`.
        scale_mode: whether it is called with the number of the "cycle", from 1 on, or with that of the step,
            "iterations".
        cycle_momentum: whether to change the momentum, or Adam's first beta.
        base_momentum, max_momentum: the lowest and the highest momentum, or one for each group.
        last_epoch: as in :class:`LRScheduler`.

    Raises:
        ArgumentError: an option is out of its range, or the optimizer has no momentum.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.zeros(1)], lr=1.0)
        >>> cycle = dl.optim.lr_scheduler.CyclicLR(optimizer, 0.0, 1.0, step_size_up=2, cycle_momentum=False)
        >>> rates = []
        >>> for step in range(5):
        ...     rates += cycle.get_last_lr()
        ...     cycle.step()
        >>> rates
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        down = step_size_up if step_size_down is None else step_size_down
        if step_size_up < 1 or down < 1:
            raise ArgumentError(f"[CyclicLR] expected steps of at least 1, got {step_size_up} and {down}")
        if scale_fn is None and mode not in MODES:
            raise ArgumentError(f"[CyclicLR] mode must be one of {', '.join(MODES)}, got {mode!r}")
        self.total_size, self.step_ratio = step_size_up + down, step_size_up / (step_size_up + down)
        self.mode, self.gamma, self.scale_fn = mode, gamma, scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        groups = optimizer.param_groups
        self.max_lrs = per_group("CyclicLR", "of max_lr", max_lr, optimizer)
        base_lrs = per_group("CyclicLR", "of base_lr", base_lr, optimizer)
        self.cycle_momentum = cycle_momentum
        self.use_beta1 = cycle_momentum and has_betas("CyclicLR", optimizer)
        self.base_momentums = per_group("CyclicLR", "of base_momentum", base_momentum, optimizer)
        self.max_momentums = per_group("CyclicLR", "of max_momentum", max_momentum, optimizer)
        if last_epoch == -1:
            for group, lr in zip(groups, base_lrs, strict=True):
                set_option(group, "lr", lr)
                group["initial_lr"] = lr
        super().__init__(optimizer, last_epoch)

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        position = 1.0 + self.last_epoch / self.total_size - cycle
        is_rising = position <= self.step_ratio
        share = position / self.step_ratio if is_rising else (position - 1) / (self.step_ratio - 1)
        height = share * self._amplitude(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            highest = self.max_momentums[group]
            value = highest - (highest - self.base_momentums[group]) * height
            set_momentum(self.optimizer.param_groups[group], self.use_beta1, value)
        return base + (self.max_lrs[group] - base) * height

    def _amplitude(self, number: int) -> float:
        """The factor of the amplitude in a cycle or step."""
        if self.scale_fn is not None:
            return self.scale_fn(number)
        if self.mode == "triangular2":
            return 1 / 2.0 ** (number - 1)
        return self.gamma**number if self.mode == "exp_range" else 1.0

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer and functions."""
        state = {key: value for key, value in super().state_dict().items() if key != "scale_fn"}
        return {**state, "_scale_fn_custom": None}
