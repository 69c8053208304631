"""Operands that are no tensors and compute ops on themselves, as sparse tensors do.

PyTorch calls such types tensor-like: https://docs.pytorch.org/docs/stable/notes/extending.html
"""

from __future__ import annotations

from typing import Any

from dl4all.errors import DTypeError


class TensorLike:
    """An operand that is asked for the result of each op it is given to."""

    __slots__ = ()

    def call_op(self, op: Any, operands: list[Any], arguments: dict[str, Any]) -> Any:
        """The result of an op that has this object among its operands."""
        raise NotImplementedError

    def rows_at(self, index: Any) -> Any:
        """Its rows at an index, if it is a table of embeddings."""
        raise DTypeError(f"[embedding] a {type(self).__name__} is no table of embeddings")


class TensorLikeFound(Exception):
    """Raised where operands are checked: ops learn of such operands then only, so others cost nothing."""

    def __init__(self, operand: TensorLike) -> None:
        super().__init__()
        self.operand = operand
