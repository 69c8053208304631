"""The decorator that declares in which public namespaces a function of tensors appears.

``tools/exports.py`` reads these declarations and generates the lists of names, the methods of tensors and the
typed stubs; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

F = TypeVar("F")

Space = Literal["dl", "Tensor", "Tensor_", "F", "F_", "Tensor.unfold"]
"""``dl.NAME``, ``Tensor.NAME``, ``Tensor.NAME_`` (in place), ``nn.functional.NAME`` and ``NAME_`` there.

With a name after a dot, the function appears there under that name only.
"""


def export(*spaces: Space, aliases: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Declare the public namespaces of a function.

    Args:
        spaces: namespaces in addition to ``dl4all.ops``, which has every function.
        aliases: PyTorch's other names of the function, in the same namespaces.

    Example:
        >>> @export("dl", "Tensor", aliases=("absolute",))
        ... def abs(input): ...
    """

    def unchanged(function: F) -> F:
        return function

    return unchanged
