"""The figures of one pipeline on one family, from what the driver says and from the main loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lab.kernel_figures.families import Family
from lab.kernel_figures.isa import MainLoop


@dataclass(frozen=True)
class Figures:
    """What a compiler made of a kernel; None where a driver does not say.

    ``wave`` is the number of lanes that run together, ``lanes`` the workgroup's. ``spilled`` are vector
    registers that did not fit, ``spilled_scalars`` scalar ones, ``scratch`` the bytes of a lane that replace
    them. ``waves`` fit a SIMD at once (NVIDIA: warps a multiprocessor), shared memory counted.
    """

    wave: int
    lanes: int
    registers: int | None = None
    waves: int | None = None
    spilled: int = 0
    spilled_scalars: int = 0
    scratch: int = 0
    lds: int = 0
    code: int | None = None
    instructions: int | None = None
    loop: MainLoop | None = None

    @property
    def lanes_used(self) -> float:
        """The share of the lanes of its waves that a workgroup fills."""
        return self.lanes / (-(-self.lanes // self.wave) * self.wave)

    @property
    def fma_share(self) -> float | None:
        """The bound of the FMA rate from the main loop's instructions and the lanes that are used."""
        return None if self.loop is None else self.loop.share * self.lanes_used


def figures(family: Family, statistics: Mapping[str, Any], lanes: int, loop: MainLoop | None) -> Figures:
    """The figures from a driver's statistics, by the names of RADV, ANV and NVK."""

    def first(*names: str) -> int | None:
        return next((int(statistics[name]) for name in names if name in statistics), None)

    wave = first("subgroup") or 1
    waves = first("Subgroups per SIMD", "Max warps/SM")
    if waves is not None and family.halved and wave == 64:
        waves //= 2  # RADV counts waves of 32
    return Figures(
        wave=wave,
        lanes=lanes,
        registers=first("VGPRs", "GPRs"),
        waves=waves,
        spilled=first("Spilled VGPRs", "Spill Count", "Spills to memory") or 0,
        spilled_scalars=first("Spilled SGPRs") or 0,
        scratch=first("Scratch size", "Scratch Memory Size") or 0,
        lds=first("LDS size", "LDS Size", "Workgroup Memory Size", "Shared size") or 0,
        code=first("Code size", "Code Size", "Code size in bytes"),
        instructions=first("Instructions", "Instruction Count", "Instruction count"),
        loop=loop,
    )


COLUMNS = tuple(field.name for field in fields(Figures) if field.name != "loop")
LOOP_COLUMNS = tuple(field.name for field in fields(MainLoop))


def to_row(found: Figures) -> list[int | None]:
    """The figures in the order of ``COLUMNS``, and where there is a main loop of ``LOOP_COLUMNS``."""
    row = [getattr(found, name) for name in COLUMNS]
    return row if found.loop is None else [*row, *(getattr(found.loop, name) for name in LOOP_COLUMNS)]


def from_row(row: list[Any]) -> Figures:
    """
    >>> from_row(to_row(Figures(wave=64, lanes=32))).lanes_used
    0.5
    """
    own, loop = row[: len(COLUMNS)], row[len(COLUMNS) :]
    return Figures(**dict(zip(COLUMNS, own, strict=True)), loop=MainLoop(*loop) if loop else None)
