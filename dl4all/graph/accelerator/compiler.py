"""From instructions on whole tensors to a program: groups, tiles, loops and jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dl4all.graph.accelerator.groups import grouped
from dl4all.graph.accelerator.loops import ProgramBuilder, rolled
from dl4all.graph.accelerator.lowered_call import BranchPart, LoopPart, LoweredCall, Part, lower_call
from dl4all.graph.accelerator.model import Hardware
from dl4all.graph.accelerator.tile_sizes import ALIGNMENT, aligned
from dl4all.graph.accelerator.tiles import tile_lines
from dl4all.graph.op_codes.emitter import Line
from dl4all.graph.op_codes.instruction import OpProgram, Register, Scratchpad
from dl4all.graph.op_codes.validity import check_program


class CompiledCall(NamedTuple):
    """A program, the op of each of its instructions, and the call whose tensors lie in its DRAM."""

    program: OpProgram
    ops: tuple[str, ...]
    call: LoweredCall


def compile_call(function: Callable[..., Any], args: Sequence[Any], hardware: Hardware) -> CompiledCall:
    """The program of a call with tensors like these on the CPU.

    Raises:
        ArgumentError: an op has no instructions, or does not fit into the scratchpad.
    """
    call = lower_call(function, args)
    start = aligned(max(call.emitter.words, 1))
    scratchpad = Scratchpad(start, hardware.words // ALIGNMENT * ALIGNMENT)
    varying = {*call.graph.inputs, *(b.buffer for work in call.preparations for b in work.bindings)}
    inputs = [t.register for number in varying for t in call.emitter.pieces.get(number, ())]
    writer = _PartWriter(hardware, scratchpad, inputs, [view for view, _ in call.results], call.parts)
    writer.write(call.parts)
    program = writer.builder.program(scratchpad)
    check_program(program, scratchpad.end)
    return CompiledCall(program, tuple(writer.builder.ops), call)


class _PartWriter:
    """A program in the making.

    Args:
        hardware: whose tiles they are.
        scratchpad: where they lie.
        inputs: what another run finds with other contents.
        outputs: what is read when the program has run.
        parts: all of the program.
    """

    def __init__(
        self,
        hardware: Hardware,
        scratchpad: Scratchpad,
        inputs: list[Register],
        outputs: list[Register],
        parts: Sequence[Part],
    ) -> None:
        self.builder = ProgramBuilder()
        self._hardware, self._scratchpad, self._inputs, self._outputs = hardware, scratchpad, inputs, outputs
        every = list(_all_parts(parts))
        self._straight = [part for part in every if isinstance(part, tuple)]
        self._preds = [part.pred for part in every if not isinstance(part, tuple)]

    def write(self, parts: Iterable[Part], *, again: bool = False) -> None:
        """Append the instructions of parts; `again` says that they are run several times."""
        for part in parts:
            if isinstance(part, BranchPart):
                to_true = self.builder.jump(part.pred)
                self.write(part.if_false, again=again)
                to_end = self.builder.jump(1.0)
                self.builder.land(to_true)
                self.write(part.if_true, again=again)
                self.builder.land(to_end)
            elif isinstance(part, LoopPart):
                start = len(self.builder.instructions)
                self.write(part.condition, again=True)
                to_body = self.builder.jump(part.pred)
                to_end = self.builder.jump(1.0)
                self.builder.land(to_body)
                self.write(part.body, again=True)
                self.builder.land(self.builder.jump(1.0), start)
                self.builder.land(to_end)
            else:
                self._write_lines(part, again=again)

    def _write_lines(self, lines: Sequence[Line], *, again: bool) -> None:
        # Where lines run again, they may read in one iteration what they have written in the one before.
        others = [other for other in self._straight if other is not lines or again]
        later = [one for other in others for line in other for one in line.reads]
        for group in grouped(lines, self._inputs, [*later, *self._preds, *self._outputs], self._hardware):
            for tile in rolled(list(tile_lines(group, self._hardware, self._scratchpad))):
                self.builder.add(tile)


def _all_parts(parts: Iterable[Part]) -> Iterator[Part]:
    """Parts, and those in them."""
    for part in parts:
        yield part
        if isinstance(part, BranchPart):
            yield from _all_parts((*part.if_true, *part.if_false))
        elif isinstance(part, LoopPart):
            yield from _all_parts((*part.condition, *part.body))
