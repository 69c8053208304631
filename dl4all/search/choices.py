"""The hyperparameters of a network, drawn one by one while the function that makes it runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from dl4all.errors import ArgumentError
from dl4all.search.limits import CostLimits

Scalar = None | bool | int | float | str
Draw = Callable[[str, BaseDistribution], Any]
T = TypeVar("T")


class Choices:
    """Hyperparameters by name: the argument of a space's function.

    A name is drawn once in a network: asked for again, it has the same value. Within :meth:`repeat` and
    :meth:`optional` names are those of the block and what it asks for, such as ``"cells.2.width"``.

    Example:
        >>> import dl4all as dl
        >>> def net(s):
        ...     width = s.integer("width", 4, 16, step=4)
        ...     act = s.choice("act", {"relu": dl.nn.ReLU, "gelu": dl.nn.GELU})
        ...     return dl.nn.Sequential(dl.nn.Linear(2, width), act(), dl.nn.Linear(width, 1))
        >>> dl.search.Space(net).size
        8
    """

    def __init__(self, draw: Draw, prefix: str = "", limits: list[CostLimits] | None = None) -> None:
        self._draw, self._prefix = draw, prefix
        self.limits: list[CostLimits] = [] if limits is None else limits

    def integer(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """An integer from `low` to `high`, both included.

        Args:
            step: between neighbours.
            log: even in the logarithm.

        Raises:
            ArgumentError: there is no such integer.
        """
        for value in (low, high, step):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ArgumentError(f"[search] {name}: expected integers, got {low!r}, {high!r}, {step!r}")
        return cast("int", self._drawn(name, lambda: IntDistribution(low, high, log=log, step=step)))

    def floating(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number from `low` to `high`.

        Args:
            step: between neighbours, if not all numbers count.
            log: even in the logarithm.

        Raises:
            ArgumentError: there is no such number.
        """
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ArgumentError(f"[search] {name}: expected finite bounds, got {low} and {high}")
        return cast("float", self._drawn(name, lambda: FloatDistribution(low, high, log=log, step=step)))

    def choice(self, name: str, options: Sequence[T] | Mapping[str, T]) -> T:
        """One of several options.

        Args:
            options: numbers, strings, bools and None; or anything by labels, which are what is stored.

        Raises:
            ArgumentError: there is no option, one is there twice, or it cannot be stored.
        """
        if isinstance(options, Mapping):
            label = self._drawn(name, lambda: CategoricalDistribution(_storable(name, [*options])))
            return options[cast("str", label)]
        return cast("T", self._drawn(name, lambda: CategoricalDistribution(_storable(name, options))))

    def optional(self, name: str, block: Callable[[Choices], T]) -> T | None:
        """The result of `block`, or None: as a bool of this name says.

        Args:
            block: called with the choices within it.
        """
        return block(self._within(name)) if self.choice(name, [False, True]) else None

    def repeat(self, name: str, block: Callable[..., T], low: int, high: int) -> list[T]:
        """A list of what `block` makes, as often as an integer of this name says, each by its own choices.

        Args:
            block: called with the choices within it, and with its number if it takes two arguments.
        """
        counted = len(inspect.signature(block).parameters) > 1
        made = []
        for number in range(self.integer(name, low, high)):
            within = self._within(f"{name}.{number}")
            made.append(block(within, number) if counted else block(within))
        return made

    def require(
        self,
        *,
        parameters: int | None = None,
        flops: float | None = None,
        memory: int | None = None,
        milliseconds: float | None = None,
        inputs: Any = None,
        training: bool = False,
    ) -> None:
        """Let only networks count that stay below limits: others are given up before they are trained.

        Args:
            parameters: how many numbers the network has that can be trained.
            flops: of one call.
            memory: bytes that one call needs, as predicted: parameters, activations and temporary ones.
            milliseconds: of one call on the trial's device, as predicted from its measured speed
                (``dl4all devices --calibrate``).
            inputs: a batch, or its shape, for all but `parameters`: a tensor, a shape, or a list of them.
            training: count a step, with its backward pass, in place of a call.

        Raises:
            ArgumentError: no limit is given, one is not above 0, or `inputs` is missing.
        """
        limits = {"parameters": parameters, "flops": flops, "memory": memory, "milliseconds": milliseconds}
        given = {name: float(limit) for name, limit in limits.items() if limit is not None}
        if not given or min(given.values()) <= 0:
            raise ArgumentError(f"[search] require: expected limits above 0, got {given or 'none'}")
        if inputs is None and given.keys() != {"parameters"}:
            raise ArgumentError(
                f"[search] require: {', '.join(given)} follow from inputs=, which are missing"
            )
        self.limits.append(CostLimits(given, inputs, training))

    def _within(self, name: str) -> Choices:
        return Choices(self._draw, f"{self._prefix}{name}.", self.limits)

    def _drawn(self, name: str, distribution: Callable[[], BaseDistribution]) -> Any:
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"[search] a hyperparameter needs a name, got {name!r}")
        try:
            made = distribution()
        except ValueError as error:
            raise ArgumentError(f"[search] {self._prefix}{name}: {error}") from None
        return self._draw(self._prefix + name, made)


def _storable(name: str, options: Sequence[Any]) -> list[Scalar]:
    listed = list(options)
    wrong = [option for option in listed if not isinstance(option, Scalar)]
    if wrong:
        raise ArgumentError(
            f"[search] {name}: {type(wrong[0]).__name__} cannot be stored; give a dict of labels and options"
        )
    if not listed or len({(type(option), option) for option in listed}) < len(listed):
        raise ArgumentError(f"[search] {name}: expected different options, at least one, got {listed}")
    return listed
