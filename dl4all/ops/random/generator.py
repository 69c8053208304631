"""Generators of random numbers.

A generator is a seed and a counter on the host; :mod:`dl4all.ops.core.expressions.philox` computes the
numbers from both. A draw reserves as many counters as it needs, which fixes its numbers wherever and whenever
they are computed.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core import tape
from dl4all.ops.core.expressions import philox
from dl4all.ops.core.kernels.launch import ceil_div
from dl4all.ops.vmap.batched_tensor import PerSampleFallback
from dl4all.runtime import fork
from dl4all.runtime.scopes import ScopedSetting, assigned
from dl4all.scheduler import listeners
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device

State = tuple[int, int]
"""Seed and counter of a generator."""

RANDOM = "random"
"""The source of the numbers that a generator gives, for those who listen."""

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 by the golden ratio: its multiples are far apart (Knuth, volume 3, 6.4)


class Generator:
    """A seed and a counter from which random numbers are computed. Threads may share a generator.

    Example:
        >>> import dl4all as dl
        >>> generator = dl.Generator(7)
        >>> state = generator.get_state()
        >>> x = dl.rand(3, generator=generator, device="cpu")
        >>> generator.set_state(state)
        >>> dl.rand(3, generator=generator, device="cpu").tolist() == x.tolist()
        True

    Args:
        seed: the first seed.
        device: what PyTorch's generators belong to; here they give every device the same numbers.
    """

    def __init__(self, seed: int | str | Device = 0, *, device: str | Device | None = None) -> None:
        self._lock = fork.lock()
        named = isinstance(seed, (str, Device))  # as torch.Generator has it
        self._device: Any = seed if named else device
        self.manual_seed(0 if isinstance(seed, (str, Device)) else seed)

    @property
    def device(self) -> Device:
        """The device that was named, by default the CPU; it has no part in the numbers."""
        return open_device(self._device or "cpu")

    def __repr__(self) -> str:
        seed, offset = self.get_state()
        return f"Generator(seed={seed}, offset={offset})"

    def manual_seed(self, seed: int) -> Generator:
        """Set the seed, and the counter to 0.

        Raises:
            ArgumentError: the seed is not an int from 0 to 2^64 - 1.
        """
        state = _checked_state("manual_seed", (seed, 0))
        listeners.refuse("seeds a random generator")
        with self._lock:
            self._seed, self._offset = state
        return self

    def seed(self) -> int:
        """Set a seed from the system's source of entropy; returns it."""
        seed = secrets.randbits(64)
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The current seed."""
        return self._seed

    def get_state(self) -> State:
        """The seed and the counter: two ints."""
        listeners.refuse("takes the state of a random generator")
        with self._lock:
            return self._seed, self._offset

    def set_state(self, state: State) -> None:
        """Continue from a state that :meth:`get_state` returned.

        Raises:
            ArgumentError: the state is not a seed and a counter.
        """
        checked = _checked_state("set_state", state)
        listeners.refuse("sets the state of a random generator")
        with self._lock:
            self._seed, self._offset = checked

    def draw(self, words: int, *, every_sample: bool = False) -> State:
        """Reserve counters for random words.

        Args:
            words: how many words of 32 bits are needed.
            every_sample: within ``vmap``, whether the words are for all samples. If not, the function runs
                sample by sample, so that each has its own numbers.

        Returns:
            The seed and the first counter.
        """
        if tape.state.in_vmap and not every_sample:
            raise PerSampleFallback("draws random numbers for a tensor that all samples share")
        repeated = _repeated.value
        drawn = self._drawn(words) if repeated is None else next(repeated)
        for draws in _lists.value:
            draws.append(drawn)
        return drawn

    def _drawn(self, words: int) -> State:
        with self._lock:
            offset = self._offset
            self._offset = (offset + ceil_div(words, 4)) % 2**64
            seed = self._seed
        if listeners.active:
            listeners.unplanned()
            seed, offset = listeners.vary(RANDOM, (seed, offset), lambda: Generator._drawn(self, words))
            if default_generator() is self:
                listeners.depends(lambda: default_generator() is self)
        return seed, offset

    def at(self, state: State) -> Generator:
        """A generator of this kind that continues from a state."""
        generator = Generator()
        generator.set_state(state)
        return generator


class MisalignedShard(Exception):
    """The numbers of a shard do not begin at a counter: it must begin at another row."""


class ShardGenerator(Generator):
    """The random numbers that rows of a batch get where one device computes the whole batch.

    A draw for these rows takes the numbers of all rows, and computes those of its own. What draws as many
    numbers whatever the batch gets the same ones everywhere.

    Args:
        state: of the generator that the whole batch would draw from.
        start, rows: the rows of this shard.
        total: the rows of the batch.
        origin: the first row of this process, where several compute a batch.
    """

    def __init__(self, state: State, start: int, rows: int, total: int, origin: int = 0) -> None:
        super().__init__()
        self.set_state(state)
        self._start, self._rows, self._total, self._origin = start, rows, total, origin

    def _drawn(self, words: int) -> State:
        """As a generator of the whole batch, for the rows of this shard.

        Where the first row of this process is in the middle of a counter's four words, the process takes
        numbers that follow from that row instead: others cannot move it, and a batch on one device would draw
        others.

        Raises:
            MisalignedShard: the first row of this shard is in the middle of a counter's four words.
        """
        if not self._rows or words % self._rows:
            return super()._drawn(words)
        per_row = words // self._rows
        apart = self._origin * per_row % 4 != 0
        first, inside = divmod((self._start - self._origin * apart) * per_row, 4)
        if inside:
            raise MisalignedShard
        seed, offset = super()._drawn(per_row * self._total)
        return seed ^ apart * self._origin * GOLDEN % 2**64, (offset + first) % 2**64

    def at(self, state: State) -> Generator:
        return ShardGenerator(state, self._start, self._rows, self._total, self._origin)


def _checked_state(name: str, state: Any) -> State:
    try:
        seed, offset = state
        numbers = [int(seed), int(offset)] if isinstance(seed, (int, np.integer)) else []
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 2:
        raise ArgumentError(f"[{name}] expected ints, got {state!r}")
    if numbers[0] < 0:
        raise ArgumentError(f"[{name}] the seed must not be negative, got {numbers[0]}")
    if max(numbers) >= 2**64 or numbers[1] < 0:
        raise ArgumentError(f"[{name}] expected numbers below 2^64, got {max(numbers)}")
    return numbers[0], numbers[1]


_process_generator = Generator()


_of_thread: ScopedSetting[Generator | None] = ScopedSetting(None)
"""Stands in for the process's generator."""


def default_generator() -> Generator:
    """The generator for calls without one."""
    return _of_thread.value or _process_generator


def drawing_from(generator: Generator) -> contextlib.AbstractContextManager[None]:
    """Within, this thread draws from a generator where none is given."""
    return assigned(_of_thread, generator)


def replayed(state: State) -> contextlib.AbstractContextManager[None]:
    """Within, this thread repeats the random numbers that follow a state of the default generator."""
    return drawing_from(default_generator().at(state))


_lists: ScopedSetting[tuple[list[State], ...]] = ScopedSetting(())
_repeated: ScopedSetting[Iterator[State] | None] = ScopedSetting(None)


def noting(draws: list[State]) -> contextlib.AbstractContextManager[None]:
    """Within, what this thread draws, from whatever generator, is added to a list."""
    return assigned(_lists, (*_lists.value, draws))


def repeating(draws: Sequence[State]) -> contextlib.AbstractContextManager[None]:
    """Within, this thread draws again what :func:`noting` has noted, and no generator moves.

    A replay of a compiled call draws other numbers than the call that was traced, both times the same.
    """
    return assigned(_repeated, iter(draws))


def state_words(seed: int, offset: int) -> tuple[int, int, int, int]:
    """Seed and counter as words of 32 bits for push constants, lower halves first."""
    return seed & philox.MASK, seed >> 32, offset & philox.MASK, offset >> 32
