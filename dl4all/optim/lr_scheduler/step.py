"""Schedules that are a factor of the first rate for each epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from dl4all.errors import ArgumentError
from dl4all.optim.lr_scheduler.base import LRScheduler
from dl4all.optim.optimizer import Optimizer

Factor = Callable[[int], float]


class LambdaLR(LRScheduler):
    """The first rate times what a function of the epoch returns.

    Args:
        optimizer: whose rates are set.
        lr_lambda: a function, or one for each group.
        last_epoch: as in :class:`LRScheduler`.
    """

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ArgumentError(f"[LambdaLR] {groups} groups, but {len(self.lr_lambdas)} functions")
        super().__init__(optimizer, last_epoch)

    def _rate(self, lr: float, base: float, group: int) -> float:
        return base * self.lr_lambdas[group](self.last_epoch)


class MultiplicativeLR(LambdaLR):
    """Times what a function of the epoch returns, in every epoch but the first.

    Args:
        optimizer: whose rates are set.
        lr_lambda: a function, or one for each group.
        last_epoch: as in :class:`LRScheduler`.
    """

    def _rate(self, lr: float, base: float, group: int) -> float:
        return lr if self._begins else lr * self.lr_lambdas[group](self.last_epoch)


class StepLR(LRScheduler):
    """Times `gamma` after every `step_size` epochs.

    Args:
        optimizer: whose rates are set.
        step_size: so many epochs.
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

    def _rate(self, lr: float, base: float, group: int) -> float:
        falls = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return lr * self.gamma if falls else lr


class MultiStepLR(LRScheduler):
    """Times `gamma` at each of some epochs.

    Args:
        optimizer: whose rates are set.
        milestones: the epochs; one that is named twice counts twice.
        gamma: the factor.
        last_epoch: as in :class:`LRScheduler`.
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, lr: float, base: float, group: int) -> float:
        times = self.milestones.count(self.last_epoch)
        return lr * self.gamma**times if times else lr


class ConstantLR(LRScheduler):
    """Times `factor` until epoch `total_iters`.

    Args:
        optimizer: whose rates are set.
        factor: from 0 to 1.
        total_iters: so many epochs.
        last_epoch: as in :class:`LRScheduler`.
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 < factor <= 1:
            raise ArgumentError(f"[ConstantLR] expected a factor above 0 and at most 1, got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _rate(self, lr: float, base: float, group: int) -> float:
        if self.last_epoch == 0:
            return lr * self.factor
        return lr * (1 / self.factor) if self.last_epoch == self.total_iters else lr

    def _first(self, base: float, group: int) -> float:
        return base * self.factor if self.total_iters > 0 else base


class LinearLR(LRScheduler):
    """Times a factor that goes from one to another, evenly, in `total_iters` epochs.

    Args:
        optimizer: whose rates are set.
        start_factor: in the first epoch, above 0 and at most 1.
        end_factor: in the last, from 0 to 1.
        total_iters: so many epochs.
        last_epoch: as in :class:`LRScheduler`.
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

    def _rate(self, lr: float, base: float, group: int) -> float:
        if self.last_epoch == 0:
            return lr * self.start_factor
        if self._begins or self.last_epoch > self.total_iters:
            return lr
        slope = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * slope
        return lr * (1 + slope / before)


class ExponentialLR(LRScheduler):
    """Times `gamma` in every epoch.

    Args:
        optimizer: whose rates are set.
        gamma: the factor.
        last_epoch: as in :class:`LRScheduler`.
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, lr: float, base: float, group: int) -> float:
        return lr if self._begins else lr * self.gamma


class PolynomialLR(LRScheduler):
    """Falls to 0 in `total_iters` epochs, as a power of those that are left.

    Args:
        optimizer: whose rates are set.
        total_iters: so many epochs.
        power: 1 is a straight line.
        last_epoch: as in :class:`LRScheduler`.
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _rate(self, lr: float, base: float, group: int) -> float:
        if self._begins or self.last_epoch > self.total_iters:
            return lr
        left, before = (1 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1))
        return float(lr * (left / before) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """Along half a cosine from the first rate to `eta_min` in `T_max` epochs, and back in as many.

    Loshchilov and Hutter, arXiv:1608.03983.

    Args:
        optimizer: whose rates are set.
        T_max: so many epochs.
        eta_min: the lowest rate.
        last_epoch: as in :class:`LRScheduler`.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_max < 1:
            raise ArgumentError(f"[CosineAnnealingLR] expected a T_max of at least 1, got {T_max}")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _rate(self, lr: float, base: float, group: int) -> float:
        if self._begins:
            return lr
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # from the lowest up again
            return lr + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
        now, before = (
            1 + math.cos(math.pi * epoch / self.T_max) for epoch in (self.last_epoch, self.last_epoch - 1)
        )
        return now / before * (lr - self.eta_min) + self.eta_min


class CosineAnnealingWarmRestarts(LRScheduler):
    """Along half a cosine to `eta_min`, then from the first rate anew, each time `T_mult` times longer.

    Loshchilov and Hutter, arXiv:1608.03983.

    Args:
        optimizer: whose rates are set.
        T_0: so many epochs until the first restart.
        T_mult: by which factor the next round is longer.
        eta_min: the lowest rate.
        last_epoch: as in :class:`LRScheduler`.
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 < 1 or T_mult < 1:
            raise ArgumentError(
                f"[CosineAnnealingWarmRestarts] T_0 and T_mult must be at least 1, got {T_0} and {T_mult}"
            )
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def _rate(self, lr: float, base: float, group: int) -> float:
        place, length = self.last_epoch, self.T_0
        if self.T_mult == 1:
            place %= length
        while place >= length:
            place -= length
            length *= self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * place / length)) / 2
