"""Random commands, which NumPy does too: pieces of buffers, several streams, recordings among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dl4all.runtime.protocols import Dispatch
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.oracle import (
    DISPATCHES,
    HOST,
    TRANSFERS,
    MemoryPiece,
    Model,
    OracleStep,
)

pytestmark = pytest.mark.usefixtures("data")


class Random(Model):
    """Random steps in streams that hand the buffers to each other, some of them recorded and replayed."""

    STREAMS, BUFFERS, RECORDINGS = 3, 5, 4

    def __init__(self, bench: Bench, seed: int) -> None:
        self.unit = bench.unit or 1
        part = -(-251 // self.unit) * self.unit
        super().__init__(bench, seed, self.BUFFERS, 4 * part + 3)
        self.random, self.part = np.random.default_rng(seed), part
        self.streams = [bench.stream, *(bench.new_stream() for _ in range(self.STREAMS - 1))]
        self.owners = [0] * self.BUFFERS  # the stream that used a buffer last
        self.recordings: list[tuple[list[OracleStep], list[int], Any]] = []
        programs = bench.capabilities.programs
        self.recorded = {**(DISPATCHES if programs else {}), **TRANSFERS}
        self.kinds = [*self.recorded] * 3 + [*HOST] * 2 + ["record", "replay", "replay", "move", "renew"]

    def turn(self) -> str:
        """Do one thing; says what."""
        kind = str(self.random.choice(self.kinds))
        if kind in self.recorded or kind in HOST:
            todo = self.choose(kind)
            self.run(todo, self.streams[self.take(todo)])
            return str(todo)
        getattr(self, kind)()
        return kind

    def choose(self, kind: str) -> OracleStep:
        """A random step whose pieces do not overlap; it may read and write one buffer."""
        while True:
            count = {**self.recorded, **HOST}[kind]
            pieces = tuple(self.piece(kind in DISPATCHES) for _ in range(count))
            k = int(self.random.integers(1, 4))
            if kind == "copy":  # as long as each other
                shorter = min(piece.length for piece in pieces)
                pieces = tuple(MemoryPiece(p.buffer, p.start, p.start + shorter) for p in pieces)
            *read, written = pieces
            if all(not overlap(piece, written) for piece in read):
                return OracleStep(kind, pieces, k)

    def piece(self, bound: bool) -> MemoryPiece:
        """Parts of a buffer, where a dispatch can bind them, or words anywhere."""
        buffer = int(self.random.integers(self.BUFFERS))
        if self.random.random() < 0.3 or (bound and not self.bench.unit):
            return MemoryPiece(buffer, 0, self.count)
        if bound:
            start, stop = sorted(self.random.choice(5, 2, replace=False) * self.part)
        else:
            start, stop = sorted(self.random.choice(self.count, 2, replace=False))
        return MemoryPiece(buffer, int(start), int(stop))

    def take(self, *steps: OracleStep) -> int:
        """Hand all buffers of some steps to one of the streams, through events."""
        stream = int(self.random.integers(self.STREAMS))
        used = {piece.buffer for todo in steps for piece in todo.pieces}
        for owner in {self.owners[buffer] for buffer in used} - {stream}:
            self.streams[stream].wait_event(self.streams[owner].record_event())
        for buffer in used:
            self.owners[buffer] = stream
        return stream

    def record(self) -> None:
        steps = [self.choose(str(self.random.choice(list(self.recorded)))) for _ in range(6)]
        if len(self.recordings) == self.RECORDINGS:
            self.settle()
            _, _, oldest = self.recordings.pop(0)
            oldest.free()
        changing = [
            i for i, todo in enumerate(steps) if todo.kind in DISPATCHES and self.random.random() < 0.7
        ]
        recording = self.bench.record([self.command(todo) for todo in steps], changing)
        self.recordings.append((steps, changing, recording))

    def replay(self) -> None:
        """Once or twice, with other push constants, or on other pieces, for some of the dispatches."""
        if not self.recordings:
            return
        steps, changing, recording = self.recordings[int(self.random.integers(len(self.recordings)))]
        changes = {}
        for i in changing:
            if self.random.random() < 0.4:
                steps[i] = self.other(steps, i)
                command = self.command(steps[i])
                recorded = recording.commands[i]
                assert isinstance(command, Dispatch)
                changes[i] = command._replace(groups=recorded.groups)
        stream = self.streams[self.take(*steps)]
        for again in range(int(self.random.integers(1, 3))):
            stream.replay(recording, None if again else changes)
            for todo in steps:
                self.apply(todo)

    def other(self, steps: list[OracleStep], index: int) -> OracleStep:
        """A step with another k, and sometimes on pieces that nothing else of the recording uses."""
        old = steps[index]._replace(k=int(self.random.integers(1, 4)))
        used = [piece for i, todo in enumerate(steps) if i != index for piece in todo.pieces]
        new = self.choose(old.kind)
        if new.length > old.length or any(overlap(piece, other) for piece in new.pieces for other in used):
            return old
        return new

    def move(self) -> None:
        """Wait for one of the streams."""
        self.streams[int(self.random.integers(self.STREAMS))].synchronize()

    def settle(self) -> None:
        """Wait for all of them."""
        for stream in self.streams:
            stream.synchronize()

    def renew(self) -> None:
        """A new buffer in the place of an old one; recordings with the old one go."""
        index = int(self.random.integers(self.BUFFERS))
        self.settle()
        for steps, changing, recording in self.recordings[:]:
            if any(piece.buffer == index for todo in steps for piece in todo.pieces):
                recording.free()
                self.recordings.remove((steps, changing, recording))
        self.buffers[index].free()
        self.buffers[index] = self.bench.put(self.arrays[index], self._kind(index))
        self.owners[index] = 0


def overlap(a: MemoryPiece, b: MemoryPiece) -> bool:
    return a.buffer == b.buffer and a.start < b.stop and b.start < a.stop


@pytest.mark.parametrize("seed", range(12))
def test_random_commands(bench: Bench, seed: int) -> None:
    model = Random(bench, seed)
    said = [model.turn() for _ in range(400)]
    model.settle()
    model.check("\n".join(said[-40:]))
