"""The input of a compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Source(NamedTuple):
    """A text in GLSL, and the macros it is compiled with."""

    text: str
    defines: Sequence[tuple[str, str]]
