"""Independent commands share a submission; those that depend on each other never do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dl4all.errors import DeviceError
from dl4all.runtime.hazards import accesses
from dl4all.runtime.kompute.backend import KomputeBackend
from dl4all.runtime.kompute.recording import groups
from dl4all.runtime.protocols import Command, Copy, Dispatch, Fill, Span, span
from dl4all.testing.conformance.support.kernels import (
    Kernels,
    bytes_of,
    get,
    poison,
    pushed,
    put,
    step,
    words,
)

N = 1000


# Which commands go together


def conflict(one: Command, other: Command) -> bool:
    """Whether the order of two commands matters, where whole buffers are bound."""

    def meet(these: list[Span], those: list[Span]) -> bool:
        return any(a.buffer == b.buffer for a in these for b in those)

    (reads, writes), (later_reads, later_writes) = accesses(one), accesses(other)
    return meet(writes, later_reads) or meet(writes, later_writes) or meet(reads, later_writes)


def random_commands(seed: int, count: int) -> list[Command]:
    """On pieces of eight buffers that are none."""
    random = np.random.default_rng(seed)
    program = SimpleNamespace(writes=(False, False, True))

    def piece() -> Span:
        start, end = sorted(int(i) for i in random.integers(0, 17, 2))
        return Span(int(random.integers(8)), 64 * start, 64 * (end - start))

    commands: list[Command] = []
    for kind in random.choice(["dispatch", "copy", "fill"], count):
        if kind == "dispatch":
            commands.append(Dispatch(program, [piece() for _ in range(3)], (1, 1, 1)))
        else:
            commands.append(Copy(piece(), piece()) if kind == "copy" else Fill(piece()))
    return commands


@pytest.mark.parametrize("seed", range(5))
def test_every_command_comes_behind_what_it_depends_on(seed: int) -> None:
    commands = random_commands(seed, 120)
    level_of = {index: level for level, group in enumerate(groups(commands)) for index in group}
    assert sorted(level_of) == list(range(120))
    for later, command in enumerate(commands):
        needs = [level_of[i] + 1 for i in range(later) if conflict(commands[i], command)]
        assert level_of[later] == max(needs, default=0)


# What is submitted


@pytest.mark.vulkan
def test_independent_dispatches_are_one_submission(backend: KomputeBackend, kernels: Kernels) -> None:
    x = put(backend, words(0, N))
    outs = [poison(backend, N) for _ in range(100)]
    recording = backend.record([kernels.command("step", x, out, n=N, k=k) for k, out in enumerate(outs)])
    assert recording.submissions == 1
    for seed in (0, 1):
        backend.stream.upload(span(x), bytes_of(words(seed, N)))
        backend.stream.replay(recording)
        for k, out in enumerate(outs):
            np.testing.assert_array_equal(get(backend, out, N), step(words(seed, N), k))


@pytest.mark.vulkan
@pytest.mark.parametrize("chains", [1, 2, 7])
def test_chains_run_side_by_side(backend: KomputeBackend, kernels: Kernels, chains: int) -> None:
    """Recorded one after the other, a submission holds one command of each."""
    buffers = [put(backend, words(seed, N)) for seed in range(chains)]
    recording = backend.record(
        [kernels.command("step_in_place", buffer, n=N, k=k) for buffer in buffers for k in range(20)]
    )
    assert recording.submissions == 20
    backend.stream.replay(recording)
    for seed, buffer in enumerate(buffers):
        expected = words(seed, N)
        for k in range(20):
            expected = step(expected, k)
        np.testing.assert_array_equal(get(backend, buffer, N), expected)


@pytest.mark.vulkan
@pytest.mark.parametrize(("seconds", "submissions"), [(0.0, 1), (0.01, 1), (0.2, 2), (0.4, 5), (3.0, 10)])
def test_no_submission_is_predicted_to_be_long(
    backend: KomputeBackend, kernels: Kernels, seconds: float, submissions: int
) -> None:
    x, outs = put(backend, words(0, N)), [poison(backend, N) for _ in range(10)]
    recording = backend.record(
        [kernels.command("step", x, out, n=N, k=k, seconds=seconds) for k, out in enumerate(outs)]
    )
    assert recording.submissions == submissions
    backend.stream.replay(recording)
    for k, out in enumerate(outs):
        np.testing.assert_array_equal(get(backend, out, N), step(words(0, N), k))


@pytest.mark.vulkan
def test_empty_commands_are_not_submitted(backend: KomputeBackend, kernels: Kernels) -> None:
    x, y = put(backend, words(0, N)), poison(backend, N)
    nothing = kernels.command("step", x, y, n=N, k=1)._replace(groups=(0, 1, 1))
    for grid in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        backend.stream.dispatch(nothing._replace(groups=grid))
    commands: list[Command] = [nothing, Fill(span(x, 0, 0), 1), Copy(span(x, 0, 0), span(y, 0, 0)), nothing]
    recording = backend.record(commands, changing=[0])
    assert recording.submissions == 0
    backend.stream.replay(recording, {0: nothing._replace(push=pushed(N, 2))})
    np.testing.assert_array_equal(get(backend, y, N), np.full(N, 0xFFFFFFFF, np.uint32))


@pytest.mark.vulkan
def test_what_changes_needs_no_new_pipeline(
    backend: KomputeBackend, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it meets other buffers; and what stays is recorded once."""
    x, y, z = put(backend, words(0, N)), put(backend, words(1, N)), put(backend, words(2, N))
    commands = [kernels.command("step_in_place", x, n=N, k=k) for k in range(3)]
    recording = backend.record([*commands, kernels.command("step_in_place", y, n=N, k=9)], changing=[1, 3])
    backend.stream.replay(recording)
    made: list[int] = []
    record = backend.sequence

    def sequence(operations: Any) -> Any:
        operations = list(operations)
        made.append(len(operations))
        return record(operations)

    monkeypatch.setattr(backend, "sequence", sequence)
    launches = len(backend.launches)
    changed = kernels.command("step_in_place", x, n=N, k=77)
    backend.stream.replay(recording, {1: changed})
    backend.stream.replay(recording, {1: changed})
    assert made == [1]
    assert len(backend.launches) == launches
    backend.stream.replay(recording, {3: kernels.command("step_in_place", z, n=N, k=9)})
    assert len(backend.launches) == launches + 1
    expected = words(0, N)
    for k in (0, 1, 2, 0, 77, 2, 0, 77, 2, 0, 77, 2):
        expected = step(expected, k)
    np.testing.assert_array_equal(get(backend, x, N), expected)
    np.testing.assert_array_equal(get(backend, z, N), step(words(2, N), 9))


# What is gone


@pytest.mark.vulkan
@pytest.mark.parametrize("gone", ["x", "y", "program"])
def test_a_recording_ends_with_what_it_uses(backend: KomputeBackend, folder: Path, gone: str) -> None:
    kernels = Kernels(backend, folder)
    x, y, z = put(backend, words(0, N)), poison(backend, N), poison(backend, N)
    recording = backend.record([kernels.command("step", x, y, n=N, k=1), Copy(span(x), span(z))])
    other = backend.record([Fill(span(z), 3)])
    backend.stream.replay(recording)
    thing: Any = {"x": x, "y": y, "program": kernels.program("step")}[gone]
    thing.free()
    with pytest.raises(DeviceError, match=r"^\[kompute\] the recording or something that it uses was freed"):
        backend.stream.replay(recording)
    backend.stream.replay(other)
    assert (get(backend, z, N) == 3).all()
    assert backend.recordings == {other}


@pytest.mark.vulkan
def test_a_recording_outlives_what_is_kept_for_single_dispatches(
    backend: KomputeBackend, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dl4all.runtime.kompute.bound_program.KEPT", 1)
    buffers = [put(backend, words(seed, N)) for seed in range(6)]
    recording = backend.record([kernels.command("step_in_place", x, n=N, k=1) for x in buffers], range(3))
    assert len(backend.launches) == 1
    for k in (1, 5):
        changes = {i: kernels.command("step_in_place", buffers[i], n=N, k=k) for i in range(3)}
        backend.stream.replay(recording, changes)
    for seed, x in enumerate(buffers):
        np.testing.assert_array_equal(get(backend, x, N), step(step(words(seed, N), 1), 5 if seed < 3 else 1))


@pytest.mark.vulkan
def test_a_recording_of_another_device_is_refused(backend: KomputeBackend) -> None:
    other = KomputeBackend(0)
    try:
        recording = other.record([Fill(span(other.allocate(256)), 1)])
        with pytest.raises(DeviceError, match=r"^\[kompute\] the recording .*it belongs to another device$"):
            backend.stream.replay(recording)
    finally:
        other.close()
