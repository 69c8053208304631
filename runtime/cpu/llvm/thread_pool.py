"""The thread pool of compiled kernels: one for the process.

Its threads are Python's, and run compiled code that never asks for the interpreter's lock: they look for a
job for some microseconds, then sleep on a lock of CPython's that needs no interpreter either. A job is a
function, the slots that it is given, and a count, which is cut into chunks. Threads take chunks by compare
and swap, the one that asked among them. How a count is cut depends on nothing else, so that sums over chunks
come out the same for any number of threads. Who asks while the pool works for somebody else, or from within
a job, computes alone.

A thread is woken on any core but that of the one that wakes it. Schedulers that keep a process together, as
those of virtual machines do, would let it wait there for milliseconds.

In memory each number that several threads change has a cache line of its own::

    0   generation: the number of the newest job, written last
    8   next: generation << 40 | chunks << 20 | next chunk; a claim cannot mix up two jobs
    16  chunks that are done
    24  function, slots, count, grain
    32  whether somebody's job runs
    40  whether the one that asked sleeps, and its lock
    48  threads in use, rounds of looking before one sleeps, whether threads are to end
    51  where there is room for the cores that each thread may use, or 0
    56  for each thread, 8 words apart: whether it sleeps, its lock, and its number to the system
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from dl4all.errors import ConfigError
from dl4all.runtime import fork
from dl4all.runtime.cpu.llvm.compiler import LlvmCompiler
from dl4all.runtime.cpu.llvm.ir import PARALLEL

SETTINGS = ("DL4ALL_THREADS", "OMP_NUM_THREADS")
MOST_THREADS = 256
WORDS = 64 + 8 * MOST_THREADS
ROUNDS = 2000  # of looking for a job, of some 50 ns each
MOST_CHUNKS = 2**20 - 1
SECONDS = 1.0  # that threads get to end before a fork
WAIT, WAKE = "dl4all_wait", "dl4all_wake"
CORES = "dl4all_current_core", "dl4all_cores_of", "dl4all_choose_cores"
CPU_SET_WORDS = 16  # of 64 cores, as glibc has it

PAUSES = {"x86": "call void @llvm.x86.sse2.pause()", "arm": "call void @llvm.aarch64.hint(i32 1)"}
PAUSE_DECLARATIONS = {
    "x86": "declare void @llvm.x86.sse2.pause()",
    "arm": "declare void @llvm.aarch64.hint(i32)",
}

TEXT = """
@pool = internal global [{words} x i64] zeroinitializer, align 64
declare i32 @{wait}(ptr, i32)
declare void @{wake}(ptr)
{declaration}

define void @memory(ptr %out) {{
  store ptr @pool, ptr %out
  ret void
}}

; Run chunk %i of a job.
define internal void @chunk(ptr %f, ptr %slots, i64 %count, i64 %grain, i64 %i) {{
  %begin = mul i64 %i, %grain
  %past = add i64 %begin, %grain
  %end = call i64 @llvm.smin.i64(i64 %past, i64 %count)
  call void %f(ptr %slots, i64 %begin, i64 %end)
  ret void
}}
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @{current_core}()
declare i32 @{cores_of}(i32, i64, ptr)
declare i32 @{choose_cores}(i32, i64, ptr)

; Let a thread that sleeps wake up on another core than that of the one that calls.
define internal void @step_aside(i64 %number) {{
entry:
  %set = alloca [{cpu_set_words} x i64], align 8
  %ps = getelementptr i64, ptr @pool, i64 51
  %room = load ptr, ptr %ps
  %known = icmp ne ptr %room, null
  %eight = mul i64 %number, 8
  %own = add i64 %eight, 58
  %pt = getelementptr i64, ptr @pool, i64 %own
  %id = load atomic i64, ptr %pt seq_cst, align 8
  %runs = icmp ne i64 %id, 0
  %can = and i1 %known, %runs
  br i1 %can, label %look, label %out
look:
  %core = call i32 @{current_core}()
  %here = sext i32 %core to i64
  %thread = trunc i64 %id to i32
  %place = mul i64 %number, {cpu_set_words}
  %cores = getelementptr i64, ptr %room, i64 %place
  %failed = call i32 @{cores_of}(i32 %thread, i64 {cpu_set_bytes}, ptr %cores)
  %is_core = icmp ult i64 %here, {cores}
  %is_told = icmp eq i32 %failed, 0
  %both = and i1 %is_core, %is_told
  br i1 %both, label %keep, label %out
keep:
  call void @llvm.memcpy.p0.p0.i64(ptr %set, ptr %cores, i64 {cpu_set_bytes}, i1 false)
  %word = lshr i64 %here, 6
  %bit = and i64 %here, 63
  %pw = getelementptr i64, ptr %set, i64 %word
  %all = load i64, ptr %pw
  %mask = shl i64 1, %bit
  %not = xor i64 %mask, -1
  %rest = and i64 %all, %not
  store i64 %rest, ptr %pw
  %r = call i32 @{choose_cores}(i32 %thread, i64 {cpu_set_bytes}, ptr %set)
  br label %out
out:
  ret void
}}

; Let the thread that calls, the pool's of this number, run on all of its cores again.
define internal void @roam(i64 %number) {{
entry:
  %ps = getelementptr i64, ptr @pool, i64 51
  %room = load ptr, ptr %ps
  %known = icmp ne ptr %room, null
  br i1 %known, label %look, label %out
look:
  %place = mul i64 %number, {cpu_set_words}
  %cores = getelementptr i64, ptr %room, i64 %place
  %r = call i32 @{choose_cores}(i32 0, i64 {cpu_set_bytes}, ptr %cores)
  br label %out
out:
  ret void
}}

; Take chunks of the job of a generation until there are none left.
define internal void @take(i64 %generation) {{
entry:
  %pn = getelementptr i64, ptr @pool, i64 8
  %pd = getelementptr i64, ptr @pool, i64 16
  %pf = getelementptr i64, ptr @pool, i64 24
  %ps = getelementptr i64, ptr @pool, i64 25
  %pc = getelementptr i64, ptr @pool, i64 26
  %pg = getelementptr i64, ptr @pool, i64 27
  br label %again
again:
  %old = load atomic i64, ptr %pn seq_cst, align 8
  %its = lshr i64 %old, 40
  %same = icmp eq i64 %its, %generation
  br i1 %same, label %look, label %out
look:
  %i = and i64 %old, 1048575
  %shifted = lshr i64 %old, 20
  %chunks = and i64 %shifted, 1048575
  %left = icmp ult i64 %i, %chunks
  br i1 %left, label %claim, label %out
claim:
  %new = add i64 %old, 1
  %pair = cmpxchg ptr %pn, i64 %old, i64 %new seq_cst seq_cst
  %mine = extractvalue {{i64, i1}} %pair, 1
  br i1 %mine, label %work, label %again
work:
  %f = load ptr, ptr %pf
  %slots = load ptr, ptr %ps
  %count = load i64, ptr %pc
  %grain = load i64, ptr %pg
  call void @chunk(ptr %f, ptr %slots, i64 %count, i64 %grain, i64 %i)
  %before = atomicrmw add ptr %pd, i64 1 seq_cst
  %now = add i64 %before, 1
  %last = icmp eq i64 %now, %chunks
  br i1 %last, label %tell, label %again
tell:
  %pw = getelementptr i64, ptr @pool, i64 40
  %sleeps = atomicrmw xchg ptr %pw, i64 0 seq_cst
  %asleep = icmp ne i64 %sleeps, 0
  br i1 %asleep, label %wake, label %out
wake:
  %pl = getelementptr i64, ptr @pool, i64 41
  %lock = load ptr, ptr %pl
  call void @{wake}(ptr %lock)
  br label %out
out:
  ret void
}}

; What a thread does until it is to end.
define void @work(i64 %number) {{
entry:
  %pe = getelementptr i64, ptr @pool, i64 50
  %pr = getelementptr i64, ptr @pool, i64 49
  %eight = mul i64 %number, 8
  %own = add i64 %eight, 56
  %pa = getelementptr i64, ptr @pool, i64 %own
  %pl = getelementptr i64, ptr %pa, i64 1
  %first = load atomic i64, ptr @pool seq_cst, align 8
  br label %look
look:
  %seen = phi i64 [%first, %entry], [%seen, %idle], [%generation, %job], [%seen, %slept]
  %round = phi i64 [0, %entry], [%round1, %idle], [0, %job], [0, %slept]
  %generation = load atomic i64, ptr @pool seq_cst, align 8
  %is_new = icmp ne i64 %generation, %seen
  br i1 %is_new, label %job, label %idle
job:
  call void @take(i64 %generation)
  br label %look
idle:
  {pause}
  %round1 = add i64 %round, 1
  %rounds = load i64, ptr %pr
  %enough = icmp ugt i64 %round1, %rounds
  br i1 %enough, label %tired, label %look
tired:
  %end = load atomic i64, ptr %pe seq_cst, align 8
  %ends = icmp ne i64 %end, 0
  br i1 %ends, label %out, label %lie
lie:
  %x = atomicrmw xchg ptr %pa, i64 1 seq_cst
  %g = load atomic i64, ptr @pool seq_cst, align 8
  %e = load atomic i64, ptr %pe seq_cst, align 8
  %came = icmp ne i64 %g, %seen
  %e1 = icmp ne i64 %e, 0
  %up = or i1 %came, %e1
  br i1 %up, label %rise, label %sleep
rise:
  %was = atomicrmw xchg ptr %pa, i64 0 seq_cst
  %own_flag = icmp ne i64 %was, 0
  br i1 %own_flag, label %slept, label %sleep
sleep:
  %lock = load ptr, ptr %pl
  %r = call i32 @{wait}(ptr %lock, i32 1)
  call void @roam(i64 %number)
  br label %slept
slept:
  br label %look
out:
  ret void
}}

define void @{parallel}(ptr %f, ptr %slots, i64 %count, i64 %grain0) {{
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %plan, label %out
plan:
  %most = add i64 %count, {less}
  %least = udiv i64 %most, {chunks}
  %grain1 = call i64 @llvm.smax.i64(i64 %grain0, i64 %least)
  %grain = call i64 @llvm.smax.i64(i64 %grain1, i64 1)
  %up = add i64 %count, %grain
  %up1 = sub i64 %up, 1
  %n = udiv i64 %up1, %grain
  %pt = getelementptr i64, ptr @pool, i64 48
  %threads = load i64, ptr %pt
  %alone1 = icmp eq i64 %threads, 0
  %alone2 = icmp eq i64 %n, 1
  %alone = or i1 %alone1, %alone2
  br i1 %alone, label %serial, label %ask
serial:
  br label %next
next:
  %i = phi i64 [0, %serial], [%i1, %next]
  call void @chunk(ptr %f, ptr %slots, i64 %count, i64 %grain, i64 %i)
  %i1 = add i64 %i, 1
  %all = icmp eq i64 %i1, %n
  br i1 %all, label %out, label %next
ask:
  %pb = getelementptr i64, ptr @pool, i64 32
  %got = cmpxchg ptr %pb, i64 0, i64 1 seq_cst seq_cst
  %free = extractvalue {{i64, i1}} %got, 1
  br i1 %free, label %give, label %serial
give:
  %pn = getelementptr i64, ptr @pool, i64 8
  %pd = getelementptr i64, ptr @pool, i64 16
  %pf = getelementptr i64, ptr @pool, i64 24
  %ps = getelementptr i64, ptr @pool, i64 25
  %pc = getelementptr i64, ptr @pool, i64 26
  %pg = getelementptr i64, ptr @pool, i64 27
  %g = load i64, ptr @pool
  %g0 = add i64 %g, 1
  %g1 = and i64 %g0, 16777215
  store i64 0, ptr %pd
  store ptr %f, ptr %pf
  store ptr %slots, ptr %ps
  store i64 %count, ptr %pc
  store i64 %grain, ptr %pg
  %high = shl i64 %g1, 40
  %middle = shl i64 %n, 20
  %word = or i64 %high, %middle
  store atomic i64 %word, ptr %pn seq_cst, align 8
  store atomic i64 %g1, ptr @pool seq_cst, align 8
  %others = sub i64 %n, 1
  %helpers = call i64 @llvm.smin.i64(i64 %others, i64 %threads)
  br label %rouse
rouse:
  %w = phi i64 [0, %give], [%w1, %roused]
  %eight = mul i64 %w, 8
  %own = add i64 %eight, 56
  %pa = getelementptr i64, ptr @pool, i64 %own
  %flag = load atomic i64, ptr %pa seq_cst, align 8
  %is_asleep = icmp ne i64 %flag, 0
  br i1 %is_asleep, label %shake, label %roused
shake:
  %was = atomicrmw xchg ptr %pa, i64 0 seq_cst
  %still = icmp ne i64 %was, 0
  br i1 %still, label %wakes, label %roused
wakes:
  call void @step_aside(i64 %w)
  %pl = getelementptr i64, ptr %pa, i64 1
  %lock = load ptr, ptr %pl
  call void @{wake}(ptr %lock)
  br label %roused
roused:
  %w1 = add i64 %w, 1
  %told = icmp eq i64 %w1, %helpers
  br i1 %told, label %share, label %rouse
share:
  call void @take(i64 %g1)
  %pr = getelementptr i64, ptr @pool, i64 49
  %rounds = load i64, ptr %pr
  br label %wait
wait:
  %k = phi i64 [0, %share], [%k1, %wait1]
  %done = load atomic i64, ptr %pd seq_cst, align 8
  %finished = icmp eq i64 %done, %n
  br i1 %finished, label %end, label %wait1
wait1:
  {pause}
  %k1 = add i64 %k, 1
  %enough = icmp ugt i64 %k1, %rounds
  br i1 %enough, label %lie, label %wait
lie:
  %pw = getelementptr i64, ptr @pool, i64 40
  %x = atomicrmw xchg ptr %pw, i64 1 seq_cst
  %done1 = load atomic i64, ptr %pd seq_cst, align 8
  %finished1 = icmp eq i64 %done1, %n
  br i1 %finished1, label %rise, label %sleep
rise:
  %mine = atomicrmw xchg ptr %pw, i64 0 seq_cst
  %own_flag = icmp ne i64 %mine, 0
  br i1 %own_flag, label %end, label %sleep
sleep:
  %pl2 = getelementptr i64, ptr @pool, i64 41
  %lock2 = load ptr, ptr %pl2
  %r = call i32 @{wait}(ptr %lock2, i32 1)
  br label %end
end:
  store atomic i64 0, ptr %pb seq_cst, align 8
  br label %out
out:
  ret void
}}
"""


def wanted_threads() -> int:
    """The number of threads that compute: DL4ALL_THREADS, OMP_NUM_THREADS, or the cores of this process.

    Raises:
        ConfigError: a setting is no number from 1 to 256.
    """
    for name in SETTINGS:
        value = os.environ.get(name, "").split(",")[0].strip()  # OpenMP's may be one for each level
        if not value:
            continue
        if not value.isdecimal() or not 1 <= int(value) <= MOST_THREADS:
            raise ConfigError(f"{name} must be a number of threads from 1 to {MOST_THREADS}, not {value!r}")
        return int(value)
    return min(usable_cores(), MOST_THREADS)


def usable_cores() -> int:
    """The cores that this process may use: by its affinity, and by its share of time in a container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1
    quota = _container_cores()
    return max(1, min(cores, quota) if quota else cores)


def _container_cores() -> int:
    """The cores' time that the control group may take, rounded up; 0 without a limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return 0 if quota == "max" else -(-int(quota) // int(period))
    with contextlib.suppress(OSError, ValueError):
        folder = Path("/sys/fs/cgroup/cpu")
        old_quota = int((folder / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        return max(0, -(-old_quota // int((folder / "cpu.cfs_period_us").read_text(encoding="ascii"))))
    return 0


def _core_functions() -> list[Any]:
    """The functions that tell the core that one runs on, and tell and choose those of a thread.

    Empty where the system has none.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    library, names = ctypes.CDLL(None), ("sched_getcpu", "sched_getaffinity", "sched_setaffinity")
    return [getattr(library, name) for name in names] if all(hasattr(library, n) for n in names) else []


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class ThreadPool:
    """The threads that compute beside the one that asks; there are none until :meth:`start`."""

    def __init__(self, compiler: LlvmCompiler, threads: int) -> None:
        """
        Args:
            compiler: of the pool's code. Modules that it compiles afterwards may use the pool.
            threads: how many compute, the one that asks among them.
        """
        self.threads = threads
        api = ctypes.pythonapi
        api.PyThread_allocate_lock.restype = ctypes.c_void_p
        for name, function in ((WAIT, api.PyThread_acquire_lock), (WAKE, api.PyThread_release_lock)):
            compiler.define(name, _address(function))
        functions = _core_functions()
        self._cores = np.zeros((MOST_THREADS, CPU_SET_WORDS), np.int64) if functions else None
        # Where there are none, none is called.
        for name, function in zip(CORES, functions or [api.PyThread_release_lock] * len(CORES), strict=True):
            compiler.define(name, _address(function))
        family = "arm" if "neon" in compiler.target.features else "x86"
        text = TEXT.format(
            words=WORDS, wait=WAIT, wake=WAKE, parallel=PARALLEL, less=MOST_CHUNKS - 1, chunks=MOST_CHUNKS,
            current_core=CORES[0], cores_of=CORES[1], choose_cores=CORES[2], cpu_set_words=CPU_SET_WORDS,
            cpu_set_bytes=8 * CPU_SET_WORDS, cores=64 * CPU_SET_WORDS,
            pause=PAUSES[family], declaration=PAUSE_DECLARATIONS[family],
        )  # fmt: skip
        addresses = compiler.functions(text, ("memory", "work", PARALLEL))
        compiler.define(PARALLEL, addresses[PARALLEL])
        out = np.zeros(1, np.int64)
        ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(addresses["memory"])(out.ctypes.data)
        self._memory = np.ctypeslib.as_array((ctypes.c_int64 * WORDS).from_address(int(out[0])))
        self._work = ctypes.CFUNCTYPE(None, ctypes.c_int64)(addresses["work"])
        self._locks = [self._taken_lock() for _ in range(threads)]
        self._alive: list[int] = []
        fork.around(self.stop, self.start)
        fork.in_child(self._begin_child)

    def _taken_lock(self) -> int:
        lock = int(ctypes.pythonapi.PyThread_allocate_lock())
        ctypes.pythonapi.PyThread_acquire_lock(ctypes.c_void_p(lock), 1)
        return lock

    def start(self) -> None:
        """Start the threads, as many as the system gives."""
        memory = self._memory
        memory[41], memory[49], memory[50] = self._locks[0], ROUNDS, 0
        memory[51] = 0 if self._cores is None else self._cores.ctypes.data
        for number in range(len(self._alive), self.threads - 1):
            memory[56 + 8 * number : 59 + 8 * number] = 0, self._locks[1 + number], 0
            try:
                _thread.start_new_thread(self._run, (number,))
            except RuntimeError:  # the system has none left
                break
            self._alive.append(number)
        memory[48] = len(self._alive)

    def _run(self, number: int) -> None:
        self._memory[58 + 8 * number] = threading.get_native_id()
        self._work(number)
        self._alive.remove(number)

    def stop(self) -> None:
        """End the threads; who asks afterwards computes alone."""
        memory = self._memory
        memory[48], memory[50] = 0, 1
        until = time.monotonic() + SECONDS
        while self._alive and time.monotonic() < until:
            memory[0] = (int(memory[0]) + 1) & 0xFFFFFF  # nobody's job: whoever looks finds nothing to take
            for number in tuple(self._alive):
                if memory[56 + 8 * number]:
                    memory[56 + 8 * number] = 0
                    ctypes.pythonapi.PyThread_release_lock(ctypes.c_void_p(self._locks[1 + number]))
            time.sleep(1e-4)

    def _begin_child(self) -> None:
        """In a forked child: begin with no job and no threads, then start others.

        Not where the parent had opened a driver: when the child ends, Mesa joins the parent's threads, whose
        stacks the C library has given to the new ones.
        """
        self._memory[:] = 0
        self._alive.clear()
        self._locks = [self._taken_lock() for _ in range(self.threads)]
        if not fork.refused:
            self.start()
