"""Figures of matplotlib, without a screen, and their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dl4all.errors import ArgumentError, BackendMissingError, FileFormatError


def new_figure(name: str, width: float, height: float) -> Any:
    """An empty figure of so many inches; `name` is who draws, for errors.

    Raises:
        BackendMissingError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # not pyplot, which looks for a screen
    except ImportError:
        raise BackendMissingError(f"[{name}] drawing needs matplotlib: pip install matplotlib") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(name: str, figure: Any, file: str | Path) -> None:
    """Write an image file: SVG, PNG or PDF by its suffix.

    Raises:
        ArgumentError: the suffix says no kind of picture.
        FileFormatError: the file cannot be written.
    """
    try:
        figure.savefig(file)
    except OSError as error:
        raise FileFormatError(f"{file}: cannot be written: {error.strerror}") from None
    except ValueError as error:
        raise ArgumentError(f"[{name}] {file}: {error}") from None
