"""Stand-ins: tensors without memory, for what an op says about its operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.allocator.storage import Storage
from dl4all.graph.ir.graph import Foreign, Node, Operand, Shape
from dl4all.ops.core.op import REGISTRY
from dl4all.ops.core.tensor_base import TensorBase


def is_known(node: Node) -> bool:
    """Whether all that a node's op was called with is in the graph."""
    return node.op in REGISTRY and not any(_is_foreign(value) for _, value in node.arguments)


def inferred(node: Node) -> tuple[Shape, str]:
    """Shape and dtype of the result, as the op of a known node infers them.

    Raises:
        Dl4allError, KeyError, TypeError, ValueError: the operands do not fit.

    >>> from dl4all.graph.ir.graph import Value
    >>> x = Operand(Value(0, 0), (2, 3), "int32", (3, 1))
    >>> inferred(Node("exp", "exp", (x,)))
    ((2, 3), 'float32')
    """
    shape, dtype = REGISTRY[node.op].infer(*map(_stand_in, node.operands), **dict(node.arguments))
    return tuple(shape), dtype.name


def flops(node: Node) -> int:
    """The floating point operations of a node and its parts, as far as their ops declare them."""
    if node.parts:
        return sum(map(flops, node.parts))
    declared = REGISTRY[node.op].flops if is_known(node) else None
    return 0 if declared is None else declared(*map(_stand_in, node.operands), **dict(node.arguments))


def _is_foreign(value: Any) -> bool:
    """Whether an argument is not known, or a part of it."""
    if isinstance(value, (tuple, list)) and not isinstance(value, Foreign):
        return any(map(_is_foreign, value))
    return isinstance(value, Foreign)


def _stand_in(operand: Any) -> Any:
    """A tensor without memory in place of an operand: what the result follows from."""
    if not isinstance(operand, Operand):
        return operand
    nothing = object.__new__(Storage)
    dtype = np.dtype(operand.dtype)
    device: Any = None
    return TensorBase(nothing, operand.shape, dtype, device, operand.strides, operand.offset)
