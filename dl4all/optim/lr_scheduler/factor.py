"""Schedules that multiply the rate by a factor: constant, linear, exponential, polynomial, or the user's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.optim.lr_scheduler.base import LRScheduler
from dl4all.optim.optimizer import Optimizer

Factor = Callable[[int], float]


class LambdaLR(LRScheduler):
    """The initial rate times a function of the epoch.

    Args:
        optimizer: the optimizer whose rates are set.
        lr_lambda: a function, or one for each group.
        last_epoch: as in :class:`LRScheduler`.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.nn.Parameter(dl.zeros(1))], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (epoch + 1))
        >>> rates = []
        >>> for _ in range(3):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [1.0, 0.5, 0.3333]
    """

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ArgumentError(f"[LambdaLR] {groups} groups, but {len(self.lr_lambdas)} functions")
        super().__init__(optimizer, last_epoch)

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        return base * self.lr_lambdas[group](self.last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer; functions are not saved, None stands for each."""
        return {**super().state_dict(), "lr_lambdas": [None] * len(self.lr_lambdas)}


class MultiplicativeLR(LambdaLR):
    """Multiplies the rate by a function of the epoch, in every epoch but the first.

    Args:
        optimizer: the optimizer whose rates are set.
        lr_lambda: a function, or one for each group.
        last_epoch: as in :class:`LRScheduler`.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.nn.Parameter(dl.zeros(1))], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
        >>> rates = []
        >>> for _ in range(3):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [1.0, 0.5, 0.25]
    """

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        return lr if self._is_initial else lr * self.lr_lambdas[group](self.last_epoch)


class StepLR(LRScheduler):
    """Multiplies the rate by `gamma` every `step_size` epochs.

    Args:
        optimizer: the optimizer whose rates are set.
        step_size: the number of epochs between changes.
        gamma: the factor.
        last_epoch: as in :class:`LRScheduler`.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.zeros(1)], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        >>> rates = []
        >>> for epoch in range(5):
        ...     rates += scheduler.get_last_lr()
        ...     scheduler.step()
        >>> rates
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        if step_size < 1:
            raise ArgumentError(f"[StepLR] expected a step_size of at least 1, got {step_size}")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        is_step = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return lr * self.gamma if is_step else lr

    def _rate_of_epoch(self, base: float, group: int) -> float:
        return float(base * self.gamma ** (self.last_epoch // self.step_size))


class MultiStepLR(LRScheduler):
    """Multiplies the rate by `gamma` at each of the given epochs.

    Args:
        optimizer: the optimizer whose rates are set.
        milestones: the epochs; one that is given twice counts twice.
        gamma: the factor.
        last_epoch: as in :class:`LRScheduler`.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.nn.Parameter(dl.zeros(1))], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 2], gamma=0.5)
        >>> rates = []
        >>> for _ in range(3):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [1.0, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        count = self.milestones[self.last_epoch]
        return lr * self.gamma**count if count else lr

    def _rate_of_epoch(self, base: float, group: int) -> float:
        passed = sum(count for epoch, count in self.milestones.items() if epoch <= self.last_epoch)
        return float(base * self.gamma**passed)


class ConstantLR(LRScheduler):
    """Multiplies the rate by `factor` until epoch `total_iters`.

    Args:
        optimizer: the optimizer whose rates are set.
        factor: above 0 and at most 1.
        total_iters: the number of epochs with the factor.
        last_epoch: as in :class:`LRScheduler`.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.nn.Parameter(dl.zeros(1))], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
        >>> rates = []
        >>> for _ in range(3):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [0.5, 0.5, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 < factor <= 1:
            raise ArgumentError(f"[ConstantLR] expected a factor above 0 and at most 1, got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        if self.last_epoch == 0:
            return lr * self.factor
        return lr * (1 / self.factor) if self.last_epoch == self.total_iters else lr

    def _rate_of_epoch(self, base: float, group: int) -> float:
        return base * self.factor if self.last_epoch < self.total_iters else base


class LinearLR(LRScheduler):
    """Multiplies the initial rate by a factor that changes linearly in `total_iters` epochs.

    Args:
        optimizer: the optimizer whose rates are set.
        start_factor: the factor in the first epoch, above 0 and at most 1.
        end_factor: the factor in the last epoch, from 0 to 1.
        total_iters: the number of epochs until `end_factor` is reached.
        last_epoch: as in :class:`LRScheduler`.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.nn.Parameter(dl.zeros(1))], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
        >>> rates = []
        >>> for _ in range(3):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [0.5, 0.75, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not (0 < start_factor <= 1 and 0 <= end_factor <= 1):
            raise ArgumentError(f"[LinearLR] expected factors up to 1, got {start_factor} and {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        if self.last_epoch == 0:
            return lr * self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        slope = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * slope
        return lr * (1 + slope / before)

    def _rate_of_epoch(self, base: float, group: int) -> float:
        share = min(1.0, self.last_epoch / self.total_iters) if self.total_iters else 1.0
        return base * (self.start_factor + (self.end_factor - self.start_factor) * share)


class ExponentialLR(LRScheduler):
    """Multiplies the rate by `gamma` every epoch.

    Args:
        optimizer: the optimizer whose rates are set.
        gamma: the factor.
        last_epoch: as in :class:`LRScheduler`.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.nn.Parameter(dl.zeros(1))], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> rates = []
        >>> for _ in range(3):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [1.0, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        return lr if self._is_initial else lr * self.gamma

    def _rate_of_epoch(self, base: float, group: int) -> float:
        return float(base * self.gamma**self.last_epoch)


class PolynomialLR(LRScheduler):
    """Falls to 0 in `total_iters` epochs, as a power of the share of epochs left.

    Args:
        optimizer: the optimizer whose rates are set.
        total_iters: the number of epochs until 0.
        power: the exponent; 1 is linear.
        last_epoch: as in :class:`LRScheduler`.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.nn.Parameter(dl.zeros(1))], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
        >>> rates = []
        >>> for _ in range(3):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [1.0, 0.75, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        left, before = (1 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1))
        return float(lr * (left / before) ** self.power)

    def _rate_of_epoch(self, base: float, group: int) -> float:
        return float(base * (1.0 - min(1.0, self.last_epoch / self.total_iters)) ** self.power)
