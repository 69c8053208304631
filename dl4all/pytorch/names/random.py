"""The default generator of random numbers under the names of ``torch.random``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from dl4all.ops.random.generator import default_generator as _default_generator
from dl4all.tensor.random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__all__ = [
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]

default_generator = _default_generator()
"""The process's generator, from which calls without one draw.

Example:
    >>> import dl4all as dl
    >>> generator = dl.manual_seed(3)
    >>> dl.random.default_generator is generator
    True
"""


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None, enabled: bool = True, device_type: str = "cpu"
) -> Iterator[None]:
    """Put the default generator's state back at the end of a block.

    Args:
        devices: without effect: all devices share the generator.
        enabled: whether to put it back.
        device_type: without effect.

    Example:
        >>> import dl4all as dl
        >>> with dl.random.fork_rng():
        ...     first = dl.rand(2).tolist()
        >>> dl.rand(2).tolist() == first
        True
    """
    generator = _default_generator()
    state = generator.get_state()
    try:
        yield
    finally:
        if enabled:
            generator.set_state(state)
