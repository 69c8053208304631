"""The mark of objects that decide nothing of what is traced."""

from __future__ import annotations


class Untracked:
    """Base class of objects whose attributes do not decide what is captured: caches, and counts of calls."""
