"""Damages bytes: what a transfer, a disk or somebody who means harm makes of a file."""

from __future__ import annotations

import numpy as np

WORDS = (
    b"\x00",
    b"\xff",
    b"\xff" * 8,
    b"\x00" * 8,
    b"(",
    b"t",
    b"R",
    b"h\x00",
    b"[" * 64,
    b'"',
    b"{",
    b"9" * 30,
)
"""What means something to a reader: marks, opcodes, brackets, and numbers that are too large."""


def mutate(content: bytes, seeded: np.random.Generator) -> bytes:
    """The bytes with one to four places flipped, overwritten, cut out, doubled or inserted, or cut short."""
    damaged = bytearray(content)
    for _ in range(seeded.integers(1, 5)):
        at = int(seeded.integers(len(damaged) + 1))
        length = int(seeded.integers(1, 9))
        match int(seeded.integers(7)):
            case 0 if at < len(damaged):
                damaged[at] ^= 1 << int(seeded.integers(8))
            case 1 if at < len(damaged):
                damaged[at] = int(seeded.integers(256))
            case 2:
                damaged[at:at] = seeded.bytes(length)
            case 3:
                del damaged[at : at + length]
            case 4:
                damaged[at:at] = damaged[at : at + length * 8]
            case 5:
                damaged[at:at] = WORDS[int(seeded.integers(len(WORDS)))]
            case _ if seeded.integers(4) == 0:
                del damaged[at:]
    return bytes(damaged)
