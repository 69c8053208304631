"""Processes end with their own status and output, whatever other threads do on devices."""

from __future__ import annotations

import itertools
import zlib
from concurrent.futures import ThreadPoolExecutor

from tests.attacks.exits import ACTIVITIES, ENDINGS, ended_badly
from tests.support.subcases import FULL

KINDS = list(itertools.product(ACTIVITIES, ENDINGS))
REPEATS = 200 if FULL else 1


def _is_usual(activity: str, ending: str) -> bool:
    """Each activity with one ending, and so that each ending comes up."""
    place = (ACTIVITIES.index(activity) + zlib.crc32(b"endings")) % len(ENDINGS)
    return list(ENDINGS)[place] == ending


def test_ends(device: str) -> None:
    kinds = [kind for kind in KINDS if FULL or kind == ("matmul", "return")]
    if device == "vulkan:0" and not FULL:
        kinds = [kind for kind in KINDS if _is_usual(*kind)]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda kind: (kind, ended_badly(device, *kind)), kinds * REPEATS)
        assert [one for one in found if one[1]] == []
