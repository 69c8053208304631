"""Layouts of weights in few bits: blocks that kernels unpack in registers.

They are those of ggml, which GGUF files hold, but for the places of the float16 scales: these lie in a tensor
of their own, so that all other bytes are whole words. ggml describes them in
https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h. Shaders have them in ``include/packed.glsl``,
the CPU's kernels in :mod:`dl4all.host_kernels.linalg.packed_groups`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
UNIT = 32
"""Weights that a shader's invocation reads together; each format's blocks are some of these."""


class PackedFormat(NamedTuple):
    """A layout of blocks.

    Attributes:
        name: ggml's.
        number: ggml's, by which shaders know it.
        weights: of a block.
        size: bytes of a block, without its scales.
        scales: float16 numbers of a block.
        scales_first: whether files have them before a block's other bytes, or after these.
        unpacked: the weights (blocks, weights) of bytes (blocks, size) and scales (blocks, scales).
    """

    name: str
    number: int
    weights: int
    size: int
    scales: int
    scales_first: bool
    unpacked: Callable[[Bytes, Floats], Floats]

    def split(self, blocks: Bytes) -> tuple[Bytes, npt.NDArray[np.float16]]:
        """The bytes (n, size of a row) and scales of rows (n, bytes), as a file has them.

        >>> Q4_0.split(np.zeros((3, 36), np.uint8))[1].shape
        (3, 2)
        """
        n, scale_bytes = len(blocks), 2 * self.scales
        parts = blocks.reshape(n, -1, self.size + scale_bytes)
        at = 0 if self.scales_first else self.size
        scales = np.ascontiguousarray(parts[..., at : at + scale_bytes]).reshape(n, -1)
        rest = scale_bytes if self.scales_first else 0
        return parts[..., rest : rest + self.size].reshape(n, -1), scales.view("<f2")


def _q4_0(data: Bytes, scales: Floats) -> Floats:
    """16 bytes: byte i has weight i in its lower bits, weight i + 16 in its upper ones; 8 stands for 0."""
    numbers: Floats = np.concatenate([data & 15, data >> 4], 1).astype(np.float32)
    return (numbers - 8) * scales


def _q8_0(data: Bytes, scales: Floats) -> Floats:
    """32 signed bytes."""
    numbers: Floats = data.view(np.int8).astype(np.float32)
    return numbers * scales


def _q4_k(data: Bytes, scales: Floats) -> Floats:
    """12 bytes with 6-bit factors of the two scales for each of 8 groups of 32 weights; 128 bytes of weights.

    A weight is its number times the group's scale, less the group's offset.
    """
    small, packed = data[:, :12], data[:, 12:].reshape(-1, 4, 32)
    first, second, third = small[:, :4], small[:, 4:8], small[:, 8:]
    factors = np.concatenate([first & 63, (third & 15) | (first >> 6) << 4], 1).astype(np.float32)
    offsets = np.concatenate([second & 63, (third >> 4) | (second >> 6) << 4], 1).astype(np.float32)
    numbers = np.stack([packed & 15, packed >> 4], 2).reshape(-1, 8, 32).astype(np.float32)
    made: Floats = (scales[:, :1] * factors)[..., None] * numbers - (scales[:, 1:] * offsets)[..., None]
    return made.reshape(len(data), 256)


def _q6_k(data: Bytes, scales: Floats) -> Floats:
    """128 bytes of lower bits, 64 of upper ones, signed factors of the scale for each of 16 groups of 16."""
    lower, upper = data[:, :128].reshape(-1, 2, 1, 64), data[:, 128:192].reshape(-1, 2, 1, 32)
    low = lower >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1) & 15
    high = upper >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3
    numbers = (low.reshape(-1, 16, 16) | high.reshape(-1, 16, 16) << 4).astype(np.float32) - 32
    factors = data[:, 192:].view(np.int8).astype(np.float32)
    made: Floats = ((scales * factors)[..., None] * numbers).reshape(len(data), 256)
    return made


Q4_0 = PackedFormat("Q4_0", 2, 32, 16, 1, True, _q4_0)
Q8_0 = PackedFormat("Q8_0", 8, 32, 32, 1, True, _q8_0)
Q4_K = PackedFormat("Q4_K", 12, 256, 140, 2, True, _q4_k)
Q6_K = PackedFormat("Q6_K", 14, 256, 208, 1, False, _q6_k)
FORMATS = {format.name: format for format in (Q4_0, Q8_0, Q4_K, Q6_K)}


def unpacked_rows(data: Any, scales: Any, format: PackedFormat, out: Any) -> None:
    """Fill `out` (n, k) with the weights of bytes and scales of n rows."""
    blocks = np.asarray(data).reshape(-1, format.size)
    each = np.asarray(scales).astype(np.float32).reshape(-1, format.scales)
    if len(each) != len(blocks):  # some blocks share a scale
        each = np.repeat(each, len(blocks) // len(each), 0)
    out[...] = format.unpacked(blocks, each).reshape(out.shape)
