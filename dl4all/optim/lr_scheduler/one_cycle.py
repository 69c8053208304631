"""The learning rate of a whole training as one cycle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from dl4all.errors import ArgumentError
from dl4all.optim.lr_scheduler.base import LRScheduler
from dl4all.optim.optimizer import Optimizer


class OneCycleLR(LRScheduler):
    """Up to `max_lr` and down to almost nothing, one step for each batch; the momentum goes the other way.

    Smith and Topin, arXiv:1708.07120.

    Args:
        optimizer: whose rates are set.
        max_lr: the highest rate, or one for each group.
        total_steps: how many batches there are; or
        epochs, steps_per_epoch: in so many epochs of so many batches.
        pct_start: the share of steps that go up.
        anneal_strategy: along a cosine, or ``"linear"``.
        cycle_momentum: whether the momentum, or Adam's first beta, is changed.
        base_momentum, max_momentum: its lowest and highest value.
        div_factor: the highest rate over the first.
        final_div_factor: the first rate over the last.
        three_phase: down as fast as up, then to the end.
        last_epoch: as in :class:`LRScheduler`.

    Raises:
        ArgumentError: an option is out of its range, or more steps were made than there are.
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
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
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
        highest = list(max_lr) if isinstance(max_lr, Sequence) else [max_lr] * len(groups)
        if len(highest) != len(groups):
            raise ArgumentError(f"[OneCycleLR] {len(groups)} groups, but {len(highest)} rates")
        self.total_steps = total
        self.anneal_strategy = anneal_strategy
        self.momentum = ""  # the option that is changed
        if cycle_momentum:
            self.momentum = next((n for n in ("betas", "momentum") if n in optimizer.defaults), "")
            if not self.momentum:
                raise ArgumentError("[OneCycleLR] this optimizer has no momentum; pass cycle_momentum=False")
        up = pct_start * total - 1
        # Until which step, from and to which of a group's rates, and of the momenta.
        self.phases: list[tuple[float, str, str, float, float]] = [
            (up, "initial_lr", "max_lr", max_momentum, base_momentum)
        ]
        if three_phase:
            self.phases += [
                (2 * pct_start * total - 2, "max_lr", "initial_lr", base_momentum, max_momentum),
                (total - 1, "initial_lr", "min_lr", max_momentum, max_momentum),
            ]
        else:
            self.phases += [(total - 1, "max_lr", "min_lr", base_momentum, max_momentum)]
        if last_epoch == -1:
            for group, most in zip(groups, highest, strict=True):
                group["initial_lr"], group["max_lr"] = most / div_factor, most
                group["min_lr"] = group["initial_lr"] / final_div_factor
        super().__init__(optimizer, last_epoch)

    def _rate(self, lr: float, base: float, group: int) -> float:
        if self.last_epoch > self.total_steps:
            raise ArgumentError(
                f"[OneCycleLR] step {self.last_epoch} comes after the last of {self.total_steps}"
            )
        options = self.optimizer.param_groups[group]
        phases = self.phases
        number = next((i for i, phase in enumerate(phases) if self.last_epoch <= phase[0]), len(phases) - 1)
        start = phases[number - 1][0] if number else 0.0
        end, first, last, momentum, other = phases[number]
        share = (self.last_epoch - start) / (end - start) if end > start else 1.0
        if self.momentum:
            value = self._between(momentum, other, share)
            options[self.momentum] = value if self.momentum == "momentum" else (value, *options["betas"][1:])
        return self._between(options[first], options[last], share)

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2 * (math.cos(math.pi * share) + 1)
