"""Schedulers that combine others: one after another, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.optim.lr_scheduler.base import FOREIGN, LRScheduler, check_scheduler_state, check_states
from dl4all.optim.lr_scheduler.plateau import ReduceLROnPlateau
from dl4all.optim.optimizer import Optimizer
from dl4all.optim.state.options import number, set_option


def _is_member(scheduler: Any, optimizer: Optimizer | None) -> bool:
    """Whether a scheduler steps by epochs, and is of an optimizer."""
    return (
        isinstance(scheduler, LRScheduler)
        and not isinstance(scheduler, ReduceLROnPlateau)
        and scheduler.optimizer is optimizer
    )


def _check_no_epoch(scheduler: LRScheduler, epoch: int | None) -> None:
    if epoch is not None:
        raise ArgumentError(f"[{type(scheduler).__name__}] step() goes to the next epoch only; got {epoch}")


class SequentialLR(LRScheduler):
    """One scheduler after another.

    Args:
        optimizer: the optimizer whose rates are set.
        schedulers: schedulers of this optimizer.
        milestones: the epochs in which the second, the third, ... scheduler begins; each counts from 0.
        last_epoch: the last finished epoch; load a saved state to continue with schedulers in its midst.

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
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"[SequentialLR] {len(schedulers)} schedulers need one milestone less, got {len(milestones)}"
            )
        if any(not _is_member(s, optimizer) for s in schedulers):
            raise ArgumentError("[SequentialLR] all schedulers must be of this optimizer, and step by epochs")
        self.optimizer = optimizer
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        for group in optimizer.param_groups:  # the constructors of the schedulers have changed the rates
            set_option(group, "lr", number(group["initial_lr"]))
        self.last_epoch = last_epoch
        self._last_lr: list[float] = []
        self.step()

    def step(self, epoch: int | None = None) -> None:
        """Set the rates of the next epoch.

        Raises:
            ArgumentError: an epoch is given, which only single schedulers take.
        """
        _check_no_epoch(self, epoch)
        self.last_epoch += 1
        number = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if self.last_epoch == (self._milestones[number - 1] if number else 0):
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
            "_milestones": self._milestones,
            "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what :meth:`state_dict` returned; load the optimizer's state too.

        Nothing changes unless everything fits.

        Raises:
            ArgumentError: it is no state of this class with as many groups.
        """
        self._check_state(state_dict)
        vars(self).update(
            {key: value for key, value in state_dict.items() if key != "_schedulers" and key not in FOREIGN}
        )
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)

    def _check_state(self, state_dict: Any) -> None:
        """Raise an ArgumentError unless a state can be loaded."""
        check_scheduler_state(self, state_dict)
        check_states(self, self._schedulers, state_dict["_schedulers"])


class ChainedScheduler(LRScheduler):
    """Several schedulers that step together; each changes the rates that the one before has set.

    Args:
        schedulers: at least one, all of the same optimizer.
        optimizer: their optimizer.

    Raises:
        ArgumentError: there is no scheduler, or one belongs to another optimizer or does not step by epochs.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.optim.lr_scheduler import ChainedScheduler, ConstantLR, ExponentialLR
        >>> optimizer = dl.optim.SGD([dl.zeros(1)], lr=1.0)
        >>> chain = ChainedScheduler([ConstantLR(optimizer, 0.5, 1), ExponentialLR(optimizer, 0.5)])
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates += chain.get_last_lr()
        ...     chain.step()
        >>> rates
        [0.5, 0.5, 0.25]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ArgumentError("[ChainedScheduler] expected at least one scheduler, got none")
        expected = getattr(schedulers[0], "optimizer", None) if optimizer is None else optimizer
        if any(not _is_member(s, expected) for s in schedulers):
            raise ArgumentError(
                "[ChainedScheduler] all schedulers must be of one optimizer, and step by epochs"
            )
        self.optimizer = schedulers[0].optimizer
        self._schedulers = list(schedulers)
        self._last_lr = [number(group["lr"]) for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Set the rates of the next epoch.

        Raises:
            ArgumentError: an epoch is given, which only single schedulers take.
        """
        _check_no_epoch(self, epoch)
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = [number(group["lr"]) for group in self.optimizer.param_groups]

    def _restart(self) -> None:
        for scheduler in self._schedulers:
            scheduler._restart()
        self._last_lr = [number(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The rates, and the state of each scheduler."""
        states = [scheduler.state_dict() for scheduler in self._schedulers]
        return {"_last_lr": self._last_lr, "_schedulers": states}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what :meth:`state_dict` returned; load the optimizer's state too.

        Nothing changes unless everything fits.

        Raises:
            ArgumentError: it is no state of this class with as many groups.
        """
        self._check_state(state_dict)
        self._last_lr = state_dict["_last_lr"]
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)

    def _check_state(self, state_dict: Any) -> None:
        """Raise an ArgumentError unless a state can be loaded."""
        check_scheduler_state(self, state_dict)
        check_states(self, self._schedulers, state_dict["_schedulers"])
