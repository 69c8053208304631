"""The random numbers of each device: dl4all's generators, seeded as PyTorch seeds its own.

A generator of dl4all is a seed and a counter; the same seed gives the same numbers on every device, which are
not those of PyTorch's CPU generator.
"""

from __future__ import annotations

import numpy as np
import torch

from dl4all.errors import ArgumentError
from dl4all.ops.random.generator import Generator
from dl4all.scheduler import listeners

STATE_BYTES = 16

_of_device: dict[int, Generator] = {}
_common_seed: int | None = None  # of all that come later; None means PyTorch's own


def generator_of(index: int) -> Generator:
    """The generator of ``dlall:index``, which starts from that of all devices, else from PyTorch's."""
    generator = _of_device.get(index)
    if generator is None:
        seed = torch.initial_seed() if _common_seed is None else _common_seed
        with listeners.suspended():  # it is made once, which no replay needs to repeat
            generator = _of_device.setdefault(index, Generator(seed % 2**64))
    return generator


def chosen(generator: torch.Generator | None, index: int) -> Generator:
    """The generator of a call: that of the device, or one seeded by the generator that a user gave.

    A user's generator advances with each call, so that calls differ, and repeat after ``manual_seed``.
    """
    if generator is None:
        return generator_of(index)
    seed = torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator)
    return Generator(int(seed.item()))


def manual_seed(seed: int, index: int) -> None:
    """Restart the generator of a device; negative seeds count as PyTorch's do, from 2^64 on downwards."""
    generator_of(index).manual_seed(int(seed) % 2**64)


def manual_seed_all(seed: int) -> None:
    """Restart the generators of all devices. No device is opened for it."""
    global _common_seed
    _common_seed = int(seed)
    for index in tuple(_of_device):
        manual_seed(seed, index)


def get_state(index: int) -> torch.Tensor:
    """Seed and counter of a device's generator, as bytes on the CPU."""
    state = np.array(generator_of(index).get_state(), np.uint64)
    return torch.from_numpy(state.view(np.uint8))


def set_state(state: torch.Tensor, index: int) -> None:
    """Continue from a state of :func:`get_state`.

    Raises:
        ArgumentError: it is no such state.
    """
    if state.dtype != torch.uint8 or state.numel() != STATE_BYTES:
        raise ArgumentError(
            f"[set_rng_state] expected {STATE_BYTES} bytes as get_rng_state returns them, "
            f"got {state.numel()} elements of {state.dtype}"
        )
    seed, offset = np.frombuffer(state.detach().cpu().contiguous().numpy().tobytes(), np.uint64).tolist()
    generator_of(index).set_state((seed, offset))
