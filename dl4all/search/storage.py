"""Storages of trials: memory, a file, a database, or another machine's storage."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from socket import gethostname
from typing import Any, BinaryIO, Literal

import optuna
import psutil
from optuna.pruners import BasePruner
from optuna.storages import BaseStorage, GrpcStorageProxy, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from dl4all.errors import ArgumentError, Dl4allError, FileFormatError
from dl4all.runtime.records import file_lock

Direction = Literal["maximize", "minimize"]
DATABASES = (".db", ".sqlite", ".sqlite3")
JOURNAL = b'{"op_code":'
"""The beginning of every journal."""
NAMING_SECONDS = 2.0
"""After which a trial that runs has the name of its search, if that goes on."""
MOST_RETRIES = 3
"""Times that the trial of a process that died is begun again."""
SEARCH, RETRIES = "search", "retries"
"""Attributes of a trial: which search makes it, and how often it was begun again."""


def opened(storage: str | os.PathLike[str] | BaseStorage | None) -> BaseStorage:
    """A storage by its name.

    Args:
        storage: None for memory; a file, SQLite's by its ending (``.db``, ``.sqlite``), any other a journal;
            ``"grpc://host:port"`` for a storage that another machine shares; a URL of SQLAlchemy's; or one of
            Optuna's storages.

    Raises:
        FileFormatError: it cannot be opened: another kind of file, cut off, locked, or of another version.
        ArgumentError: it is no name of a storage.
    """
    if storage is None:
        return InMemoryStorage()
    if isinstance(storage, BaseStorage):
        return storage
    if not isinstance(storage, (str, os.PathLike)) or not str(storage):
        raise ArgumentError(f"[search] expected a file or a URL as storage, got {storage!r}")
    name = str(storage)
    try:
        with warnings.catch_warnings():  # Optuna's word that an interface may change: it is called here only
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return _opened(name)
    except Dl4allError:
        raise
    except Exception as error:
        raise unreadable(name, error) from error


def _opened(name: str) -> BaseStorage:
    scheme, separator, rest = name.partition("://")
    if separator and scheme == "grpc":
        host, _, port = rest.rpartition(":")
        if not host or not port.isdecimal():
            raise ArgumentError(f"[search] expected grpc://host:port as storage, got {name!r}")
        proxy = GrpcStorageProxy(host=host, port=int(port))
        proxy.wait_server_ready(timeout=10)
        return proxy
    if separator:
        return RDBStorage(name)
    path = Path(name)
    if not path.parent.is_dir():
        raise FileFormatError(f"[search] storage {name}: there is no folder {path.parent}")
    if path.suffix in DATABASES:
        return RDBStorage(f"sqlite:///{path.absolute()}")
    lock = _JournalLock(path)
    if path.exists():
        _mend(path, lock)
    return JournalStorage(JournalFileBackend(name, lock_obj=lock))


class _JournalLock(JournalFileOpenLock):
    """A lock of a journal that the system opens when its process dies; Optuna's own last for 30 s then."""

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._journal = journal
        self._stream: BinaryIO | None = None

    def acquire(self) -> bool:
        stream = os.fdopen(os.open(self._journal, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        file_lock.lock(stream)
        self._stream = stream
        return True

    def release(self) -> None:
        if self._stream is not None:
            self._stream.close()


def _mend(journal: Path, lock: _JournalLock) -> None:
    """Remove the last line of a journal where its writing was cut off: what follows would be lost with it.

    Raises:
        ValueError: it is no journal.
    """
    lock.acquire()
    try:
        content = journal.read_bytes()
        if not content.startswith(JOURNAL[: len(content)]):
            raise ValueError("it is no journal of Optuna's")
        if not content.endswith(b"\n"):
            os.truncate(journal, content.rfind(b"\n") + 1)
    finally:
        lock.release()


def study_of(
    storage: BaseStorage, name: str, directions: Sequence[Direction], pruner: BasePruner | None, resume: bool
) -> Study:
    """A study in a storage: a new one, or with `resume` the one of this name.

    Raises:
        ArgumentError: there is one already, or it has other directions.
        FileFormatError: the storage cannot be read.
    """
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # there is a line for each study, otherwise
    try:
        exists = name in optuna.get_all_study_names(storage)
        if exists and not resume:
            raise ArgumentError(
                f"[search] the storage has a study {name!r} already: resume=True goes on with it, "
                "study_name= begins another one"
            )
        study = optuna.create_study(
            storage=storage,
            pruner=pruner or optuna.pruners.NopPruner(),
            study_name=name,
            directions=list(directions),
            load_if_exists=resume,
        )
    except Dl4allError:
        raise
    except Exception as error:
        raise unreadable(str(type(storage).__name__), error) from error
    finally:
        optuna.logging.set_verbosity(verbosity)
    before = [direction.name.lower() for direction in study.directions]
    if before != list(directions):
        raise ArgumentError(
            f"[search] study {name!r} is to {', '.join(before)}, and this search to {', '.join(directions)}"
        )
    return study


def retry_lost(study: Study) -> None:
    """Begin those trials again whose search on this machine is gone."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    unnamed = {trial.number for trial in running if SEARCH not in trial.user_attrs}
    if unnamed:  # its search was killed before it said so, or is about to
        time.sleep(NAMING_SECONDS)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        name = trial.user_attrs.get(SEARCH)
        if trial.number in unnamed if name is None else _is_gone(name):
            retry(study, trial)


def retry(study: Study, trial: FrozenTrial) -> None:
    """Mark a trial as failed, and let one with its values be the next, unless it was tried often enough."""
    tell(study, trial.number, state=TrialState.FAIL)
    if (retries := trial.user_attrs.get(RETRIES, 0)) < MOST_RETRIES:
        study.enqueue_trial(dict(trial.params), user_attrs={RETRIES: retries + 1})


def tell(study: Study, number: int, values: Sequence[float] | None = None, state: Any = None) -> None:
    """Store what came of a trial, unless somebody has done so: storages may give a trial to two machines."""
    try:
        study.tell(number, values, state)
    except (optuna.exceptions.UpdateFinishedTrialError, ValueError):
        if not study.get_trials(deepcopy=False)[number].state.is_finished():
            raise


@contextlib.contextmanager
def searching() -> Iterator[str]:
    """A name of a search that no other one has, while it goes on."""
    own = psutil.Process()
    name = f"{gethostname()}:{own.pid}:{own.create_time():.2f}:{next(_numbers)}"
    _searching.add(name)
    try:
        yield name
    finally:
        _searching.discard(name)


def _is_gone(name: str) -> bool:
    """Whether a search of this machine has ended."""
    host, _, process = name.partition(":")
    if host != gethostname() or name in _searching:
        return False
    pid, begun, _ = process.split(":")
    try:
        return int(pid) == os.getpid() or f"{psutil.Process(int(pid)).create_time():.2f}" != begun
    except psutil.NoSuchProcess:
        return True


_searching: set[str] = set()
_numbers = itertools.count()


def unreadable(name: str, error: Exception) -> FileFormatError:
    """An error for a storage that Optuna cannot use."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return FileFormatError(
        f"[search] storage {name} cannot be read: {reason}; it is locked, cut off, of another version or no "
        "storage of a study"
    )
