"""``torch.cuda.random``: the random numbers of all devices, which come from one generator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dl4all.ops.random.generator import State
from dl4all.tensor import random

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def manual_seed(seed: int) -> None:
    """Nothing: ``dl.manual_seed`` is for every device, and what it set stays.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.manual_seed(0)  # nothing happens
    """


manual_seed_all = manual_seed


def seed() -> None:
    """Nothing, as :func:`manual_seed`.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.seed()  # nothing happens
    """


seed_all = seed


def initial_seed() -> int:
    """The seed of every device: ``dl.initial_seed()``.

    Example:
        >>> import dl4all as dl
        >>> generator = dl.manual_seed(3)
        >>> dl.cuda.initial_seed()
        3
    """
    return random.initial_seed()


def get_rng_state(device: Any = "cuda") -> State:
    """The state of the generator, which all devices share: ``dl.get_rng_state()``.

    Example:
        >>> import dl4all as dl
        >>> state = dl.cuda.get_rng_state()
    """
    return random.get_rng_state()


def get_rng_state_all() -> list[State]:
    """The state of the generator, once: all devices share it.

    Example:
        >>> import dl4all as dl
        >>> len(dl.cuda.get_rng_state_all())
        1
    """
    return [random.get_rng_state()]


def set_rng_state(new_state: State, device: Any = "cuda") -> None:
    """Put a state of the generator back: ``dl.set_rng_state(new_state)``.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.set_rng_state(dl.cuda.get_rng_state())
    """
    random.set_rng_state(new_state)


def set_rng_state_all(new_states: Iterable[State]) -> None:
    """Put the state back that :func:`get_rng_state_all` gave.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.set_rng_state_all(dl.cuda.get_rng_state_all())
    """
    for state in new_states:
        random.set_rng_state(state)
