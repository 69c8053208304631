"""Learning rates that fall when a metric stops improving."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from dl4all.errors import ArgumentError
from dl4all.optim.lr_scheduler.base import LRScheduler, per_group
from dl4all.optim.optimizer import Optimizer
from dl4all.optim.state.options import number, set_option


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rates by `factor` when a metric, such as the loss, has stopped improving.

    Args:
        optimizer: the optimizer whose rates are set.
        mode: ``"min"`` if a lower metric is better, ``"max"`` if a higher one is.
        factor: below 1.
        patience: the number of epochs without improvement that are tolerated.
        threshold: the least improvement that counts.
        threshold_mode: ``"rel"`` for a share of the best metric, ``"abs"`` for a difference.
        cooldown: the number of epochs after a change that do not count.
        min_lr: the lowest rate, or one for each group.
        eps: changes of a rate that are not larger than this are skipped.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.zeros(1)], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
        >>> for loss in (3.0, 2.0, 2.0, 2.0):
        ...     scheduler.step(loss)
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1:
            raise ArgumentError(f"[ReduceLROnPlateau] expected a factor below 1, got {factor}")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ArgumentError(f"[ReduceLROnPlateau] no such mode: {mode!r}, {threshold_mode!r}")
        self.min_lrs = per_group("ReduceLROnPlateau", "lowest rates", min_lr, optimizer)
        self.optimizer = optimizer
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.factor, self.patience, self.cooldown, self.eps = factor, patience, cooldown, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = [number(group["lr"]) for group in optimizer.param_groups]

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Update the rates by the metric of the last epoch.

        Args:
            metrics: a number, or a tensor of one element.
            epoch: the number of that epoch, the next one by default.
        """
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                rate = number(group["lr"])
                reduced = max(rate * self.factor, lowest)
                if rate - reduced > self.eps:
                    set_option(group, "lr", reduced)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [number(group["lr"]) for group in self.optimizer.param_groups]

    @property
    def in_cooldown(self) -> bool:
        """Whether epochs do not count, because the rates have changed not long ago."""
        return self.cooldown_counter > 0

    def _is_better(self, current: float) -> bool:
        """Whether a metric improves on the best one by more than the threshold."""
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "rel":
            return sign * current < sign * (self.best * (1 - sign * self.threshold))
        return sign * current < sign * self.best - self.threshold
