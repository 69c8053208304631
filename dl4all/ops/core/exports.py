"""The decorator that declares in which public namespaces a function of tensors appears.

The namespaces take their functions from here when they are imported. ``tools/exports.py`` reads the same
declarations, and writes the typed stubs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

from dl4all.ops.core.autocast import Policy, following

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


def export(
    *spaces: Space, aliases: tuple[str, ...] = (), out: bool = False, autocast: Policy | None = None
) -> Callable[[F], F]:
    """Declare the public namespaces of a function.

    Args:
        spaces: namespaces in addition to ``dl4all.ops``, which has every function.
        aliases: PyTorch's other names of the function, in the same namespaces.
        out: whether the function of ``dl`` takes tensors for its results, as that of ``torch`` does.
        autocast: the dtype of its operands within ``dl.autocast``; without it they stay as they are.

    Example:
        >>> @export("dl", "Tensor", aliases=("absolute",), out=True)
        ... def abs(input): ...
    """

    def declare(function: F) -> F:
        if autocast is not None and hasattr(function, "autocast"):  # an op asks itself
            function.autocast = autocast
        elif autocast is not None:
            function = following(autocast, function)
        EXPORTS.append(Export(function, spaces, aliases, out))
        return function

    return declare


def exported(space: str) -> Iterator[tuple[str, Export]]:
    """The names in a namespace, with their functions."""
    for one in EXPORTS:
        if space in one.spaces:
            yield from ((name, one) for name in one.names)
        yield from (
            (dotted.partition(".")[2], one) for dotted in one.spaces if dotted.startswith(f"{space}.")
        )
