"""What all schedules of learning rates share, and one after another.

A scheduler sets the rates when it is made, and each ``step()`` after an epoch sets the next ones. Most go
from the present rate to the next, so that several of them, or the user, may change it in turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.optim.optimizer import Optimizer


class LRScheduler:
    """Base class: a subclass says how a rate follows from the one before.

    Args:
        optimizer: whose groups' ``"lr"`` is set.
        last_epoch: the epoch before the next, to go on from a saved optimizer; -1 to begin.

    Raises:
        ArgumentError: an option is out of its range.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ArgumentError(
                    f"[{type(self).__name__}] group {number} has no initial_lr to go on from; load the "
                    "optimizer's state first"
                )
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._begins = True  # the first step sets the rates of the first epoch
        self.step()

    def _rate(self, lr: float, base: float, group: int) -> float:
        """The rate of epoch ``last_epoch``, where it was `lr` in the epoch before."""
        raise NotImplementedError

    def _first(self, base: float, group: int) -> float:
        """The rate of epoch 0, whatever was before."""
        return self._rate(base, base, group)

    def step(self) -> None:
        """Set the rates of the next epoch."""
        self.last_epoch += 1
        self._set(self._rate)
        self._begins = False

    def _restart(self) -> None:
        """Set the rates of epoch 0."""
        self.last_epoch = 0
        self._begins = True
        self._set(lambda lr, base, group: self._first(base, group))
        self._begins = False

    def _set(self, rate: Callable[[float, float, int], float]) -> None:
        groups = self.optimizer.param_groups
        self._last_lr = [
            rate(group["lr"], base, number)
            for number, (group, base) in enumerate(zip(groups, self.base_lrs, strict=True))
        ]
        for group, lr in zip(groups, self._last_lr, strict=True):
            group["lr"] = lr

    def get_last_lr(self) -> list[float]:
        """The rate of each group."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer, and functions."""
        return {key: value for key, value in vars(self).items() if key not in ("optimizer", "lr_lambdas")}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave; load the optimizer's state too."""
        vars(self).update(state_dict)


class SequentialLR(LRScheduler):
    """One scheduler after another.

    Args:
        optimizer: whose rates are set.
        schedulers: all of this optimizer.
        milestones: the epochs in which the second, the third, ... begin, counting from 0 for each.

    Raises:
        ArgumentError: the numbers do not fit, or a scheduler belongs to another optimizer.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.optim.lr_scheduler import ExponentialLR, LinearLR, SequentialLR
        >>> optimizer = dl.optim.SGD([dl.zeros(1)], lr=1.0)
        >>> warm, fall = LinearLR(optimizer, 0.5, total_iters=2), ExponentialLR(optimizer, 0.5)
        >>> scheduler = SequentialLR(optimizer, [warm, fall], milestones=[2])
        >>> rates = []
        >>> for epoch in range(5):
        ...     rates += scheduler.get_last_lr()
        ...     scheduler.step()
        >>> rates
        [0.5, 0.75, 1.0, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"[SequentialLR] {len(schedulers)} schedulers need one milestone less, got {len(milestones)}"
            )
        if any(not isinstance(s, LRScheduler) or s.optimizer is not optimizer for s in schedulers):
            raise ArgumentError("[SequentialLR] all schedulers must be of this optimizer, and step by epochs")
        self.optimizer = optimizer
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        for group in optimizer.param_groups:  # which all schedulers have changed as they were made
            group["lr"] = group["initial_lr"]
        self.last_epoch = -1
        self._last_lr: list[float] = []
        self.step()

    def step(self) -> None:
        """Set the rates of the next epoch."""
        self.last_epoch += 1
        number = bisect_right(self.milestones, self.last_epoch)
        scheduler = self.schedulers[number]
        if self.last_epoch == (self.milestones[number - 1] if number else 0):
            scheduler._restart()
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def _restart(self) -> None:
        self.last_epoch = -1
        self.step()

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and the state of each scheduler."""
        return {
            "last_epoch": self.last_epoch,
            "_last_lr": self._last_lr,
            "milestones": self.milestones,
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave; load the optimizer's state too."""
        vars(self).update({key: value for key, value in state_dict.items() if key != "schedulers"})
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)
