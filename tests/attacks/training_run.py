"""A training run, as processes that are attacked make it: forked from one that has imported dl4all."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import multiprocessing.context
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dl4all as dl

EPOCHS, BATCHES = 3, 10
SECONDS = 120.0  # many times what any of these processes takes

Outcome = tuple[str, str]
"""The type and the text of an error; ``"complete"`` and the weights' bytes as hexadecimal digits."""


def make(folder: Path | None, device: str = "cpu", **options: Any) -> dl.Trainer:
    """A run in which everything is at work that a checkpoint must hold."""
    dl.manual_seed(3)
    nn = dl.nn
    net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.02)
    return dl.Trainer(
        net, nn.CrossEntropyLoss(), optimizer, ["accuracy"], device,
        scheduler=dl.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=EPOCHS * BATCHES),
        scheduler_interval="step", ema=dl.optim.EMA(net.parameters(), 0.9), folder=folder, keep=1,
        checkpoint_every=None if folder is None else 2, progress=False, **options,
    )  # fmt: skip


def batches(data: Any = None, **options: Any) -> dl.data.DataLoader:
    """Ten batches of 16 samples an epoch."""
    return dl.data.DataLoader(
        data or dl.data.spiral(160), 16, shuffle=True, device=None, **{"num_workers": 2, **options}
    )


def weights(trainer: dl.Trainer) -> str:
    return b"".join(tensor.numpy().tobytes() for tensor in trainer.model.state_dict().values()).hex()


def outcome(function: Callable[[], str]) -> Outcome:
    try:
        return "complete", function()
    except Exception as error:  # noqa: BLE001  # the test compares it
        return type(error).__name__, str(error)


def run(folder: Path, device: str = "cpu", **options: Any) -> str:
    """Go on in a folder until all epochs are complete; returns the weights."""
    trainer = make(folder, device, **options)
    trainer.fit(batches(), EPOCHS, resume=True)
    return weights(trainer)


# In processes of their own


def compete(pipe: Connection, folder: Path, together: Any, refused: Any) -> None:
    """Begin with the others; who is first goes on when all others were refused."""

    def wait(trainer: dl.Trainer, row: Any) -> None:
        if trainer.epoch == 1:
            for _ in range(together.parties - 1):
                assert refused.acquire(timeout=SECONDS)

    together.wait(SECONDS)
    found = outcome(lambda: run(folder, callbacks=[wait]))
    if found[0] != "complete":
        refused.release()
    pipe.send((os.getpid(), found))


def go_on(pipe: Connection, folder: Path, device: str) -> None:
    pipe.send("ready")
    pipe.send(outcome(lambda: run(folder, device)))


def hold(pipe: Connection, folder: Path) -> None:
    """Train for an epoch, have a child that outlives this process, and wait to be killed."""

    def wait(trainer: dl.Trainer, row: Any) -> None:
        child = os.fork()
        if not child:
            pipe.send((os.getpid(), outcome(lambda: str(dl.io.save_checkpoint(folder, 99, {})))))
            time.sleep(SECONDS)
            os._exit(0)
        time.sleep(SECONDS)

    run(folder, callbacks=[wait])


def fill(pipe: Connection, folder: Path, limits: list[int]) -> None:
    """Run where files cannot be larger than each of these limits, and then without a limit."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for limit in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        found = outcome(lambda: run(folder))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        newest = dl.io.checkpoints(folder)
        pipe.send((limit, found, dl.io.load_checkpoint(folder)["step"] if newest else 0))
    pipe.send((0, outcome(lambda: run(folder)), 0))


class Hanging:
    """Samples, of which some call a function first."""

    def __init__(self, at: int, function: Callable[[], Any]) -> None:
        self.data, self.at, self.function = dl.data.spiral(160), at, function

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            self.function()
        return self.data[index]


def interrupt(pipe: Connection, folder: Path, device: str, count: int) -> None:
    """Interrupt a run by real signals: `count` times at any moment, once while a worker hangs. Then end, with
    that worker."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    expected = run(folder / "whole", device)
    begun = time.perf_counter()
    run(folder / "timed", device)
    seconds = time.perf_counter() - begun
    met = 0
    for number in range(count):
        with contextlib.suppress(KeyboardInterrupt):
            try:
                signal.signal(signal.SIGALRM, signal.default_int_handler)
                signal.setitimer(signal.ITIMER_REAL, max(1e-3, seconds * (number % 7 + 1) / 8))
                run(folder / str(number), device)
            except KeyboardInterrupt:
                met += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        pipe.send((str(number), outcome(lambda number=number: run(folder / str(number), device))))  # type: ignore[misc]
    trainer = make(folder / "hung", device)

    def hang() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(SECONDS)

    data = Hanging(77, hang)
    loader = batches(data)
    begun = 0.0
    try:
        trainer.fit(loader, EPOCHS, resume=True)
    except KeyboardInterrupt:
        pipe.send(("interrupted", ("KeyboardInterrupt", "")))
    data.at = -1
    again = make(folder / "hung", device)
    pipe.send(("hung", outcome(lambda: _complete(again, loader))))
    pipe.send(("expected", ("complete", expected)))
    pipe.send(("met", (str(met), "")))


def _complete(trainer: dl.Trainer, loader: dl.data.DataLoader) -> str:
    trainer.fit(loader, EPOCHS, resume=True)
    return weights(trainer)


# In the test's process


@functools.cache
def _server() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "tests.attacks.training_run"])
    return context


def primitives() -> multiprocessing.context.ForkServerContext:
    """For locks and barriers of the processes."""
    return _server()


@contextlib.contextmanager
def process(function: Callable[..., None], *args: Any) -> Iterator[tuple[Any, Connection]]:
    """A process that calls a function with its end of a pipe and the arguments; it is killed at the end."""
    mine, theirs = _server().Pipe()
    started = _server().Process(target=function, args=(theirs, *args), daemon=True)
    started.start()
    theirs.close()
    try:
        yield started, mine
    finally:
        started.kill()
        started.join()
        mine.close()


def received(pipe: Connection) -> Any:
    """What a process has sent; the test fails where it does not come."""
    assert pipe.poll(SECONDS), "a process has not answered"
    return pipe.recv()
