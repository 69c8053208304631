"""Learning rates that go up and down again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from dl4all.errors import ArgumentError
from dl4all.optim.lr_scheduler.base import LRScheduler
from dl4all.optim.optimizer import Optimizer

MODES = ("triangular", "triangular2", "exp_range")


class CyclicLR(LRScheduler):
    """From `base_lr` to `max_lr` and back in straight lines, a step for each batch; the momentum otherwise.

    Smith, arXiv:1506.01186.

    Args:
        optimizer: whose rates are set.
        base_lr, max_lr: the lowest and the highest rate, or one for each group.
        step_size_up: in how many steps it goes up.
        step_size_down: in how many down; as many by default.
        mode: "triangular" for equal heights, "triangular2" for half the height in each cycle, "exp_range"
            for heights times `gamma` to the power of the step.
        gamma: as above.
        scale_fn: what the height is multiplied by, instead of what the mode says.
        scale_mode: whether it is called with the number of the "cycle", from 1 on, or of the step,
            "iterations".
        cycle_momentum: whether the momentum, or Adam's first beta, is changed.
        base_momentum, max_momentum: its lowest and highest value, or one for each group.
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
        self.max_lrs = _each("max_lr", max_lr, len(groups))
        lowest = _each("base_lr", base_lr, len(groups))
        self.momentum = ""  # the option that is changed
        if cycle_momentum:
            self.momentum = next((n for n in ("betas", "momentum") if n in optimizer.defaults), "")
            if not self.momentum:
                raise ArgumentError("[CyclicLR] this optimizer has no momentum; pass cycle_momentum=False")
        self.base_momentums = _each("base_momentum", base_momentum, len(groups))
        self.max_momentums = _each("max_momentum", max_momentum, len(groups))
        if last_epoch == -1:
            for group, lr in zip(groups, lowest, strict=True):
                group["lr"] = group["initial_lr"] = lr
        super().__init__(optimizer, last_epoch)

    def _rate(self, lr: float, base: float, group: int) -> float:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        place = 1.0 + self.last_epoch / self.total_size - cycle
        rising = place <= self.step_ratio
        share = place / self.step_ratio if rising else (place - 1) / (self.step_ratio - 1)
        height = share * self._height(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.momentum:
            options, most = self.optimizer.param_groups[group], self.max_momentums[group]
            value = most - (most - self.base_momentums[group]) * height
            options[self.momentum] = value if self.momentum == "momentum" else (value, *options["betas"][1:])
        return base + (self.max_lrs[group] - base) * height

    def _height(self, number: int) -> float:
        if self.scale_fn is not None:
            return self.scale_fn(number)
        if self.mode == "triangular2":
            return 1 / 2.0 ** (number - 1)
        return self.gamma**number if self.mode == "exp_range" else 1.0

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer, and functions."""
        return {key: value for key, value in super().state_dict().items() if key != "scale_fn"}


def _each(name: str, value: float | Sequence[float], groups: int) -> list[float]:
    """One for each group.

    Raises:
        ArgumentError: there are more or fewer.
    """
    found = list(value) if isinstance(value, Sequence) else [value] * groups
    if len(found) != groups:
        raise ArgumentError(f"[CyclicLR] {groups} groups, but {len(found)} of {name}")
    return found


class ChainedScheduler(LRScheduler):
    """Several schedulers that step together, each going on from the rates that the one before has set.

    Args:
        schedulers: at least one, all of one optimizer.
        optimizer: theirs.

    Raises:
        ArgumentError: there is none, or one belongs to another optimizer or does not step by epochs.

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
        own = getattr(schedulers[0], "optimizer", None) if optimizer is None else optimizer
        if any(not isinstance(s, LRScheduler) or s.optimizer is not own for s in schedulers):
            raise ArgumentError(
                "[ChainedScheduler] all schedulers must be of one optimizer, and step by epochs"
            )
        self.optimizer = schedulers[0].optimizer
        self.schedulers = list(schedulers)
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self) -> None:
        """Set the rates of the next epoch."""
        for scheduler in self.schedulers:
            scheduler.step()
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _restart(self) -> None:
        for scheduler in self.schedulers:
            scheduler._restart()
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The rates, and the state of each scheduler."""
        states = [scheduler.state_dict() for scheduler in self.schedulers]
        return {"_last_lr": self._last_lr, "schedulers": states}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave; load the optimizer's state too."""
        self._last_lr = state_dict["_last_lr"]
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)
