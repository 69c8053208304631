"""The base class of learning rate schedulers, and what they share.

The constructor of a scheduler sets the rates of the first epoch, and each ``step()`` those of the next. Most
compute the next rate from the current one, so that several schedulers, or the user, may change it in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.optim.optimizer import Optimizer
from dl4all.tensor.arguments import checked_state


class LRScheduler:
    """Base class of schedulers: a subclass computes the next rate from the current one.

    Args:
        optimizer: the optimizer whose groups' ``"lr"`` is set.
        last_epoch: the last finished epoch, to continue with a saved optimizer; -1 to start.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.nn.Parameter(dl.zeros(1))], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> isinstance(scheduler, dl.optim.lr_scheduler.LRScheduler), scheduler.get_last_lr()
        (True, [0.5])
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

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        """The rate of epoch ``last_epoch``, after a rate of `lr` in the epoch before."""
        raise NotImplementedError

    def _first_rate(self, base: float, group: int) -> float:
        """The rate of epoch 0, independent of the current rate."""
        return self._next_rate(base, base, group)

    def step(self) -> None:
        """Set the rates of the next epoch."""
        self.last_epoch += 1
        self._set_rates(self._next_rate)
        self._begins = False

    def _restart(self) -> None:
        """Set the rates of epoch 0."""
        self.last_epoch = 0
        self._begins = True
        self._set_rates(lambda lr, base, group: self._first_rate(base, group))
        self._begins = False

    def _set_rates(self, rate: Callable[[float, float, int], float]) -> None:
        """Set the rate of each group to ``rate(current, base, number of the group)``."""
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
        """All attributes but the optimizer and functions."""
        return {key: value for key, value in vars(self).items() if key not in ("optimizer", "lr_lambdas")}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what :meth:`state_dict` returned; load the optimizer's state too.

        Nothing changes unless everything fits.

        Raises:
            ArgumentError: it is no state of this class with as many groups.
        """
        self._check_state(state_dict)
        vars(self).update(state_dict)

    def _check_state(self, state_dict: Any) -> None:
        """Raise an ArgumentError unless a state can be loaded."""
        check_scheduler_state(self, state_dict)


PER_GROUP = ("base_lrs", "_last_lr", "min_lrs", "max_lrs", "base_momentums", "max_momentums")
"""Attributes of schedulers that have an entry for each group of the optimizer."""


def check_scheduler_state(scheduler: Any, state: Any) -> None:
    """Raise unless a state is one of a scheduler's class and of as many groups.

    Raises:
        ArgumentError
    """
    name, own = type(scheduler).__name__, scheduler.state_dict()
    found = checked_state(name, state, own)
    if unknown := [str(key) for key in found if key not in own]:
        raise ArgumentError(f"[{name}] this is no state of a {name}: it has {', '.join(unknown)}, too")
    groups = len(scheduler.optimizer.param_groups)
    for key, value in own.items():
        if not _is_alike(value, found[key]):
            raise ArgumentError(
                f"[{name}] the state's {key} is {found[key]!r:.100}, where this one has {value!r:.100}"
            )
        if key in PER_GROUP and len(found[key]) != groups:
            raise ArgumentError(f"[{name}] {groups} groups, but the state's {key} has {len(found[key])}")


def check_states(scheduler: Any, members: Sequence[Any], states: Any) -> None:
    """Raise unless these are states of the members of a scheduler.

    Raises:
        ArgumentError
    """
    if not isinstance(states, (list, tuple)) or len(states) != len(members):
        count = len(states) if isinstance(states, (list, tuple)) else states
        raise ArgumentError(
            f"[{type(scheduler).__name__}] {len(members)} schedulers, but the state has {count!r:.100}"
        )
    for member, state in zip(members, states, strict=True):
        member._check_state(state)


def _is_alike(own: Any, saved: Any) -> bool:
    """Whether a saved value can stand for one of a scheduler's own. None stands for anything."""
    if own is None or saved is None:
        return True
    if isinstance(own, (list, tuple)):
        last = len(own) - 1
        return isinstance(saved, (list, tuple)) and (
            last < 0 or all(_is_alike(own[min(i, last)], entry) for i, entry in enumerate(saved))
        )
    for kinds in (Mapping, str, (int, float)):
        if isinstance(own, kinds):
            return isinstance(saved, kinds)
    return isinstance(saved, type(own))


def per_group(scheduler: str, what: str, value: float | Sequence[float], optimizer: Optimizer) -> list[float]:
    """A value for each group of the optimizer, of one number or of as many as there are groups.

    Raises:
        ArgumentError: there are more or fewer values than groups.
    """
    groups = len(optimizer.param_groups)
    values = list(value) if isinstance(value, Sequence) else [value] * groups
    if len(values) != groups:
        raise ArgumentError(f"[{scheduler}] {groups} groups, but {len(values)} {what}")
    return values


def momentum_option(scheduler: str, optimizer: Optimizer) -> str:
    """The option of the optimizer that holds the momentum: ``"betas"`` or ``"momentum"``.

    Raises:
        ArgumentError: it has neither.
    """
    option = next((name for name in ("betas", "momentum") if name in optimizer.defaults), "")
    if not option:
        raise ArgumentError(f"[{scheduler}] this optimizer has no momentum; pass cycle_momentum=False")
    return option


def set_momentum(group: dict[str, Any], option: str, value: float) -> None:
    """Set the momentum of a group, or the first of its betas."""
    group[option] = value if option == "momentum" else (value, *group["betas"][1:])
