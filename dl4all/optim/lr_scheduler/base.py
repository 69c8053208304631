"""The base class of learning rate schedulers, and what they share.

The constructor of a scheduler sets the rates of the first epoch, and each ``step()`` those of the next. Most
compute the next rate from the current one, so that several schedulers, or the user, may change it in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.optim.optimizer import Optimizer
from dl4all.optim.state.options import number, set_option
from dl4all.tensor.arguments import checked_state


class LRScheduler:
    """Base class of schedulers: a subclass computes the next rate from the current one.

    A scheduler of a user's own overrides :meth:`get_lr`, which may use ``self.last_epoch``,
    ``self.base_lrs`` and ``self.optimizer``.

    Args:
        optimizer: the optimizer whose groups' ``"lr"`` is set.
        last_epoch: the last finished epoch, to continue with a saved optimizer; -1 to start.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> class InverseRoot(dl.optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         return [base / (self.last_epoch + 1) ** 0.5 for base in self.base_lrs]
        >>> scheduler = InverseRoot(dl.optim.SGD([dl.zeros(1)], lr=1.0))
        >>> for epoch in range(3):
        ...     scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(
                f"[{type(self).__name__}] expected an optimizer, got {type(optimizer).__name__}"
            )
        self.optimizer = optimizer
        for index, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", number(group["lr"]))
            elif "initial_lr" not in group:
                raise ArgumentError(
                    f"[{type(self).__name__}] group {index} has no initial_lr to go on from; load the "
                    "optimizer's state first"
                )
        self.base_lrs = [number(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._is_initial = True  # the first step sets the rates of the first epoch
        self.step()
        self._is_initial = False

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        """The rate of epoch ``last_epoch``, after a rate of `lr` in the epoch before."""
        raise NotImplementedError(f"[{type(self).__name__}] define get_lr()")

    def _rate_of_epoch(self, base: float, group: int) -> float:
        """The rate of epoch ``last_epoch``, independent of the current rate where there is a formula."""
        current = base if self._is_initial else number(self.optimizer.param_groups[group]["lr"])
        return self._next_rate(current, base, group)

    def get_lr(self) -> list[float]:
        """The rates of epoch ``last_epoch`` after the current ones; :meth:`get_last_lr` gives the current."""
        groups = self.optimizer.param_groups
        return [
            self._next_rate(number(group["lr"]), base, index)
            for index, (group, base) in enumerate(zip(groups, self.base_lrs, strict=True))
        ]

    def step(self, epoch: int | None = None) -> None:
        """Set the rates of the next epoch.

        Args:
            epoch: set those of this epoch instead; schedulers without a formula for it take it as the next.
        """
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            self._set_rates(self.get_lr())
        else:
            self._set_epoch(epoch)

    def _set_epoch(self, epoch: int) -> None:
        """Set the rates of an epoch."""
        self.last_epoch = epoch
        if type(self).get_lr is LRScheduler.get_lr:
            self._set_rates([self._rate_of_epoch(base, group) for group, base in enumerate(self.base_lrs)])
        else:
            self._set_rates(self.get_lr())

    def _restart(self) -> None:
        """Set the rates of epoch 0."""
        self._is_initial = True
        self._set_epoch(0)
        self._is_initial = False

    def _set_rates(self, rates: Sequence[float]) -> None:
        """Set the rate of each group."""
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            set_option(group, "lr", lr)
        self._last_lr = [float(lr) for lr in rates]

    def get_last_lr(self) -> list[float]:
        """The rate of each group."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer and functions."""
        return {key: value for key, value in vars(self).items() if key not in ("optimizer", "lr_lambdas")}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what :meth:`state_dict` returned, or PyTorch's; load the optimizer's state too.

        Nothing changes unless everything fits.

        Raises:
            ArgumentError: it is no state of this class with as many groups.
        """
        self._check_state(state_dict)
        vars(self).update({key: value for key, value in state_dict.items() if key not in FOREIGN})

    def _check_state(self, state_dict: Any) -> None:
        """Raise an ArgumentError unless a state can be loaded."""
        check_scheduler_state(self, state_dict)


FOREIGN = ("_get_lr_called_within_step", "lr_lambdas", "_scale_fn_custom", "mode_worse")
"""Entries of PyTorch's states of schedulers on which nothing here depends."""

PER_GROUP = ("base_lrs", "_last_lr", "min_lrs", "max_lrs", "base_momentums", "max_momentums")
"""Attributes of schedulers that have an entry for each group of the optimizer."""


def check_scheduler_state(scheduler: Any, state: Any) -> None:
    """Raise unless a state is one of a scheduler's class and of as many groups.

    Raises:
        ArgumentError
    """
    name = type(scheduler).__name__
    own = {key: value for key, value in scheduler.state_dict().items() if key not in FOREIGN}
    found = checked_state(name, state, own)
    if unknown := [str(key) for key in found if key not in own and key not in FOREIGN]:
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


def has_betas(scheduler: str, optimizer: Optimizer) -> bool:
    """Whether the momentum of an optimizer is the first of its ``"betas"``, not its ``"momentum"``.

    Raises:
        ArgumentError: it has neither.
    """
    if "betas" not in optimizer.defaults and "momentum" not in optimizer.defaults:
        raise ArgumentError(f"[{scheduler}] this optimizer has no momentum; pass cycle_momentum=False")
    return "betas" in optimizer.defaults


def set_momentum(group: dict[str, Any], use_beta1: bool, value: float) -> None:
    """Set the momentum of a group, or the first of its betas."""
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value
