"""Spaces that tests search."""

from __future__ import annotations

from typing import Any

import dl4all as dl


def flat(s: dl.search.Choices) -> dl.nn.Module:
    """Without conditions."""
    width = s.integer("width", 2, 14, step=3)
    acts: dict[str, type[dl.nn.Module]] = {"relu": dl.nn.ReLU, "tanh": dl.nn.Tanh, "gelu": dl.nn.GELU}
    act = s.choice("act", acts)
    return dl.nn.Sequential(dl.nn.Linear(3, width, bias=s.choice("bias", [False, True])), act())


def conditional(s: dl.search.Choices) -> dl.nn.Module:
    """Hyperparameters that only one kind of network has."""
    kind, bias = s.choice("kind", ["conv", "linear"]), s.choice("bias", [False, True])
    if kind == "linear":
        return dl.nn.Linear(3, 2, bias=bias)
    kernel = s.choice("kernel", [1, 3])
    widths = s.repeat("cells", lambda s: s.integer("width", 2, 8, step=3), 1, 2)
    return dl.nn.Sequential(*(dl.nn.Conv2d(3, width, kernel, bias=bias) for width in widths))


def nested(s: dl.search.Choices) -> list[Any]:
    """Repeated blocks with optional parts."""

    def part(s: dl.search.Choices) -> Any:
        return s.choice("op", ["a", "b", None]), s.optional("more", lambda s: s.integer("n", 1, 4))

    return [s.choice("kind", [0, 1]), *s.repeat("blocks", part, 0, 3)]


def deep(s: dl.search.Choices) -> int:
    """Conditions within conditions, which the first values meet."""
    if s.choice("a", [1, 0]) and s.choice("b", [1, 0]):
        return s.integer("c", 1, 12)
    return 0
