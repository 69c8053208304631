"""Children forked from a process that has used a device, each with a time limit; run by test_fork.py.

The process that forks is one of its own: it opens devices and runs threads, and does nothing else.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

import dl4all as dl
from dl4all.runtime.records import device_records

SECONDS = 30.0  # many times what a child takes; then it is killed, and that is the finding
HANGS = "hangs"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Child(BaseException):
    """Raised in a child that is to leave this process's program by its end."""


def ask(function: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """What a function returns in a forked child, as JSON has it, or the name of the error that it raises."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        answer = _answer(function)
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    said, until = b"", time.monotonic() + seconds
    while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(reading, 1 << 16)
        if not part:
            break
        said += part
    os.close(reading)
    status = _status(pid, until)
    return json.loads(said) if said and status == 0 else f"{HANGS} or dies: {status}"


def _answer(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except dl.errors.ForkError as error:
        text = str(error)
        return "ForkError" if "spawn" in text and text.startswith("[") else text
    except BaseException as error:  # noqa: BLE001  # the parent looks at it
        return f"{type(error).__name__}: {error}"


def _status(pid: int, until: float) -> int | str:
    """How a child ended; one that does not is killed."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return HANGS
        time.sleep(0.002)


def leave(function: Callable[[], object]) -> int | str:
    """The exit status of a child that runs a function and then ends as a program does."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return _status(pid, time.monotonic() + SECONDS)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # its traceback is meant
    function()
    raise Child


def uses(name: str) -> dict[str, Callable[[], Any]]:
    """What a child may try to do with a device of its parent, and with what lies there."""
    device = dl.device(name)
    x, w = dl.tensor(X, device=name), dl.ones(3, 2, device=name).requires_grad_()
    loss = (x @ w).sum()
    optimizer = dl.optim.SGD([w], lr=0.5)
    stream = dl.Stream(name)
    stream.submit(lambda: x * 2).result()
    event, view = stream.record_event(), x.T
    event.synchronize()
    later = device.copies.download_later(x.storage, 24)
    data = dl.data.TensorDataset(X, X)

    def step() -> Any:
        loss.backward()
        optimizer.step()
        return w.tolist()

    def add() -> Any:
        y = x.clone()
        y += 1
        return y.tolist()

    def entered() -> Any:
        with device:
            return dl.ones(2).tolist()

    def profiled() -> Any:
        with dl.profile():
            return (x * 2).tolist()

    def streamed() -> Any:
        return stream.submit(lambda: (x * 2).tolist()).result()

    return {
        "op": lambda: (x * 2).tolist(),
        "product": lambda: (x @ w).tolist(),
        "numpy": lambda: x.numpy().tolist(),
        "view": lambda: view.tolist(),
        "item": lambda: x[1, 2].item(),
        "host view": lambda: dl.memory.host_view(x).tolist(),
        "in place": add,
        "step": step,
        "upload": lambda: dl.tensor([1.0, 2.0], device=name).tolist(),
        "empty": lambda: list(dl.empty(3, device=name).shape),
        "random": lambda: list(dl.rand(3, device=name).shape),
        "allocate": lambda: device.allocate(64).nbytes,
        "to": lambda: x.to("cpu").tolist() and (x.to("cpu").to(name) * 1).tolist(),
        "auto": lambda: dl.ones(2).tolist(),
        "with": entered,
        "by name": lambda: dl.device(name).name,
        "again": lambda: dl.device(f"{name}#1").name,
        "default": lambda: dl.set_default_device(name),
        "synchronize": lambda: device.synchronize(),
        "synchronize by name": lambda: dl.synchronize(name),
        "event": lambda: device.record_event().query(),
        "memory": lambda: dl.memory.stats(device).allocated > 0,
        "trim": lambda: dl.memory.trim(device) >= 0,
        "download under way": lambda: later.wait().nbytes,
        "profile": profiled,
        "stream": streamed,
        "new stream": lambda: dl.Stream(device).submit(lambda: (x * 2).tolist()).result(),
        "loader": lambda: len(list(dl.data.DataLoader(data, 1, num_workers=2, device=name))),
        "group": lambda: len(dl.DeviceGroup([name, "cpu#2"])),
    }


def left(name: str, several: bool) -> dict[str, Callable[[], Any]]:
    """What is served by threads, which stay in the parent whatever the device."""
    gate = threading.Event()
    stream = dl.Stream(name)
    ran: list[int] = []
    running, waiting = stream.submit(gate.wait), stream.submit(ran.append, 1)
    event = stream.record_event()
    data = dl.data.TensorDataset(X, X)
    loader = iter(dl.data.DataLoader(data, 1, num_workers=1, device=name))
    next(loader)
    found: dict[str, Callable[[], Any]] = {
        "running task": running.result,
        "waiting task": waiting.result,
        "recorded event": event.synchronize,
        "tasks before": lambda: stream.submit(lambda: len(ran)).result(),
        "loader's iterator": lambda: len(list(loader)),
    }
    if several:
        group = dl.DeviceGroup([name, "cpu#1"])
        model = dl.nn.Sequential(dl.nn.Linear(3, 2), dl.nn.ReLU())
        parallel = dl.parallel(model.to(name), group)
        x = dl.tensor(X, device=name)
        parallel(x).sum().backward()
        queue = dl.InferenceQueue(model, group, max_batch=64, max_wait=1000.0)
        request = queue.submit(X[0])

        def closing() -> str:
            queue.close()
            group.close()
            return "closed"

        found |= {
            "group": lambda: len(group),
            "parallel": lambda: parallel(x).tolist(),
            "queue": lambda: queue.submit(X[0]).result(),
            "request": request.result,
            "closing": closing,
        }
    found["open the gate"] = gate.set
    return found


def host_work() -> Any:
    """Everything that a child does on the cpu, whatever its parent has opened."""
    x = dl.tensor(X, device="cpu")
    w = dl.ones(3, 2, device="cpu").requires_grad_()
    (x @ w).sum().backward()
    assert w.grad is not None
    loader = dl.data.DataLoader(dl.data.TensorDataset(X, X), 1, num_workers=2, device="cpu")
    batches = [batch[0].tolist() for batch in loader]
    done = dl.Stream("cpu").submit(lambda: (x + 1).tolist()).result()
    with dl.profile() as profile:
        (x * 2).sum().item()
    group = dl.DeviceGroup(["cpu", "cpu#1"])
    with dl.InferenceQueue(dl.nn.ReLU(), group) as queue:
        answers = [queue.submit(row).result(timeout=SECONDS).tolist() for row in -X]
    dl.synchronize()
    dl.memory.trim("cpu")
    return [w.grad.tolist(), batches, done, len(profile.events) > 0, answers, len(dl.devices()) > 0]


def farewells(x: Any) -> dict[str, Callable[[], object]]:
    """Ways to end, with what the parent had still there."""

    def exits() -> None:
        sys.exit(3)

    def exits_at_once() -> None:
        os._exit(4)

    def raises() -> None:
        raise ValueError("meant")

    def collects() -> None:
        nonlocal x
        x = None
        gc.collect()
        dl.memory.trim("cpu")

    return {
        "end": lambda: None,
        "sys.exit": exits,
        "os._exit": exits_at_once,
        "raise": raises,
        "collect": collects,
        "refused": lambda: _answer(lambda: (x * 2).tolist()),
    }


def _in_process(name: str) -> Any:
    return (dl.tensor(X, device=name) * 2).tolist()


def _of_process(x: Any) -> None:
    answer = _answer(lambda: (x * 2).tolist())
    sys.exit(0 if answer == (X * 2).tolist() else 5 if answer == "ForkError" else 6)


def with_multiprocessing(name: str) -> dict[str, Any]:
    """The same through the standard library's processes, by ``fork``."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_of_process, args=(dl.tensor(X, device=name),))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
    with ProcessPoolExecutor(1, context) as pool:
        future = pool.submit(_in_process, name)
        try:
            pooled = future.result(SECONDS)
        except Exception as error:  # noqa: BLE001  # it came through the pool's pipe
            pooled = type(error).__name__
    return {"process": process.exitcode, "pool": pooled}


def beside_threads(name: str, rounds: int) -> list[str]:
    """What goes wrong in children that are forked while threads compute; and in the threads."""
    wrong: list[str] = []
    stopped = threading.Event()
    x = dl.tensor(X, device=name)
    expected, host = (X @ X.T * 2).tolist(), dl.ones(300, 300, device="cpu")

    def compute(own: Any) -> None:
        while not stopped.is_set():
            if (own @ own.T * 2).tolist() != expected:
                wrong.append("a thread of the parent got something else")
            (host @ host).sum().item()

    def child() -> Any:
        answers = [_answer(lambda: (x @ x.T * 2).tolist()), (host @ host)[0, 0].item()]
        answers.append(dl.Stream("cpu").submit(lambda: dl.ones(2, device="cpu").sum().item()).result())
        answers.append(
            len(list(dl.data.DataLoader(dl.data.TensorDataset(X), 1, num_workers=1, device="cpu")))
        )
        return answers

    threads = [threading.Thread(target=compute, args=(x.clone(),), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    meant = [expected if name == "cpu" else "ForkError", 300.0, 2.0, 2]
    for _ in range(rounds):
        answer = ask(child)
        if answer != meant:
            wrong.append(f"{answer} for {meant}")
    stopped.set()
    for thread in threads:
        thread.join(SECONDS)
        if thread.is_alive():
            wrong.append("a thread of the parent hangs")
    return wrong


def attack(name: str, rounds: int, several: bool) -> dict[str, Any]:
    """All of it, for a process that has used one device."""
    found: dict[str, Any] = {"uses": {}, "left": {}, "farewells": {}}
    found["uses"] = {what: ask(use) for what, use in uses(name).items()}
    waiting = left(name, several)
    opened = waiting.pop("open the gate")
    found["left"] = {what: ask(use) for what, use in waiting.items()}
    opened()
    found["host"] = ask(host_work)
    found["calibrate"] = "" if name == "cpu" else ask(lambda: dl.calibrate(name).problem)
    for what, end in farewells(dl.tensor(X, device=name)).items():
        found["farewells"][what] = leave(end)
    found["multiprocessing"] = with_multiprocessing(name)
    found["grandchild"] = ask(lambda: ask(lambda: (dl.tensor(X, device="cpu") * 2).tolist()))
    found["wrong"] = beside_threads(name, rounds)
    found["afterwards"] = (dl.tensor(X, device=name) * 2).tolist()
    return found


def locked_again() -> list[bool]:
    """Whether a process gets the lock of measurements, and again when a child was forked meanwhile."""
    with device_records.alone(0.0) as first:
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(writing)
            os.read(reading, 1)  # until the parent closes it
            os._exit(0)
    with device_records.alone(0.0) as second:
        os.close(writing)
    os.close(reading)
    _status(pid, time.monotonic() + SECONDS)
    return [first, second]


def before_opening(names: list[str]) -> dict[str, Any]:
    """Children of a process that has not opened a device: they open theirs."""
    found: dict[str, Any] = {"listed": [], "used": []}
    for _ in range(2):  # the second time, the parent has looked for devices
        found["used"].append([ask(lambda: _in_process(name)) for name in names])  # noqa: B023
        found["listed"].append(len(dl.devices()))
    found["locked"] = locked_again()
    found["status"] = leave(lambda: [_in_process(name) for name in names])
    return found


def run(function: Callable[..., dict[str, Any]], *args: Any) -> None:
    """Print what comes of an attack, but in children that are to end."""
    # Python warns of forks in processes with threads since 3.12; they are what is attacked here.
    warnings.filterwarnings("ignore", r".*fork.*", DeprecationWarning)
    with contextlib.suppress(Child):
        print(json.dumps(function(*args)))
