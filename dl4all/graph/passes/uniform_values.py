"""Values that hold one number throughout: what fills leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dl4all.graph.ir.graph import Argument, BoundFill, Graph, Node, Operand, Value, bound_bytes

Words = Mapping[Value, int]
"""The 32-bit pattern that is all over the buffer of each uniform value."""


def filled_word(graph: Graph, node: Node) -> int | None:
    """The word with which a node fills all of its buffer; None if it does anything else."""
    if len(node.commands) != 1 or len(node.writes) != 1 or node.reads:
        return None
    [command], [value] = node.commands, node.writes
    if not isinstance(command, BoundFill) or command.binding.buffer != value.buffer:
        return None
    whole = (0, bound_bytes(graph.buffers[value.buffer].nbytes))
    return command.word if command.binding[1:] == whole else None


def number_of(words: Words, operand: Argument) -> Any:
    """The number that an operand is throughout, as a scalar of its dtype; None if that is not known.

    >>> float(number_of({Value(3, 1): 0x3F800000}, Operand(Value(3, 1), (2,), "float32", (1,))))
    1.0
    """
    if not isinstance(operand, Operand):
        return operand
    word = words.get(operand.value)
    if word is None:
        return None
    elements = np.array([word, word], "<u4").view(operand.dtype)
    same = elements.tobytes() == elements[:1].tobytes() * len(elements)
    return elements[0] if same else None


def word_of(number: Any) -> int | None:
    """The word that, repeated, is a NumPy scalar repeated; None if there is none.

    >>> hex(word_of(np.float32(1.0))), hex(word_of(np.bool_(True))), word_of(np.int64(1))
    ('0x3f800000', '0x1010101', None)
    """
    content = number.tobytes()
    low, high = np.frombuffer(content * (8 // len(content)), "<u4")
    return int(low) if low == high else None
