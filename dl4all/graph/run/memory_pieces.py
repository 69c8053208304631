"""Which pieces of memory commands use, and which of them must keep their order."""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.graph.ir.graph import Binding, BoundFill, Command, MultiTensorLaunch, Node

Piece = tuple[Binding, bool]
"""A piece of a buffer, and whether it is written. What is written may be read, too."""


def pieces_of(command: Command) -> list[Piece]:
    """The pieces that a command uses."""
    if isinstance(command, BoundFill):
        return [(command.binding, True)]
    if isinstance(command, MultiTensorLaunch):
        jobs = [piece for job in command.jobs for piece in zip(job, command.writes, strict=True)]
        shared = [*((piece, False) for piece in command.before), *((piece, True) for piece in command.after)]
        return [*jobs, *shared]
    return list(zip(command.bindings, command.writes, strict=True))


def pieces_of_node(node: Node) -> list[Piece]:
    """The pieces that a node uses: whole buffers, if it has no commands."""
    if node.commands:
        return [piece for command in node.commands for piece in pieces_of(command)]
    values = [*((value, False) for value in node.reads), *((value, True) for value in node.writes)]
    return [(Binding(value.buffer, 0, 2**63), written) for value, written in values]


def conflict(pieces: Sequence[Piece], read: Sequence[Binding], written: Sequence[Binding]) -> bool:
    """Whether one of the pieces is written and used on the other side, or read and written there.

    >>> word = Binding(0, 0, 4)
    >>> conflict([(word, False)], read=[word], written=[]), conflict([(word, True)], read=[word], written=[])
    (False, True)
    """
    return any(
        overlap(piece, other) for piece, writes in pieces for other in (*written, *(read if writes else ()))
    )


def overlap(a: Binding, b: Binding) -> bool:
    """Whether two pieces have bytes in common."""
    return a.buffer == b.buffer and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
