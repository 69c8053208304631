"""Reads and writes the instructions of a SPIR-V module that a pass changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dl4all.runtime.spirv.parser import HEADER_WORDS, Instructions, Tables

TYPE_IMAGE = 25


def instruction(opcode: int, *operands: int) -> list[int]:
    """The words of an instruction."""
    return [(len(operands) + 1) << 16 | opcode, *operands]


def instructions(words: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The opcode, first word and end of each instruction of a module."""
    at = HEADER_WORDS
    while at < len(words):
        end = at + (words[at] >> 16)
        yield words[at] & 0xFFFF, at, end
        at = end


class Declarations:
    """New ids, and types that a module may lack: it must not have two of the same."""

    def __init__(self, bound: int, ops: Instructions, tables: Tables) -> None:
        self.bound = bound
        self.words: list[int] = []
        self._types = {(op, *args): id for id, (op, args) in tables.types.items()}
        self._types |= {(TYPE_IMAGE, *args[1:]): args[0] for args in ops[TYPE_IMAGE]}

    def id(self) -> int:
        self.bound += 1
        return self.bound - 1

    def type(self, opcode: int, *operands: int) -> int:
        known = self._types.get((opcode, *operands))
        if known is None:
            known = self._types[(opcode, *operands)] = self.id()
            self.words += instruction(opcode, known, *operands)
        return known
