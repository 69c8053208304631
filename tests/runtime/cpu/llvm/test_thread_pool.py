"""The pool covers a count exactly, for any number of threads, whoever asks, and across forks."""

from __future__ import annotations

import os
import struct
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dl4all.errors import ConfigError
from dl4all.runtime.cpu.llvm import provider, target, thread_pool
from dl4all.runtime.cpu.llvm.compiler import Function, HeldFunction
from dl4all.runtime.cpu.llvm.ir import IrModule
from tests.conftest import run_python

pytestmark = pytest.mark.skipif(target.binding() is None, reason="llvmlite is missing")


def counting() -> IrModule:
    """Adds 1 to each element, and to the count of chunks that begin there. Slots: both, count, grain."""
    module = IrModule()
    with module.part("range") as part:
        _, begin, end = part.parameters
        x, starts = part.slot(0, "ptr"), part.slot(1, "ptr")
        part.store(part.load(starts, begin, "i32") + 1, starts, begin)
        with part.loop(begin, end) as i:
            part.store(part.load(x, i, "i32") + 1, x, i)
    with module.kernel("counting") as code:
        code.parallel(part, code.parameters[0], code.slot(2), code.slot(3))
    return module


def run(count: int, grain: int, times: int = 1, kind: Any = HeldFunction) -> npt.NDArray[np.int32]:
    """Where chunks began; every element must have been computed once each time."""
    address = provider.compiler().functions(counting().text, ("counting",))["counting"]
    x, starts = (np.zeros(max(count, 1), np.int32) for _ in range(2))
    function, slots = kind(address), struct.pack("<4q", x.ctypes.data, starts.ctypes.data, count, grain)
    for _ in range(times):
        function(slots)
    assert (x[:count] == times).all()
    return starts


@pytest.mark.parametrize("count", [1, 2, 7, 1000, 100_003])
@pytest.mark.parametrize("grain", [1, 3, 1000, 10**9])
def test_each_number_belongs_to_one_chunk(count: int, grain: int) -> None:
    starts = run(count, grain, times=5)
    assert set(np.flatnonzero(starts)) == set(range(0, count, grain))
    assert set(starts[starts > 0]) == {5}


def test_nothing_to_do() -> None:
    run(0, 1)


@pytest.mark.parametrize("grain", [0, -3])
def test_a_grain_is_at_least_1(grain: int) -> None:
    assert np.count_nonzero(run(5, grain)) == 5


def test_more_chunks_than_a_job_counts_are_joined() -> None:
    starts = np.flatnonzero(run(3 * thread_pool.MOST_CHUNKS, 1))
    assert len(starts) <= thread_pool.MOST_CHUNKS
    assert len(set(np.diff(starts))) == 1


def test_several_threads_ask_at_once() -> None:
    """One gets the pool, the others compute alone; all is computed."""
    finished: list[int] = []

    def ask() -> None:
        run(10_007, 13, times=300, kind=Function)
        finished.append(1)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(finished) == 6


MANY = """
import struct, os, sys, time
import numpy as np
from tests.runtime.cpu.llvm.test_thread_pool import run
from dl4all.runtime.cpu.llvm import provider
run(10_007, 13, times=2000)
for pause in (0, 1e-4, 1e-3):
    for _ in range(100):
        run(100, 1)
        time.sleep(pause)
"""


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_any_number_of_threads(threads: int) -> None:
    """More than there are cores, too: who sleeps is woken, and who is preempted is waited for."""
    ended = run_python(MANY, DL4ALL_THREADS=str(threads))
    assert ended.returncode == 0, ended.stderr


CORES = """
import os, time
from tests.runtime.cpu.llvm.test_thread_pool import run
before = set(os.listdir("/proc/self/task"))
run(100_003, 13)
workers = [int(number) for number in set(os.listdir("/proc/self/task")) - before]
all_cores = os.sched_getaffinity(0)


def settled(cores):  # a thread that was woken may have to wait for its turn
    for _ in range(1000):
        if all(os.sched_getaffinity(worker) == cores for worker in workers):
            return True
        time.sleep(1e-2)
    return False


for cores in (all_cores, {max(all_cores)}):  # as they are, and as somebody narrows them
    for worker in workers:
        os.sched_setaffinity(worker, cores)
    for _ in range(20):
        time.sleep(2e-3)  # they sleep by then
        run(100_003, 13)
    print(len(workers), settled(cores), os.sched_getaffinity(0) == all_cores)
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads have no cores of their own here")
def test_threads_that_were_woken_may_run_where_they_could_before() -> None:
    ended = run_python(CORES, DL4ALL_THREADS="3")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["2 True True"] * 2


FORKS = (
    MANY
    + """
for _ in range(5):
    child = os.fork()
    run(10_007, 13, times=50)
    if not child:
        run(10_007, 13, times=50)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
)


def test_parent_and_child_of_a_fork_go_on() -> None:
    ended = run_python(FORKS, DL4ALL_THREADS="3")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "257", "99999999999"])
def test_what_is_no_number_of_threads(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_THREADS", value)
    with pytest.raises(ConfigError, match="DL4ALL_THREADS must be a number of threads from 1 to 256, not '"):
        thread_pool.wanted_threads()


def test_where_the_number_of_threads_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DL4ALL_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert thread_pool.wanted_threads() == thread_pool.usable_cores()
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    assert thread_pool.wanted_threads() == 5
    monkeypatch.setenv("DL4ALL_THREADS", "3")
    assert thread_pool.wanted_threads() == 3
