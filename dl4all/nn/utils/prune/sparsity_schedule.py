"""Pruning by and by, while a network trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.nn.module import Module
from dl4all.nn.utils.prune.masks import l1_unstructured, sparsity


class SparsityScheduler:
    """Prunes parameters a little more with each step, first quickly and then ever less.

    After step t of T the share of zeros is ``final + (initial - final) * (1 - t / T) ** power`` (Zhu and
    Gupta, arXiv:1710.01878, with power 3); after T steps it stays.

    Args:
        parameters: modules and names of their parameters.
        final: the share that is pruned at last, from 0.0 to 1.0.
        steps: T, calls of :meth:`step`.
        initial: the share that is pruned before the first step.
        power: 1 for the same amount with each step.
        method: a function of this package with the arguments module, name and amount, of which each parameter
            gets a fraction of what is left, by elements or by slices.
        options: more arguments of it, as ``n=2, dim=0`` of :func:`ln_structured`.

    Raises:
        ArgumentError: a share is out of range, or there are no steps.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.Linear(10, 10)
        >>> schedule = dl.nn.utils.prune.SparsityScheduler([(layer, "weight")], final=0.8, steps=4)
        >>> found = []
        >>> for _ in range(5):
        ...     schedule.step()
        ...     found.append(round(dl.nn.utils.prune.sparsity(layer, "weight"), 2))
        >>> found
        [0.46, 0.7, 0.79, 0.8, 0.8]
    """

    def __init__(
        self,
        parameters: Iterable[tuple[Module, str]],
        final: float,
        steps: int,
        *,
        initial: float = 0.0,
        power: float = 3.0,
        method: Callable[..., Any] = l1_unstructured,
        **options: Any,
    ) -> None:
        if not 0 <= initial <= final <= 1 or steps < 1 or power <= 0:
            raise ArgumentError(
                "[SparsityScheduler] expected 0 <= initial <= final <= 1, a step, and a power above 0, got "
                f"{initial}, {final}, {steps} and {power}"
            )
        self.parameters = list(parameters)
        self.initial, self.final, self.steps, self.power = initial, final, steps, power
        self.method, self.options = method, options
        self.steps_done = 0
        if initial:
            self._prune()

    @property
    def target(self) -> float:
        """The share of zeros that parameters have now, to a whole number of them."""
        left = 1 - min(self.steps_done / self.steps, 1.0)
        return float(self.final + (self.initial - self.final) * left**self.power)

    def step(self) -> None:
        """Prune a little more, if T steps are not over."""
        if self.steps_done < self.steps:
            self.steps_done += 1
            self._prune()

    def _prune(self) -> None:
        for module, name in self.parameters:
            pruned = sparsity(module, name)
            if self.target > pruned:
                self.method(module, name, amount=(self.target - pruned) / (1 - pruned), **self.options)

    def state_dict(self) -> dict[str, Any]:
        """The number of steps; masks are buffers of the modules."""
        return {"steps_done": self.steps_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the steps of a state."""
        self.steps_done = int(state["steps_done"])
