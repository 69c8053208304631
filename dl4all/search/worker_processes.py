"""Processes that compute trials, one for each device or several; the study stays in this one."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from multiprocessing.connection import Pipe, wait
from types import ModuleType
from typing import Any

import cloudpickle
from optuna.trial import Trial

from dl4all.errors import ArgumentError, DeviceError
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.cpu.llvm.thread_pool import wanted_threads
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.current import get_default_device
from dl4all.search.space import Space
from dl4all.search.trial_outcome import TrialOutcome
from dl4all.tensor.mixins import interop

Functions = tuple[Space, Callable[..., Any], int]
"""The space, the objective, and how many numbers this returns."""


class WorkerProcess:
    """A process for the trials of one device.

    It ends when this one does, however that ends: nobody has the other end of its standard input then.
    """

    def __init__(self, device: str, functions: bytes, threads: int) -> None:
        self.device = device
        self.trial: Trial | None = None
        self.connection, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dl4all.search.worker", str(theirs.fileno())],
            env={**os.environ, "DL4ALL_DEVICE": device, "DL4ALL_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # an interrupt at the terminal is for this process alone
        )
        theirs.close()
        self._ready = False
        self._send((sys.path, device, functions))

    @property
    def is_idle(self) -> bool:
        return self._ready and self.trial is None

    def begin(self, trial: Trial) -> None:
        """Let it compute a trial."""
        self.trial = trial
        self._send(trial.number)

    def answered(self) -> TrialOutcome | None:
        """Take what it says: it asks for something of its trial, or has the outcome.

        Raises:
            EOFError, OSError: it has ended.
            ArgumentError: it cannot take the functions.
        """
        kind, *rest = self.connection.recv()
        if kind == "outcome":
            self.trial = None
            outcome: TrialOutcome = rest[0]
            return outcome
        if kind == "ready":
            self._ready = True
        elif kind == "refused":
            raise ArgumentError(f"[search] a worker cannot take the functions: {rest[0]}")
        else:
            self._reply(*_asked(self.trial, *rest))
        return None

    def end(self, died: bool = False) -> None:
        """Wait for its end, and cause it.

        Raises:
            DeviceError: it has died before it was ready.
        """
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.connection.close()
        if died and not self._ready:
            raise DeviceError(f"[search] the worker for {self.device} ended before its first trial")

    def _reply(self, value: Any, error: Exception | None) -> None:
        try:
            self.connection.send((value, error))
        except OSError:
            pass
        except Exception as unsent:  # noqa: BLE001  # such as a study, which has locks
            self._send((None, TypeError(f"[search] a worker cannot have this of its trial: {unsent}")))

    def _send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # its end is noticed where it is waited for
            self.connection.send(message)


class WorkerProcesses:
    """A worker for each device that is named; those that die are replaced."""

    def __init__(
        self, space: Space, objective: Callable[..., Any], devices: Sequence[str], objectives: int
    ) -> None:
        functions: Functions = (space, objective, objectives)
        try:
            self._functions = _pickled(functions)
        except Exception as error:
            raise ArgumentError(
                f"[search] the functions cannot be sent to processes: {error}; make what they use within "
                "them, or search on one device with one worker"
            ) from error
        hosts = sum(open_device(device).is_host for device in devices)
        self._threads = max(1, wanted_threads() // max(1, hosts))
        self._workers = [WorkerProcess(device, self._functions, self._threads) for device in devices]

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def idle(self) -> list[WorkerProcess]:
        """Workers that wait for a trial."""
        return [worker for worker in self._workers if worker.is_idle]

    def is_busy(self) -> bool:
        """Whether one computes, or is not ready yet."""
        return any(not worker.is_idle for worker in self._workers)

    def wait(self) -> Iterator[tuple[Trial, TrialOutcome | None]]:
        """Serve the workers until one says something; trials that are over, with None where a worker died."""
        connections: dict[Any, int] = {worker.connection: n for n, worker in enumerate(self._workers)}
        for ready in wait(list(connections)):
            number = connections[ready]
            worker = self._workers[number]
            trial = worker.trial
            try:
                outcome = worker.answered()
            except (EOFError, OSError):
                worker.end(died=True)
                self._workers[number] = WorkerProcess(worker.device, self._functions, self._threads)
                if trial is not None:
                    yield trial, None
                continue
            if outcome is not None:
                assert trial is not None
                yield trial, outcome

    def kill(self) -> list[Trial]:
        """End all workers; returns the trials that they were at."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.end()
        return [worker.trial for worker in workers if worker.trial is not None]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # the package has no types
    """Modules by name, and tensors on the default device for that of the process that takes them."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType) and obj.__name__ in sys.modules:  # some are of classes of their own
            return import_module, (obj.__name__,)
        if isinstance(obj, functools._lru_cache_wrapper) and _is_of_script(obj.__module__):
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        if isinstance(obj, TensorBase) and obj.device is get_default_device():
            build, (kind, array, _, requires_grad) = interop.reduce(obj)
            return build, (kind, array, "auto", requires_grad)
        return super().reducer_override(obj)


def _is_of_script(module: str) -> bool:
    return module == "__main__" or module not in sys.modules


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    """A function of a script with ``functools.cache``, with nothing in it yet."""
    cached: Callable[..., Any] = functools.lru_cache(**parameters)(function)
    return cached


def _pickled(functions: Functions) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(functions)
    return file.getvalue()


def _asked(trial: Trial | None, name: str, arguments: tuple[Any, ...] | None, named: dict[str, Any]) -> Any:
    """An attribute of a trial, or the result of a method: ``(value, error)``."""
    try:
        value = getattr(trial, name)
        return (value if arguments is None else value(*arguments, **named)), None
    except Exception as error:  # noqa: BLE001  # raised again in the worker
        return None, error
