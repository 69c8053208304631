"""Spaces of networks: which hyperparameters there are, under which conditions, and how many networks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from dl4all.errors import ArgumentError, ConfigError
from dl4all.search.choices import Choices, Draw
from dl4all.search.limits import CostLimits

Values = dict[str, Any]
Net = Callable[[Choices], Any]
MOST_PROBED = 64
"""Values of an integer that are each tried for what depends on them; of others the two ends."""
CHECKS = 32
"""Networks drawn at random that must have the hyperparameters which the conditions foretell."""
ESTIMATES = 1000
"""Networks from which the size of a space with other conditions is estimated."""


@dataclass
class Dimension:
    """A hyperparameter of a space."""

    name: str
    distribution: BaseDistribution
    parent: str = ""
    """The hyperparameter on whose value it depends whether there is this one; empty for none."""
    when: list[Any] = field(default_factory=list)
    """The values of `parent` with which there is."""

    def __str__(self) -> str:
        made = self.distribution
        if isinstance(made, CategoricalDistribution):
            text = f"one of {', '.join(map(str, made.choices))}"
        else:
            assert isinstance(made, (IntDistribution, FloatDistribution))
            kind = "integer" if isinstance(made, IntDistribution) else "float"
            step = f", step {made.step}" if made.step not in (None, 1) else ""
            text = f"{kind} {made.low} to {made.high}{step}{', log' if made.log else ''}"
        return text + (f"   if {self.parent} is {_listed(self.when)}" if self.parent else "")


class MadeNetwork(NamedTuple):
    """A network, and what was asked for while it was made."""

    network: Any
    values: Values
    distributions: dict[str, BaseDistribution]
    limits: list[CostLimits]


class Space:
    """All networks that a function makes.

    Conditions are found by trying: each hyperparameter's values are tried with the first values of all
    others. Where the presence of one depends on several others, or its range on a value, :attr:`size` is an
    estimate.

    Args:
        net: called with :class:`Choices`, returns a network.
        fixed: values of hyperparameters that do not belong to the space, though the function asks for them.

    Attributes:
        dimensions: every hyperparameter by name, in the order in which they are asked for.
        exact: whether :attr:`size` is counted, and not estimated.

    Raises:
        ConfigError: it asks for no hyperparameter.

    Example:
        >>> import dl4all as dl
        >>> def net(s):
        ...     widths = s.repeat("layers", lambda s: s.choice("width", [4, 8]), 1, 2)
        ...     return dl.nn.Sequential(*(dl.nn.LazyLinear(width) for width in widths))
        >>> space = dl.search.Space(net)
        >>> print(space)
        Space of 3 hyperparameters, 6 networks
          layers          integer 1 to 2
          layers.0.width  one of 4, 8
          layers.1.width  one of 4, 8   if layers is 2
        >>> space.encode({"layers": 1, "layers.0.width": 8}).tolist()
        [1.0, 1.0, nan]
    """

    def __init__(self, net: Net, fixed: Mapping[str, Any] | None = None) -> None:
        self.net = net
        self.fixed = dict(fixed or {})
        self.dimensions, regular = self._discovered()
        if not self.dimensions:
            raise ConfigError("[search] the space is empty: its function asks for no hyperparameter")
        self.exact = regular and self._foretold()

    @cached_property
    def size(self) -> float:
        """Number of networks; infinite with a float that has no step."""
        if self.exact:
            return math.prod(self._count(d) for d in self.dimensions.values() if not d.parent)
        return self._estimated()

    def build(self, values: Mapping[str, Any]) -> Any:
        """Make the network of some values.

        Raises:
            ArgumentError: a value is missing, out of its range, or for nothing.
        """
        made = self.make(values, _missing)
        unknown = values.keys() - made.values.keys()
        if unknown:
            raise ArgumentError(
                f"[search] {min(unknown)!r} is no hyperparameter of this network, which has "
                f"{', '.join(made.values)}"
            )
        return made.network

    def draw(self, seed: int | np.random.Generator | None = None) -> Values:
        """Values drawn at random, each evenly from its range."""
        return self.asked({}, at_random(np.random.default_rng(seed)))[0].values

    def values(self) -> Iterator[Values]:
        """All values, network by network.

        Raises:
            ArgumentError: the space is endless.
        """
        if math.isinf(self.size):
            raise ArgumentError("[search] the space is endless: a float without a step has no last value")
        ways: list[Values] = [{}]
        while ways:
            values = ways.pop()
            made = self.asked(values, _first)[0]
            following = next((name for name in made.values if name not in values), None)
            if following is None:
                yield values
            else:
                options = values_of(made.distributions[following])
                ways += [{**values, following: value} for value in reversed(options)]

    def encode(self, values: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """Values as a vector with one number for each dimension: nan where there is none.

        Options are their positions, numbers themselves.
        """
        self.build(values)
        numbers = [
            d.distribution.to_internal_repr(values[name]) if name in values else math.nan
            for name, d in self.dimensions.items()
        ]
        return np.array(numbers, np.float64)

    def decode(self, vector: npt.ArrayLike) -> Values:
        """The values of a vector.

        Raises:
            ArgumentError: the vector has another length, or no network of the space has these values.
        """
        numbers = np.asarray(vector, np.float64)
        if numbers.shape != (len(self.dimensions),):
            raise ArgumentError(
                f"[search] expected a vector of {len(self.dimensions)} numbers, got shape {numbers.shape}"
            )
        values = {}
        for (name, d), number in zip(self.dimensions.items(), numbers.tolist(), strict=True):
            if not math.isnan(number):
                if isinstance(d.distribution, CategoricalDistribution) and not (
                    number.is_integer() and 0 <= number < len(d.distribution.choices)
                ):
                    raise ArgumentError(f"[search] {name}: {number} is no position of its options")
                values[name] = d.distribution.to_external_repr(number)
        self.build(values)
        return values

    def to_json(self, values: Mapping[str, Any]) -> str:
        """Values as a JSON document."""
        self.build(values)
        return json.dumps(dict(values))

    def from_json(self, text: str) -> Values:
        """The values of a JSON document.

        Raises:
            ArgumentError: it is none, or no network of the space has these values.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ArgumentError(f"[search] no JSON document: {error}") from None
        if not isinstance(values, dict):
            raise ArgumentError(f"[search] expected an object of values, got {type(values).__name__}")
        self.build(values)
        return values

    def __str__(self) -> str:
        count = "endless" if math.isinf(self.size) else f"{self.size:,.0f}"
        about = "" if self.exact else "about "
        wide = max(map(len, self.dimensions))
        lines = [f"  {name:{wide}}  {dimension}" for name, dimension in self.dimensions.items()]
        head = f"Space of {len(self.dimensions)} hyperparameters, {about}{count} networks"
        return "\n".join([head, *lines])

    def make(self, values: Mapping[str, Any], otherwise: Draw) -> MadeNetwork:
        """Make a network, with `otherwise` for what `values` does not have."""
        made = MadeNetwork(None, {}, {}, [])
        return made._replace(network=self.net(self._choices(made, values, otherwise)))

    def asked(self, values: Mapping[str, Any], otherwise: Draw) -> tuple[MadeNetwork, bool]:
        """The hyperparameters asked for with some values, and whether there is such a network."""
        made = MadeNetwork(None, {}, {}, [])
        try:
            network = self.net(self._choices(made, values, otherwise))
        except Exception as error:
            if str(error).startswith("[search]"):
                raise
            return made, False
        return made._replace(network=network), True

    def _choices(self, made: MadeNetwork, values: Mapping[str, Any], otherwise: Draw) -> Choices:
        def draw(name: str, distribution: BaseDistribution) -> Any:
            known = self.fixed if name in self.fixed else made.values
            if name not in known:
                made.values[name] = values[name] if name in values else otherwise(name, distribution)
                made.distributions[name] = distribution
            if not contains(distribution, known[name]):
                wanted = Dimension(name, distribution)
                raise ArgumentError(f"[search] {name}: {known[name]!r} is not {wanted}")
            return known[name]

        return Choices(draw, limits=made.limits)

    def _discovered(self) -> tuple[dict[str, Dimension], bool]:
        """The dimensions, and whether each network can be made and ranges never change."""
        base = self.make({}, _first)
        found = {name: Dimension(name, made) for name, made in base.distributions.items()}
        regular = True
        queue: list[tuple[str, Values]] = [(name, {}) for name in found]
        for name, values in queue:  # which grows meanwhile
            present: dict[str, list[Any]] = {}
            probes = probed(found[name].distribution)
            for value in probes:
                given = {**values, name: value}
                seen, exists = self.asked(given, _first)
                regular &= exists
                for other, made in seen.distributions.items():
                    present.setdefault(other, []).append(value)
                    if other not in found:
                        found[other] = Dimension(other, made)
                        queue.append((other, given))
                    elif found[other].distribution != made:
                        regular = False
            for other, when in present.items():
                if len(when) < len(probes):
                    found[other].parent, found[other].when = name, when
        return found, regular

    def _foretold(self) -> bool:
        """Whether networks drawn at random have the hyperparameters that the conditions foretell."""
        draw = at_random(np.random.default_rng(0))
        for _ in range(CHECKS):
            made, exists = self.asked({}, draw)
            if not exists:
                return False
            for name, d in self.dimensions.items():
                there = not d.parent or (d.parent in made.values and _is_when(d, made.values[d.parent]))
                if there != (name in made.values):
                    return False
            if any(self.dimensions[n].distribution != made for n, made in made.distributions.items()):
                return False
        return True

    def _count(self, dimension: Dimension) -> float:
        below = [d for d in self.dimensions.values() if d.parent == dimension.name]
        if not below:
            return cardinality(dimension.distribution)
        if math.isinf(cardinality(dimension.distribution)):
            return math.inf
        return sum(
            math.prod(self._count(d) for d in below if _is_when(d, value))
            for value in values_of(dimension.distribution)
        )

    def _estimated(self) -> float:
        """Knuth's estimate: the mean of products of ranges along ways drawn at random.

        Source: D. E. Knuth, Estimating the efficiency of backtrack programs, 1975.
        """
        draw = at_random(np.random.default_rng(0))
        drawn = (self.asked({}, draw)[0].distributions.values() for _ in range(ESTIMATES))
        return float(np.mean([math.prod(map(cardinality, ranges)) for ranges in drawn]))


def at_random(rng: np.random.Generator) -> Draw:
    """Even draws."""

    def draw(_: str, made: BaseDistribution) -> Any:
        if isinstance(made, CategoricalDistribution):
            return made.choices[int(rng.integers(len(made.choices)))]
        assert isinstance(made, (IntDistribution, FloatDistribution))
        if made.log:
            low, high = math.log(made.low), math.log(made.high)
            value = math.exp(rng.uniform(low, high))
            if isinstance(made, IntDistribution):
                return min(max(round(value), made.low), made.high)
            return min(max(value, made.low), made.high)
        if made.step is None:
            return float(rng.uniform(made.low, made.high))
        return _number(made, int(rng.integers(int(cardinality(made)))))

    return draw


def cardinality(made: BaseDistribution) -> float:
    """Number of values."""
    if isinstance(made, CategoricalDistribution):
        return len(made.choices)
    assert isinstance(made, (IntDistribution, FloatDistribution))
    if made.step is None:
        return 1 if made.low == made.high else math.inf
    return math.floor((made.high - made.low) / made.step + 1e-9) + 1


def contains(made: BaseDistribution, value: Any) -> bool:
    """Whether a value is in range, and of the range's type."""
    if isinstance(made, CategoricalDistribution):
        return any(type(value) is type(option) and value == option for option in made.choices)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if isinstance(made, IntDistribution) and not isinstance(value, int):
        return False
    return bool(made._contains(float(value)))


def probed(made: BaseDistribution, most: float = MOST_PROBED) -> list[Any]:
    """Every value; of a large range the two ends."""
    if isinstance(made, CategoricalDistribution) or cardinality(made) <= most:
        return values_of(made)
    assert isinstance(made, (IntDistribution, FloatDistribution))
    return [made.low, made.high]


def values_of(made: BaseDistribution) -> list[Any]:
    """Every value of a range that is not endless."""
    if isinstance(made, CategoricalDistribution):
        return list(made.choices)
    assert isinstance(made, (IntDistribution, FloatDistribution))
    return [_number(made, number) for number in range(int(cardinality(made)))]


def _number(made: IntDistribution | FloatDistribution, number: int) -> float:
    """A value of a range with steps; sums of rounded steps may lie behind its end."""
    return min(made.low + number * (made.step or 0), made.high)


def _first(_: str, made: BaseDistribution) -> Any:
    return probed(made)[0]


def _missing(name: str, made: BaseDistribution) -> Any:
    raise ArgumentError(f"[search] there is no value for {name}: {Dimension(name, made)}")


def _is_when(dimension: Dimension, value: Any) -> bool:
    return any(type(value) is type(other) and value == other for other in dimension.when)


def _listed(values: Iterable[Any]) -> str:
    return " or ".join(map(str, values))
