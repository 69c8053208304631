"""Allocations and frees of real training steps, recorded as they happen.

The steps run on the null device, which computes nothing: ops, gradients and optimizers are the library's own
and ask for memory in the same order and sizes as on a GPU, and a step takes as long as recording it does.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

import dl4all as dl
from dl4all import nn
from dl4all.allocator.allocation import Allocation
from dl4all.runtime.device_info import Limits
from dl4all.runtime.null.backend import NullBackend

Step = tuple[str, int]
"""``("allocate", bytes)`` or ``("free", number of the allocation)``; numbers count from 0."""
Loop = Iterator[None]
"""A training loop that stops after each step."""


def null_device() -> tuple[NullBackend, dl.Device]:
    """A device with a discrete GPU's limits that runs nothing."""
    backend = NullBackend()
    limits = Limits(storage_buffer_range=2**32 - 1, allocation_size=2**32, storage_alignment=64)
    backend.info = dataclasses.replace(backend.info, limits=limits, memory=2**36)
    return backend, dl.Device.of_backend("null:0", backend)


def record(make: Callable[[dl.Device, np.random.Generator], Loop], seed: int) -> list[Step]:
    """What a training loop asks for and gives back, from its first parameter to its last step."""
    backend, place = null_device()
    steps: list[Step] = []
    counter = itertools.count()
    numbers: dict[Allocation, int] = {}  # of what is on loan

    def note(what: Literal["allocate", "free"], allocation: Allocation) -> None:
        if what == "allocate":
            numbers[allocation] = next(counter)
            steps.append(("allocate", allocation.nbytes))
        else:
            steps.append(("free", numbers.pop(allocation)))

    stop = place.pool.watch(note)
    for _ in make(place, np.random.default_rng(seed)):
        pass
    stop()
    backend.close()
    return steps


def convolutional(place: dl.Device, random: np.random.Generator) -> Loop:
    """ResNet-18 at 112 x 112, every fifth batch smaller, SGD with momentum."""
    net = dl.models.resnet18().to(place).train()
    optimizer = dl.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    most = int(random.integers(6, 12))
    for i in range(20):
        size = most if i % 5 else most // 3
        x = zeros(place, size, 3, 112, 112)
        target = dl.tensor(np.zeros(size, np.int64), device=place)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), target).backward()
        optimizer.step()
        yield


class Cell(nn.Module):
    """A long short-term memory, step by step (Hochreiter and Schmidhuber, 1997)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Linear(2 * units, units) for _ in range(4))

    def forward(self, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        """The next state, each of shape (batch, units)."""
        both = dl.cat([x, h], 1)
        forget, take, give, new = (gate(both) for gate in self.gates)
        c = forget.sigmoid() * c + take.sigmoid() * new.tanh()
        return give.sigmoid() * c.tanh(), c


def recurrent(place: dl.Device, random: np.random.Generator) -> Loop:
    """An LSTM of 256 units over 5 to 40 words, batch 32, Adam."""
    units, batch = 256, 32
    cell, head = Cell(units).to(place), nn.Linear(units, 10).to(place)
    optimizer = dl.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3)
    for length in random.integers(5, 41, 20):
        words = zeros(place, int(length), batch, units)
        target = dl.tensor(np.zeros(batch, np.int64), device=place)
        h = c = zeros(place, batch, units)
        optimizer.zero_grad()
        for i in range(int(length)):
            h, c = cell(words[i], h, c)
        nn.functional.cross_entropy(head(h), target).backward()
        optimizer.step()
        yield


class Block(nn.Module):
    """Attention and two linear layers, each normalised before and led around (Vaswani et al., 2017)."""

    def __init__(self, units: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(units), nn.LayerNorm(units)
        self.query, self.key, self.value = (nn.Linear(units, units) for _ in range(3))
        self.out, self.wide, self.narrow = (
            nn.Linear(units, units),
            nn.Linear(units, 4 * units),
            nn.Linear(4 * units, units),
        )

    def forward(self, x: Any) -> Any:
        """(batch, length, units) to the same."""
        batch, length, units = x.shape
        given = self.before(x)
        query, key, value = (
            layer(given).reshape(batch, length, self.heads, units // self.heads).permute(0, 2, 1, 3)
            for layer in (self.query, self.key, self.value)
        )
        scores = (query @ key.permute(0, 1, 3, 2)) * (units // self.heads) ** -0.5
        mixed = nn.functional.softmax(scores, dim=-1) @ value
        x = x + self.out(mixed.permute(0, 2, 1, 3).reshape(batch, length, units))
        return x + self.narrow(self.wide(self.between(x)).relu())


def attentive(place: dl.Device, random: np.random.Generator) -> Loop:
    """A transformer of 4 layers of 256 units and 8 heads over 16 to 128 words, batch 16, Adam."""
    units, batch = 256, 16
    blocks = nn.Sequential(*(Block(units, 8) for _ in range(4)), nn.Linear(units, 1000)).to(place)
    optimizer = dl.optim.Adam(blocks.parameters(), lr=1e-3)
    for length in random.integers(16, 129, 20):
        x = zeros(place, batch, int(length), units)
        target = dl.tensor(np.zeros(batch * int(length), np.int64), device=place)
        optimizer.zero_grad()
        nn.functional.cross_entropy(blocks(x).reshape(-1, 1000), target).backward()
        optimizer.step()
        yield


def zeros(place: dl.Device, *shape: int) -> Any:
    """An upload, as data come from the host."""
    return dl.tensor(np.zeros(shape, np.float32), device=place)


RECORDED: dict[str, Callable[[dl.Device, np.random.Generator], Loop]] = {
    "convolutional": convolutional,
    "recurrent": recurrent,
    "transformer": attentive,
}
