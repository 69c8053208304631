"""Cosine annealing, with and without restarts."""

from __future__ import annotations

import math

from dl4all.errors import ArgumentError
from dl4all.optim.lr_scheduler.base import LRScheduler
from dl4all.optim.optimizer import Optimizer


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to `eta_min` in `T_max` epochs, and back in as many.

    Loshchilov and Hutter, arXiv:1608.03983.

    Args:
        optimizer: the optimizer whose rates are set.
        T_max: the number of epochs until the lowest rate.
        eta_min: the lowest rate.
        last_epoch: as in :class:`LRScheduler`.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.nn.Parameter(dl.zeros(1))], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
        >>> rates = []
        >>> for _ in range(3):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [1.0, 0.5, 0.0]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_max < 1:
            raise ArgumentError(f"[CosineAnnealingLR] expected a T_max of at least 1, got {T_max}")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        if self._is_initial:
            return lr
        # The rate rises again from the lowest one, where the recurrence would divide by 0.
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            return lr + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
        now, before = (
            1 + math.cos(math.pi * epoch / self.T_max) for epoch in (self.last_epoch, self.last_epoch - 1)
        )
        return now / before * (lr - self.eta_min) + self.eta_min

    def _rate_of_epoch(self, base: float, group: int) -> float:
        return (
            self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        )


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine to `eta_min`, repeated from the initial rate, each time `T_mult` times longer.

    Loshchilov and Hutter, arXiv:1608.03983.

    Args:
        optimizer: the optimizer whose rates are set.
        T_0: the number of epochs until the first restart.
        T_mult: the factor of the length of the next period.
        eta_min: the lowest rate.
        last_epoch: as in :class:`LRScheduler`.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.nn.Parameter(dl.zeros(1))], lr=1.0)
        >>> scheduler = dl.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
        >>> rates = []
        >>> for _ in range(3):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [1.0, 0.5, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 < 1 or T_mult < 1:
            raise ArgumentError(
                f"[CosineAnnealingWarmRestarts] T_0 and T_mult must be at least 1, got {T_0} and {T_mult}"
            )
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        self.T_i, self.T_cur = T_0, float(last_epoch)
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: float | None = None) -> None:
        """Set the rates of the next epoch.

        Args:
            epoch: set those of this epoch instead, such as ``epoch + batch / batches`` after each batch.

        Raises:
            ArgumentError: the epoch is negative.
        """
        if epoch is not None and not epoch >= 0:
            raise ArgumentError(f"[CosineAnnealingWarmRestarts] expected an epoch from 0 on, got {epoch}")
        self._step_count += 1
        if epoch is None and self.last_epoch >= 0:
            self.last_epoch += 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            self._seek(0.0 if epoch is None else epoch)
        self._set_rates(self.get_lr())

    def _seek(self, epoch: float) -> None:
        """Go to an epoch, whole or not."""
        self.last_epoch, self.T_cur, self.T_i = math.floor(epoch), epoch, self.T_0
        if self.T_mult == 1:
            self.T_cur %= self.T_0
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult

    def _set_epoch(self, epoch: int) -> None:
        self._seek(epoch)
        self._set_rates(self.get_lr())

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
