"""The decorator that declares in which public namespaces a function of tensors appears.

The namespaces take their functions from here when they are imported. ``tools/exports.py`` reads the same
declarations, and writes the typed stubs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

F = TypeVar("F")

Space = Literal["dl", "Tensor", "Tensor_", "F", "F_", "Tensor.unfold"]
"""``dl.NAME``, ``Tensor.NAME``, ``Tensor.NAME_`` (in place), ``nn.functional.NAME`` and ``NAME_`` there.

With a name after a dot, the function appears there under that name only.
"""


class Export(NamedTuple):
    """An exported function."""

    function: Any
    spaces: tuple[str, ...]
    aliases: tuple[str, ...]
    out: bool

    @property
    def names(self) -> tuple[str, ...]:
        return self.function.__name__, *self.aliases


EXPORTS: list[Export] = []


def export(*spaces: Space, aliases: tuple[str, ...] = (), out: bool = False) -> Callable[[F], F]:
    """Declare the public namespaces of a function.

    Args:
        spaces: namespaces in addition to ``dl4all.ops``, which has every function.
        aliases: PyTorch's other names of the function, in the same namespaces.
        out: whether the function of ``dl`` takes tensors for its results, as that of ``torch`` does.

    Example:
        >>> @export("dl", "Tensor", aliases=("absolute",), out=True)
        ... def abs(input): ...
    """

    def unchanged(function: F) -> F:
        EXPORTS.append(Export(function, spaces, aliases, out))
        return function

    return unchanged


def exported(space: str) -> Iterator[tuple[str, Export]]:
    """The names in a namespace, with their functions."""
    for one in EXPORTS:
        if space in one.spaces:
            yield from ((name, one) for name in one.names)
        yield from (
            (dotted.partition(".")[2], one) for dotted in one.spaces if dotted.startswith(f"{space}.")
        )
