"""The one-cycle policy of learning rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from dl4all.errors import ArgumentError
from dl4all.optim.lr_scheduler.base import LRScheduler, has_betas, per_group, set_momentum
from dl4all.optim.optimizer import Optimizer


class OneCycleLR(LRScheduler):
    """Up to `max_lr` and down to almost 0, with a step for each batch; the momentum moves inversely.

    Smith and Topin, arXiv:1708.07120.

    Args:
        optimizer: the optimizer whose rates are set.
        max_lr: the highest rate, or one for each group.
        total_steps: the number of batches, unless given by the next two.
        epochs, steps_per_epoch: the number of epochs, and of batches in each.
        pct_start: the share of steps with rising rates.
        anneal_strategy: ``"cos"`` or ``"linear"``, the shape of the curve.
        cycle_momentum: whether to change the momentum, or Adam's first beta.
        base_momentum, max_momentum: the lowest and the highest momentum, or one for each group.
        div_factor: the highest rate divided by the first.
        final_div_factor: the first rate divided by the last.
        three_phase: fall as fast as the rise, then in a third phase to the last rate.
        last_epoch: as in :class:`LRScheduler`.

    Raises:
        ArgumentError: an option is out of its range, or there are more steps than `total_steps`.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.nn.Parameter(dl.zeros(1))], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=4)
        >>> rates = []
        >>> for _ in range(3):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [0.04, 0.8117, 0.2831]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        total = (epochs or 0) * (steps_per_epoch or 0) if total_steps is None else total_steps
        if total < 1:
            raise ArgumentError("[OneCycleLR] pass total_steps, or epochs and steps_per_epoch")
        if not 0 <= pct_start <= 1 or anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                f"[OneCycleLR] expected a share and 'cos' or 'linear', got {pct_start}, {anneal_strategy!r}"
            )
        groups = optimizer.param_groups
        max_lrs = per_group("OneCycleLR", "rates", max_lr, optimizer)
        self.total_steps = total
        self._anneal_func_type = anneal_strategy
        self.cycle_momentum = cycle_momentum
        self.use_beta1 = cycle_momentum and has_betas("OneCycleLR", optimizer)
        rise_end = float(pct_start * total) - 1
        self._schedule_phases = [_phase(rise_end, "initial_lr max_lr max_momentum base_momentum")]
        if three_phase:
            self._schedule_phases += [
                _phase(float(2 * pct_start * total) - 2, "max_lr initial_lr base_momentum max_momentum"),
                _phase(total - 1, "initial_lr min_lr max_momentum max_momentum"),
            ]
        else:
            self._schedule_phases += [_phase(total - 1, "max_lr min_lr base_momentum max_momentum")]
        if last_epoch == -1:
            lowest = per_group("OneCycleLR", "of base_momentum", base_momentum, optimizer)
            largest = per_group("OneCycleLR", "of max_momentum", max_momentum, optimizer)
            for index, (group, highest) in enumerate(zip(groups, max_lrs, strict=True)):
                group["initial_lr"], group["max_lr"] = highest / div_factor, highest
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    group["base_momentum"], group["max_momentum"] = lowest[index], largest[index]
        super().__init__(optimizer, last_epoch)

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        if self.last_epoch > self.total_steps:
            raise ArgumentError(
                f"[OneCycleLR] step {self.last_epoch} comes after the last of {self.total_steps}"
            )
        options = self.optimizer.param_groups[group]
        start = 0.0
        for phase in self._schedule_phases:
            if self.last_epoch <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        length = phase["end_step"] - start
        share = (self.last_epoch - start) / length if length > 0 else 1.0
        rate, momentum = (
            self._interpolate(options[phase[f"start_{what}"]], options[phase[f"end_{what}"]], share)
            if what == "lr" or self.cycle_momentum
            else 0.0
            for what in ("lr", "momentum")
        )
        if self.cycle_momentum:
            set_momentum(options, self.use_beta1, momentum)
        return rate

    def _interpolate(self, start: float, end: float, share: float) -> float:
        """The value at a share of the way, along the curve."""
        if self._anneal_func_type == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2 * (math.cos(math.pi * share) + 1)


def _phase(end: float, options: str) -> dict[str, Any]:
    """A phase: its last step, and the options of a group with its first and last rate and momentum."""
    names = ("start_lr", "end_lr", "start_momentum", "end_momentum")
    return {"end_step": end, **dict(zip(names, options.split(), strict=True))}
