"""A fork waits for NumPy bodies that run, and holds up those that are to begin."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops import REGISTRY
from dl4all.runtime.cpu.llvm import provider
from dl4all.scheduler.device import host_kernels
from dl4all.scheduler.monitor.counters import Counters

pytestmark = pytest.mark.usefixtures("deadline")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Lets the body of ``relu`` end, which computes in place of a compiled kernel; it is closed."""
    monkeypatch.setattr(provider, "enabled", False)
    opened = threading.Event()
    body = REGISTRY["relu"].body

    def waits(*arrays: object, **arguments: object) -> object:
        opened.wait()
        return body(*arrays, **arguments)

    monkeypatch.setattr(REGISTRY["relu"], "body", waits)
    return opened


def computing(results: list[list[float]]) -> threading.Thread:
    x = dl.tensor([-1.0, 2.0], device="cpu")
    thread = threading.Thread(target=lambda: results.append(x.relu().tolist()), daemon=True)
    thread.start()
    return thread


def wait_until(begun: int) -> None:
    counters = dl.device("cpu").counters
    while vars(Counters)["host_kernels"].__get__(counters) != begun:
        time.sleep(0.001)


def test_what_runs_is_waited_for(gate: threading.Event) -> None:
    results: list[list[float]] = []
    begun = dl.device("cpu").counters.host_kernels
    thread = computing(results)
    wait_until(begun + 1)
    threading.Timer(0.05, gate.set).start()
    host_kernels.hold()
    try:
        counters = dl.device("cpu").counters
        assert counters.host_kernels == counters.host_finished
    finally:
        host_kernels.release()
    thread.join()
    assert results == [[0.0, 2.0]]


def test_what_would_begin_waits_for_the_fork(gate: threading.Event) -> None:
    gate.set()
    results: list[list[float]] = []
    keeps_it_busy = threading.Event()
    beside = threading.Thread(target=keeps_it_busy.wait)
    beside.start()
    begun = dl.device("cpu").counters.host_kernels
    host_kernels.hold()
    try:
        thread = computing(results)
        time.sleep(0.05)
        assert not results
        assert (dl.ones(2, device="cpu") + 1).tolist() == [2.0, 2.0]  # the thread that forks goes on
    finally:
        host_kernels.release()
    thread.join()
    keeps_it_busy.set()
    beside.join()
    assert results == [[0.0, 2.0]]
    counters = dl.device("cpu").counters
    assert type(counters) is Counters
    assert counters.host_kernels == counters.host_finished >= begun + 2


def test_a_fork_does_not_wait_for_ever(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_kernels, "SECONDS", 0.02)
    results: list[list[float]] = []
    begun = dl.device("cpu").counters.host_kernels
    thread = computing(results)
    wait_until(begun + 1)
    host_kernels.hold()
    host_kernels.release()
    assert not results
    gate.set()
    thread.join()
    assert results == [[0.0, 2.0]]


def test_a_child_forgets_what_ran_in_its_parent(gate: threading.Event) -> None:
    results: list[list[float]] = []
    counters = dl.device("cpu").counters
    begun, finished = counters.host_kernels, counters.host_finished
    thread = computing(results)
    wait_until(begun + 1)
    host_kernels.forget()
    assert dl.device("cpu").in_flight() is False
    counters.host_finished = finished
    gate.set()
    thread.join()
    assert np.array_equal(results, [[0.0, 2.0]])
