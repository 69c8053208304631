"""The models of a server by name: loads, replaces and unloads them while others answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from dl4all.serving.repository import Repository
from dl4all.serving.request_error import Reason, RequestError, as_request_error
from dl4all.serving.served_model import ServedModel

logger = logging.getLogger("dl4all")


class IndexEntry(NamedTuple):
    """A line of the repository's index."""

    name: str
    version: str
    state: str
    """``"READY"`` or ``"UNAVAILABLE"``."""
    reason: str


class ServedModels:
    """The models of a server. Everything but :meth:`load_all` is called in the thread of its event loop.

    Args:
        repository: where models are loaded from; without one there are those of :meth:`put` alone.
        devices: for models whose settings name none.
        explicit: clients may load and unload.
    """

    def __init__(self, repository: Repository | None, devices: Sequence[str], explicit: bool) -> None:
        self.repository, self.devices, self.explicit = repository, devices, explicit
        self.by_name: dict[str, ServedModel] = {}
        self.failures: dict[str, IndexEntry] = {}  # of the last load of a model
        self.stopping = False
        self._locks: dict[str, asyncio.Lock] = {}
        self._drains: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> bool:
        """Whether every model that serves can compute, and one does unless there is none."""
        serving = self.by_name.values()
        nothing_works = bool(self.failures) and not serving
        return not self.stopping and not nothing_works and all(model.ready for model in serving)

    def get(self, name: str, version: str = "") -> ServedModel:
        """The model that answers requests of a name, and of a version where one is named.

        Raises:
            RequestError: there is none.
        """
        model = self.by_name.get(name)
        if model is not None and version in ("", model.version):
            return model
        if model is None and name in self.failures:
            raise RequestError(
                Reason.UNAVAILABLE, f"model {name!r} is not available: {self.failures[name].reason}"
            )
        wanted = f"model {name[:60]!r}" + (f" version {version[:20]!r}" if version else "")
        raise RequestError(Reason.UNKNOWN, f"there is no {wanted}")

    def index(self, ready_only: bool = False) -> list[IndexEntry]:
        """Every model with its state, those of the repository that are not loaded, too."""
        entries = [
            IndexEntry(model.name, model.version, "READY" if model.ready else "UNAVAILABLE", _lost(model))
            for model in self.by_name.values()
        ]
        entries += self.failures.values()
        known = {entry.name for entry in entries}
        names = self.repository.names() if self.repository else ()
        entries += [IndexEntry(name, "", "UNAVAILABLE", "not loaded") for name in names if name not in known]
        return sorted(entry for entry in entries if entry.state == "READY" or not ready_only)

    def put(self, made: ServedModel) -> None:
        """Let a model answer the requests of its name from now on; the one before finishes its own."""
        self.failures.pop(made.name, None)
        self._retire(self.by_name.get(made.name))
        self.by_name[made.name] = made

    def _retire(self, model: ServedModel | None) -> None:
        if model is None:
            return
        try:
            task = asyncio.get_running_loop().create_task(model.drain())
        except RuntimeError:  # the server does not run: nobody asks
            model.close()
            return
        self._drains.add(task)
        task.add_done_callback(self._drains.discard)

    def load_all(self) -> None:
        """Load every model of the repository, before there are requests. Those that fail are in the index."""
        for name in self.repository.names() if self.repository else ():
            try:
                self.put(self._made(name))
            except RequestError as error:
                logger.error("%s", error)

    def _made(self, name: str) -> ServedModel:
        """A model of the repository, warmed up.

        Raises:
            RequestError: why it cannot be loaded; the index has that, too.
        """
        assert self.repository is not None
        version = ""
        try:
            version = self.repository.newest(name)
            loaded = self.repository.load(name, version)
            return ServedModel(name, version, loaded.module, loaded.config, self.devices)
        except RequestError as error:
            if error.reason is not Reason.UNKNOWN:
                self.failures[name] = IndexEntry(name, version, "UNAVAILABLE", str(error))
            raise
        except (Exception, SystemExit) as error:  # whatever the model's own code raises
            reason = f"{type(error).__name__}: {error}"
            self.failures[name] = IndexEntry(name, version, "UNAVAILABLE", reason)
            raise RequestError(Reason.UNAVAILABLE, f"model {name!r} cannot be loaded: {reason}") from error

    def _check_explicit(self) -> None:
        if not self.explicit or self.repository is None:
            raise RequestError(
                Reason.FORBIDDEN,
                "models are loaded when the server starts; --model-control-mode explicit lets clients do so",
            )

    async def load(self, name: str) -> None:
        """Serve the highest version of a model in the place of the one that serves.

        Raises:
            RequestError: it cannot be loaded, and the one that served goes on; or clients may not.
        """
        self._check_explicit()
        if name not in (await asyncio.to_thread(self.repository.names) if self.repository else ()):
            raise RequestError(Reason.UNKNOWN, f"the repository has no model {name[:60]!r}")
        async with self._locks.setdefault(name, asyncio.Lock()):
            made = await asyncio.to_thread(self._made, name)
            if self.stopping:
                await asyncio.to_thread(made.close)
                raise RequestError(Reason.UNAVAILABLE, "the server stops")
            self.put(made)

    async def unload(self, name: str) -> None:
        """Let a model answer no further requests; those under way are answered.

        Raises:
            RequestError: it is not served; or clients may not.
        """
        self._check_explicit()
        self.get(name)  # so that no lock is made for a name that nobody serves
        async with self._locks.setdefault(name, asyncio.Lock()):
            model = self.get(name)  # another one, perhaps, that was being loaded
            del self.by_name[name]
            self.failures[name] = IndexEntry(name, model.version, "UNAVAILABLE", "unloaded")
            self._retire(model)

    async def stop(self) -> None:
        """Close every model, when its requests are answered, and forget them all."""
        self.stopping = True
        for model in self.by_name.values():
            self._retire(model)
        while self._drains:
            await asyncio.wait(self._drains)
        self.by_name, self.failures, self.stopping = {}, {}, False


def _lost(model: ServedModel) -> str:
    """The reasons why devices of a model do not compute any more."""
    return "; ".join(f"{device}: {reason}" for device, reason in model.group.retired.items())


def reason_of(error: BaseException) -> RequestError:
    """The answer to a request that failed; a failure of the server itself is logged."""
    answer = as_request_error(error)
    if answer.reason is Reason.FAILED:
        logger.error("a request failed", exc_info=error)
    return answer
