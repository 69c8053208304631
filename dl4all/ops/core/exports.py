"""Where a function of tensors appears beside ``dl4all.ops``: the only place where that is said.

``tools/exports.py`` reads these declarations and writes the lists of names, the methods of tensors and the
typed stubs from them; a test compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

F = TypeVar("F")

Space = Literal["dl", "Tensor", "Tensor_", "F", "F_", "Tensor.unfold", "Tensor_.div", "Tensor_.divide"]
"""``dl.NAME``, ``Tensor.NAME``, ``Tensor.NAME_`` (in place), ``nn.functional.NAME`` and ``NAME_`` there.

With a name after a dot, the function appears there under that name only.
"""


def export(*spaces: Space, aliases: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Declare where a function appears.

    Args:
        spaces: beside ``dl4all.ops``, which has all of them.
        aliases: second names that PyTorch has for it, in the same spaces.

    Example:
        >>> @export("dl", "Tensor", aliases=("absolute",))
        ... def abs(input): ...
    """

    def unchanged(function: F) -> F:
        return function

    return unchanged
