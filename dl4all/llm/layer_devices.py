"""The device of each layer of a decoder: as many on each as there is memory for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from dl4all import memory
from dl4all.errors import ArgumentError, OutOfMemoryError
from dl4all.llm.families import DecoderConfig
from dl4all.llm.generation import PIECE
from dl4all.multi_device.placement.stage_costs import RESERVE
from dl4all.ops.linalg.packed_product import MOST_UNPACKED
from dl4all.scheduler.device.device import Device

CACHED = 4096
"""Tokens of one sequence, for whose keys and values there is to be room."""
SHARING = frozenset(("cpu", "software", "integrated"))
"""Types of devices whose memory is the host's."""
LAYER = re.compile(r"layers\.(\d+)\.")


class WeightBytes(NamedTuple):
    """Bytes of a decoder's weights.

    Attributes:
        first: of those before the layers, which lie with the first one.
        layers: of each layer.
        last: of those after them, which lie with the last one.
    """

    first: int
    layers: list[int]
    last: int

    @staticmethod
    def of(config: DecoderConfig, sizes: dict[str, int]) -> WeightBytes:
        """The sum of bytes by the names of weights."""
        layers, ends = [0] * config.layers, [0, 0]
        for name, nbytes in sizes.items():
            if (match := LAYER.match(name)) is not None:
                if int(match[1]) < config.layers:  # others are refused when they are read
                    layers[int(match[1])] += nbytes
            else:
                ends[not name.startswith("embed")] += nbytes
        return WeightBytes(ends[0], layers, ends[1])


def layer_devices(
    config: DecoderConfig, weights: WeightBytes, item_bytes: int, devices: Sequence[Device]
) -> list[Device]:
    """The device of each layer: the first ones on the first device, until its free memory is used.

    Beside weights there is room for keys and values of :data:`CACHED` tokens, and for what a layer computes.
    Devices that share the host's memory take it from each other. Free memory decides, not speed: a layer on
    the faster device saves more than any other cut could.

    Args:
        item_bytes: of a number of the cache.
        devices: in their order; one that has room for no layer is left out.

    Raises:
        ArgumentError: there is no device, or one twice.
        OutOfMemoryError: the model does not fit; the message has the numbers.
    """
    if not devices or len(set(devices)) < len(devices):
        raise ArgumentError(
            f"[llm] expected devices, each of them once, got {', '.join(map(str, devices)) or 'none'}"
        )
    cached = min(CACHED, config.positions) * 2 * config.kv_heads * config.head_dim * item_bytes
    room = [int(memory.available(device) * (1 - RESERVE)) - working_bytes(config) for device in devices]
    left, placed, at = list(room), list[Device](), 0

    def take(owner: int, nbytes: int) -> None:
        for n, device in enumerate(devices):
            if n == owner or {device.info.type, devices[owner].info.type} <= SHARING:
                left[n] -= nbytes

    for number, layer in enumerate(weights.layers):
        needed = layer + cached + (weights.first if number == 0 else 0)
        needed += weights.last if number == config.layers - 1 else 0
        at = next((n for n in range(at, len(devices)) if needed <= left[n]), len(devices))
        if at == len(devices):
            whole = weights.first + sum(weights.layers) + weights.last + cached * config.layers
            raise OutOfMemoryError(
                f"[llm] the model and a cache of {min(CACHED, config.positions)} tokens take {_mb(whole)}; "
                f"there is room for "
                + ", ".join(f"{_mb(max(0, free))} on {d}" for free, d in zip(room, devices, strict=True))
                + f", beside {_mb(working_bytes(config))} for what a layer computes; give more devices, "
                "or fewer bits with dtype='q4_0'"
            )
        take(at, needed)
        placed.append(devices[at])
    return placed


def working_bytes(config: DecoderConfig) -> int:
    """Bytes of what a layer computes for a piece of a prompt, and of weights that are unpacked for it."""
    row = 6 * config.width + 4 * config.heads * config.head_dim + 4 * max(config.inner, config.expert_inner)
    return 4 * (PIECE * (row + config.heads * PIECE) + min(MOST_UNPACKED, config.width * config.inner))


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.0f} MB"
