"""Examples of an op's calls: shapes and arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dl4all.ops.core.tensor_base import Shape


@dataclass(frozen=True)
class Example:
    """Shapes and arguments with which tests and benchmarks call an op."""

    shapes: tuple[Shape | None, ...]  # of each array operand, None for an omitted one
    arguments: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        shapes = ", ".join(str(shape) for shape in self.shapes)
        return shapes + "".join(f", {name}={value}" for name, value in self.arguments)


def example(*shapes: Shape | None, **arguments: Any) -> Example:
    return Example(shapes, tuple(arguments.items()))
