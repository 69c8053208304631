"""``python -m dl4all``: the ``dl4all`` command, wherever its script lies."""

from __future__ import annotations

from dl4all.cli import main

if __name__ == "__main__":
    main()
