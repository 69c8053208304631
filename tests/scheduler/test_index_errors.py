"""What kernels note of indices out of range, and who raises it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ConfigError
from dl4all.runtime.null.backend import NullBackend
from dl4all.scheduler import check_mode, index_errors
from dl4all.scheduler.index_errors import KEPT, SLOT_WORDS, SLOTS, IndexErrors, calling_line


@pytest.fixture
def poisoned() -> None:
    """Instead of the one that fills memory, which would be counted."""


@pytest.fixture(autouse=True)
def setting() -> Iterator[None]:
    """Each test begins with what the environment says."""
    before, check_mode._checks = check_mode._checks, None
    yield
    check_mode._checks = before


def error_named(name: str) -> Callable[[int], ArgumentError]:
    return lambda index: ArgumentError(f"[{name}] index {index}")


def note(found: Any, slot: int, number: int, position: int, index: int) -> None:
    """What a workgroup of a kernel does."""
    words = found.buffer.mapped.view(np.uint32)[: SLOTS * SLOT_WORDS].reshape(SLOTS, SLOT_WORDS)
    words[slot] = (number, position, *np.array([index], np.int64).view(np.uint32))


def test_the_first_index_of_the_first_launch() -> None:
    errors = IndexErrors(NullBackend())
    first, found = errors.begin(error_named("first"))
    errors.launched()
    second, same = errors.begin(error_named("second"))
    errors.launched()
    assert same is found
    note(found, 0, second, 3, 9)
    note(found, 1, first, 700, -(2**40))
    note(found, 5, first, 650, -3)
    with pytest.raises(ArgumentError) as caught:
        errors.look(errors.count)
    assert str(caught.value).startswith(f"[first] index -3 (called at {__file__}:")
    assert caught.value.deferred
    errors.look(errors.count)  # and nothing any more
    note(found, 63, second, 0, 2**40)
    with pytest.raises(ArgumentError, match=rf"\[second\] index {2**40} \(called at"):
        errors.look(errors.count)


def test_nothing_is_looked_at_where_nothing_was_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = NullBackend()
    errors = IndexErrors(backend)
    errors.look(0)
    assert not backend.counts["allocate"]  # no memory before it is needed
    number, found = errors.begin(error_named("op"))
    errors.launched()
    errors.look(errors.count, idle=True)
    note(found, 0, number, 0, 1)
    errors.look(errors.count)  # all of that was looked for
    errors.begin(error_named("next"))
    errors.launched()
    with pytest.raises(ArgumentError, match=r"\[op\] index 1"):
        errors.look(errors.count)


def test_a_launch_that_goes_on_while_others_look() -> None:
    """A thread has its number, and another one looks before it has handed over its launch."""
    errors = IndexErrors(NullBackend())
    number, found = errors.begin(error_named("slow"))
    errors.begin(error_named("quick"))
    errors.launched()
    errors.look(errors.count, idle=True)
    errors.launched()  # the slow one
    note(found, 0, number, 0, 5)
    with pytest.raises(ArgumentError, match=r"\[slow\] index 5"):
        errors.look(errors.count, idle=True)


def test_old_launches_are_forgotten() -> None:
    errors = IndexErrors(NullBackend())
    for _ in range(5 * KEPT):
        number, found = errors.begin(error_named("op"))
        errors.launched()
        errors.look(errors.count, idle=True)
    assert len(errors._launches) <= 2 * KEPT
    note(found, 0, 1, 0, 4)  # as a recording of a launch long ago may do
    errors.begin(error_named("op"))
    with pytest.raises(ArgumentError, match=r"^\[index\] index 4 is out of range$"):
        errors.look(errors.count)
    assert number > 5 * KEPT


def test_launches_that_nobody_looks_for_do_not_gather_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_errors, "KEPT", 4)
    errors = IndexErrors(NullBackend())
    for _ in range(1000):
        errors.begin(error_named("op"))
    assert len(errors._launches) <= 64 * 4 + 1


def test_a_launch_that_notes_nothing() -> None:
    errors = IndexErrors(NullBackend())
    number, _ = errors.begin(None)
    assert (number, errors.count) == (0, 0)


def test_a_closed_device() -> None:
    backend = NullBackend()
    errors = IndexErrors(backend)
    number, found = errors.begin(error_named("op"))
    errors.launched()
    note(found, 0, number, 0, 1)
    backend.close()
    errors.look(errors.count)


def test_one_of_several_threads_raises_it() -> None:
    errors = IndexErrors(NullBackend())
    number, found = errors.begin(error_named("op"))
    errors.launched()
    note(found, 7, number, 1, 1)
    caught, start = list[str](), threading.Barrier(4)

    def look() -> None:
        start.wait(10)
        try:
            errors.look(errors.count)
        except ArgumentError as error:
            caught.append(str(error))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert len(caught) == 1


def test_the_line_in_a_thread_of_the_library_alone() -> None:
    stream = dl.Stream("cpu")
    assert stream.submit(calling_line).result() == ""
    assert stream.submit(lambda: calling_line()).result().startswith(f" (called at {__file__}:")
    stream.close()


# The setting


def at_once() -> bool:
    return check_mode.checks_at_once()


def test_debug_is_a_setting_and_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DL4ALL_CHECKS", raising=False)
    assert not at_once()
    with dl.debug(checks="immediate"):
        assert at_once()
        with dl.debug(checks="deferred"):
            assert not at_once()
        assert at_once()
    assert not at_once()
    dl.debug(checks="immediate")
    assert at_once()


def test_the_environment_says_what_it_is_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_CHECKS", "immediate")
    assert at_once()
    with dl.debug(checks="deferred"):
        assert not at_once()
    check_mode._checks = None
    monkeypatch.setenv("DL4ALL_CHECKS", "never")
    with pytest.raises(ConfigError, match="DL4ALL_CHECKS must be deferred or immediate, not 'never'"):
        at_once()


def test_the_file_says_what_it_is_at_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("DL4ALL_CHECKS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dl4all.toml").write_text('checks = "immediate"\n')
    assert at_once()
    check_mode._checks = None
    (tmp_path / "dl4all.toml").write_text('checks = "often"\n')
    with pytest.raises(ConfigError, match=r"checks must be deferred or immediate, not 'often'"):
        at_once()


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"\[debug\] checks must be deferred or immediate, got 'late'"):
        dl.debug(checks="late")  # type: ignore[arg-type]


def test_at_once_the_host_reads_the_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DL4ALL_CHECKS", raising=False)
    backend = NullBackend()
    place = dl.Device.of_backend("null:0", backend)
    x, index = dl.ones(3, 2, device=place), dl.tensor([1, 2], device=place)
    x[index]
    assert backend.counts["download"] == 0
    with dl.debug(checks="immediate"):
        x[index]
    assert backend.counts["download"] == 1
