"""Operands that are no tensors and compute ops on themselves, as sparse tensors do.

PyTorch calls such types tensor-like: https://docs.pytorch.org/docs/stable/notes/extending.html
"""

from __future__ import annotations

from typing import Any


class TensorLike:
    """An operand that is asked for the result of each op it is given to."""

    __slots__ = ()

    def call_op(self, op: Any, operands: list[Any], arguments: dict[str, Any]) -> Any:
        """The result of an op that has this object among its operands."""
        raise NotImplementedError


class TensorLikeFound(Exception):
    """Raised where operands are checked: ops learn of such operands then only, so others cost nothing."""

    def __init__(self, operand: TensorLike) -> None:
        super().__init__()
        self.operand = operand
