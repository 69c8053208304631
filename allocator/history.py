"""Memory over time, as numbers and as a picture."""

from __future__ import annotations

import html
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dl4all.allocator.allocation import Allocation
from dl4all.allocator.budget import Driver
from dl4all.errors import ArgumentError

WIDTH, HEIGHT, TAGS = 1200, 400, 9  # of the picture in pixels; tags with a colour of their own
COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#77aadd", "#44bb99",
    "#bbbbbb",
)  # fmt: skip


class Moment(NamedTuple):
    """An allocation, or a free, which shows when the next allocation comes."""

    seconds: float
    change: int  # bytes
    tag: str
    reserved: int  # bytes at that time


class Timeline:
    """Allocations and frees of a device, in order."""

    def __init__(self, name: str, live: Iterable[Allocation], driver: Driver) -> None:
        self.name = name
        self.moments: list[Moment] = []
        self._driver = driver
        self._start = time.perf_counter()
        self._at_start: Counter[str] = Counter()
        for allocation in live:
            self._at_start[allocation.tag or "-"] += allocation.nbytes

    def note(self, what: Literal["allocate", "free"], allocation: Allocation) -> None:
        """An allocation was handed out, or came back."""
        change = allocation.nbytes if what == "allocate" else -allocation.nbytes
        seconds = time.perf_counter() - self._start
        self.moments.append(Moment(seconds, change, allocation.tag or "-", self._driver.reserved))

    @property
    def peak(self) -> int:
        """The most bytes that were allocated at one time."""
        changes = [sum(self._at_start.values()), *(moment.change for moment in self.moments)]
        return int(np.cumsum(changes, dtype=np.int64).max())

    def at_peak(self) -> dict[str, int]:
        """Bytes by tag at the time of the peak, the largest first."""
        held = Counter(self._at_start)
        total = most = sum(held.values())
        found = held.copy()
        for moment in self.moments:
            held[moment.tag] += moment.change
            total += moment.change
            if total > most:
                most, found = total, held.copy()
        return {tag: nbytes for tag, nbytes in found.most_common() if nbytes}

    def save(self, path: str | Path) -> None:
        """Write the picture: each tag's bytes stacked, and a line for what is reserved.

        Args:
            path: ends in ``.html`` or ``.png``.

        Raises:
            ArgumentError: it ends in something else.
        """
        path = Path(path)
        if path.suffix == ".html":
            path.write_text(self._html(), "utf-8")
        elif path.suffix == ".png":
            path.write_bytes(_png(self._pixels()))
        else:
            raise ArgumentError(f"[trace] a picture is .html or .png, not {path.suffix or path.name!r}")

    def _columns(self) -> tuple[list[str], np.ndarray[tuple[int, int], np.dtype[np.int64]], list[int]]:
        """Tags, their bytes after each moment (a row each), and what is reserved."""
        most = Counter(self._at_start)
        for moment in self.moments:
            most[moment.tag] += max(0, moment.change)
        tags = [tag for tag, _ in most.most_common(TAGS)]
        rows = {tag: row for row, tag in enumerate(tags)}
        others = [] if len(most) <= TAGS else ["others"]
        changes = np.zeros((len(tags) + len(others), len(self.moments) + 1), np.int64)
        for tag, nbytes in self._at_start.items():
            changes[rows.get(tag, -1), 0] += nbytes
        for column, moment in enumerate(self.moments, 1):
            changes[rows.get(moment.tag, -1), column] += moment.change
        reserved = [moment.reserved for moment in self.moments]
        return tags + others, changes.cumsum(axis=1), [reserved[0] if reserved else 0, *reserved]

    def _html(self) -> str:
        tags, rows, reserved = self._columns()
        top = max(1, *reserved, int(rows.sum(axis=0).max(initial=0)))
        columns = np.unique(np.linspace(0, rows.shape[1] - 1, WIDTH).astype(int))
        across = columns / max(1, rows.shape[1] - 1) * WIDTH
        below = np.zeros(len(columns))
        shapes, legend = [], []
        for tag, row, colour in zip(tags, rows, COLOURS, strict=False):
            above = below + row[columns]
            edge = [*zip(across, above, strict=True), *zip(across[::-1], below[::-1], strict=True)]
            points = " ".join(f"{x:.1f},{HEIGHT * (1 - y / top):.1f}" for x, y in edge)
            name = html.escape(tag)
            shapes.append(f'<polygon points="{points}" fill="{colour}"><title>{name}</title></polygon>')
            legend.append(f'<span style="color:{colour}">&#9632;</span> {name} {row.max() / 1e6:.2f} MB')
            below = above
        line = " ".join(
            f"{x:.1f},{HEIGHT * (1 - reserved[i] / top):.1f}" for x, i in zip(across, columns, strict=True)
        )
        shapes.append(f'<polyline points="{line}" fill="none" stroke="black" stroke-dasharray="4"/>')
        return (
            f"<!doctype html><meta charset=utf-8><title>memory of {html.escape(self.name)}</title>"
            f"<body style='font-family:sans-serif'><h3>Memory of {html.escape(self.name)}: at most "
            f"{self.peak / 1e6:.2f} MB in tensors, {max(reserved) / 1e6:.2f} MB reserved (dashed)</h3>"
            f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' style='width:100%;border:1px solid #ccc'>"
            f"{''.join(shapes)}</svg><p>{' &nbsp; '.join(legend)}</p>"
            f"<p>{len(self.moments)} allocations and frees in "
            f"{self.moments[-1].seconds if self.moments else 0:.3f} s, in order from left to right.</p>"
        )

    def _pixels(self) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        _, rows, reserved = self._columns()
        top = max(1, *reserved, int(rows.sum(axis=0).max(initial=0)))
        picture = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
        columns = np.linspace(0, rows.shape[1] - 1, WIDTH).astype(int)
        heights = np.arange(HEIGHT, 0, -1)[:, None] * (top / HEIGHT)
        below = np.zeros(WIDTH)
        for row, colour in zip(rows, COLOURS, strict=False):
            above = below + row[columns]
            picture[(heights > below) & (heights <= above)] = tuple(bytes.fromhex(colour[1:]))
            below = above
        line = HEIGHT - 1 - (np.array(reserved)[columns] * (HEIGHT - 1) / top).astype(int)
        picture[line, np.arange(WIDTH)] = 0
        return picture


def _png(picture: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    height, width, _ = picture.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), picture.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(rows.tobytes())
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
