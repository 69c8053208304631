"""The parts of the library that lie at the top level, with links to them inside dl4all/."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LINKS = (path for path in (REPOSITORY / "dl4all").iterdir() if path.is_symlink())
PARTS = tuple(sorted(path.name for path in LINKS if path.is_dir()))
