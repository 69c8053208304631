"""A process that computes trials for :mod:`dl4all.search.worker_processes`."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from optuna.trial import Trial

from dl4all.search.trial_outcome import computed


class RemoteTrial:
    """Optuna's trial, which is in another process."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.number = number
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if callable(getattr(Trial, name, None)):
            return lambda *arguments, **named: self._ask(name, arguments, named)
        return self._ask(name, None, {})

    def _ask(self, name: str, arguments: tuple[Any, ...] | None, named: dict[str, Any]) -> Any:
        self._connection.send(("ask", name, arguments, named))
        value, error = self._connection.recv()
        if error is not None:
            raise error
        return value


def main() -> None:
    """Compute trials until the other process ends."""
    threading.Thread(target=_end_with_the_other, daemon=True).start()
    connection = Connection(int(sys.argv[1]))
    sys.path[:], device, functions = connection.recv()
    try:
        space, objective, objectives = pickle.loads(functions)
    except Exception as error:  # noqa: BLE001  # the other process raises it
        connection.send(("refused", f"{type(error).__name__}: {error}"))
        return
    connection.send(("ready",))
    while True:
        trial: Any = RemoteTrial(connection, connection.recv())
        connection.send(("outcome", computed(space, objective, trial, device, objectives)))


def _end_with_the_other() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
