"""A server that keeps parameters, and makes a step of the optimizer with each gradient that comes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dl4all.distributed.parameter_server.messages import (
    METHODS,
    OPTIONS,
    SERVICE,
    Incoming,
    ParameterSpec,
    pieces,
    specs_of,
)
from dl4all.distributed.process_group.transport import Array
from dl4all.errors import ArgumentError, BackendMissingError, Dl4allError, FileFormatError
from dl4all.io.checkpoint import checkpoints, load_checkpoint, save_checkpoint
from dl4all.io.folder_lock import lock_folder
from dl4all.lazy_names import install_command
from dl4all.nn.parameter import Parameter
from dl4all.optim.optimizer import Optimizer
from dl4all.tensor.creation import from_numpy
from dl4all.training.config import OPTIMIZERS
from dl4all.training.recovery import copied

THREADS = 16
"""The clients that are answered at once."""

CLIENTS = 10_000
"""The clients whose last step is known, so that none is made twice."""

logger = logging.getLogger("dl4all")


class ParameterServer:
    """Keeps parameters that clients get, and to which their gradients are applied as they come.

    It is ``dl4all parameter-server``; see :class:`dl4all.distributed.ParameterClient`.

    Args:
        address: ``"host:port"`` at which it listens; port 0 takes a free one.
        folder: for checkpoints, from the newest of which it goes on.
        save_every: after how many steps it writes one; it also does when it is closed.
        limit: the bytes of parameters that it keeps at most.

    Raises:
        BackendMissingError: grpcio is not installed.
        FileFormatError: the folder has the checkpoints of something else.
        FolderInUseError: another server writes to the folder.
        OSError: the address cannot be used.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:29600",
        *,
        folder: str | Path | None = None,
        save_every: int = 1000,
        limit: int = 4 << 30,
    ) -> None:
        try:
            import grpc
        except ImportError as error:
            raise BackendMissingError(
                f"[ParameterServer] grpcio is missing: {install_command('parameter-server')} ({error})"
            ) from error
        self._folder = None if folder is None else Path(folder)
        self._save_every, self._limit = save_every, limit
        self._lock = threading.Lock()
        self._kept: _KeptParameters | None = None
        self._saved = 0
        self._grpc = grpc
        with ExitStack() as stack:
            if self._folder is not None:
                stack.enter_context(lock_folder(self._folder))
                self._go_on(self._folder)
            self._server, port = self._listening(address)
            self._folder_lock = stack.pop_all()
        self.address = f"{address.rpartition(':')[0]}:{port}"
        self._server.start()

    def _listening(self, address: str) -> tuple[Any, int]:
        """A server of gRPC that is about to start, and its port.

        Raises:
            OSError: the address cannot be used.
        """
        grpc = self._grpc
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="dl4all-parameters")
        # Without the last option a second server at the same port would get some of the calls.
        server = grpc.server(threads, options=[*OPTIONS, ("grpc.so_reuseport", 0)])
        handlers: Any = {name: grpc.stream_stream_rpc_method_handler(self._handler(name)) for name in METHODS}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        try:
            return server, server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"[ParameterServer] cannot listen at {address}: {error}") from error

    def _go_on(self, folder: Path) -> None:
        """Take what the newest checkpoint has, if there is one.

        Raises:
            FileFormatError: it is none of a parameter server.
        """
        if not checkpoints(folder):
            return
        state = load_checkpoint(folder)
        if not {"settings", "values", "optimizer", "version", "last"} <= state.keys():
            raise FileFormatError(f"{folder}: its newest checkpoint is none of a parameter server")
        self._kept = _KeptParameters(state["settings"], list(state["values"].values()))
        self._kept.go_on(state)
        self._saved = self._kept.version

    def __enter__(self) -> ParameterServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self, grace: float = 5.0) -> None:
        """Answer what has begun, write a checkpoint, and end."""
        self._server.stop(grace).wait()
        with self._folder_lock, self._lock:
            self._save()

    def _handler(self, name: str) -> Callable[[Iterator[bytes], Any], Iterator[bytes]]:
        """A method, whose errors tell the client about its message."""
        method: Callable[[Incoming], Iterable[bytes]] = getattr(self, f"_{name}")
        codes = self._grpc.StatusCode

        def handle(stream: Iterator[bytes], context: Any) -> Iterator[bytes]:
            try:
                yield from method(Incoming(stream))
            except NotCreatedError as error:
                context.abort(codes.FAILED_PRECONDITION, str(error))
            except (Dl4allError, TypeError, KeyError, ValueError) as error:
                context.abort(codes.INVALID_ARGUMENT, str(error))

        return handle

    def _describe(self, message: Incoming) -> Iterable[bytes]:
        with self._lock:
            return list(pieces({} if self._kept is None else self._kept.settings))

    def _create(self, message: Incoming) -> Iterable[bytes]:
        header = message.header
        specs = specs_of(header["parameters"])
        nbytes = sum(spec.nbytes() for spec in specs)
        if nbytes > self._limit:
            raise ArgumentError(
                f"[ParameterServer] {nbytes} bytes of parameters are more than the {self._limit} allowed"
            )
        settings = {
            "parameters": specs,
            "optimizer": header["optimizer"],
            "options": dict(header["options"]),
            "staleness": _count(header["staleness"], optional=True),
        }
        values = message.arrays(specs)
        with self._lock:
            if self._kept is None:  # another client may have been first
                self._kept = _KeptParameters(settings, values)
            return list(pieces(self._kept.settings))

    def _pull(self, message: Incoming) -> Iterable[bytes]:
        known = message.header["version"]
        with self._lock:
            kept = self._there()
            if known == kept.version:
                return list(pieces({"version": kept.version, "values": False}))
            version, values = kept.version, [copied(value) for value in kept.parameters]
        return pieces({"version": version, "values": True}, values)

    def _push(self, message: Incoming) -> Iterable[bytes]:
        header = message.header
        with self._lock:
            kept = self._there()
        numbers = [_count(number) for number in header["parameters"]]
        if numbers != sorted(set(numbers)) or (numbers and numbers[-1] >= len(kept.specs)):
            raise ArgumentError(
                f"[ParameterServer] expected numbers of parameters in order, got {numbers!r:.100}"
            )
        gradients = message.arrays([kept.specs[number] for number in numbers])
        version, number = _count(header["version"]), _count(header["number"])
        with self._lock:
            answer = kept.step(
                str(header["client"])[:100], number, version, dict(zip(numbers, gradients, strict=True))
            )
            if kept.version >= self._saved + self._save_every:
                try:
                    self._save()
                except OSError as error:  # the step is made all the same
                    logger.error("[ParameterServer] %s", error)
        return pieces(answer)

    def _there(self) -> _KeptParameters:
        if self._kept is None:
            raise NotCreatedError(
                "[ParameterServer] no parameters are here: this server was started anew, without a folder"
            )
        return self._kept

    def _save(self) -> None:
        if self._folder is not None and self._kept is not None and self._kept.version > self._saved:
            save_checkpoint(self._folder, self._kept.version, self._kept.state(), keep=2)
            self._saved = self._kept.version


class NotCreatedError(Dl4allError):
    """A server has no parameters as yet."""


class _KeptParameters:
    """Parameters, their optimizer, and the clients' last steps.

    Args:
        settings: the parameters' specs, the optimizer's name and options, the bound of staleness.
        values: the parameters' elements.

    Raises:
        ArgumentError: there is no such optimizer, or it does not take the options.
    """

    def __init__(self, settings: dict[str, Any], values: list[Array]) -> None:
        self.specs = [
            ParameterSpec(name, dtype, tuple(shape)) for name, dtype, shape in settings["parameters"]
        ]
        self.settings = {**settings, "parameters": self.specs}
        name, options = settings["optimizer"], settings["options"]
        if name not in OPTIMIZERS:
            raise ArgumentError(
                f"[ParameterServer] expected an optimizer of {', '.join(OPTIMIZERS)}, got {name!r}"
            )
        self.parameters = [Parameter(from_numpy(value, "cpu")) for value in values]
        self.optimizer: Optimizer = OPTIMIZERS[name](self.parameters, **options)
        self.version = 0
        self._last: dict[str, tuple[int, dict[str, Any]]] = {}

    def step(self, client: str, number: int, version: int, gradients: dict[int, Array]) -> dict[str, Any]:
        """Make a step with gradients of parameters of a version; returns the answer."""
        last, answer = self._last.pop(client, (-1, {}))
        if last != number:
            bound = self.settings["staleness"]
            accepted = bound is None or self.version - version <= bound
            if accepted:
                for which, gradient in gradients.items():
                    self.parameters[which].grad = from_numpy(gradient, "cpu")
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.version += 1
            answer = {"accepted": accepted, "version": self.version}
        self._last[client] = number, answer
        if len(self._last) > CLIENTS:
            del self._last[next(iter(self._last))]
        return answer

    def state(self) -> dict[str, Any]:
        """Everything that is kept."""
        names = [spec.name for spec in self.specs]
        return {
            "settings": {**self.settings, "parameters": [list(spec) for spec in self.specs]},
            "values": dict(zip(names, self.parameters, strict=True)),
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
            "last": {client: list(entry) for client, entry in self._last.items()},
        }

    def go_on(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.version = state["version"]
        self._last = {client: (number, answer) for client, (number, answer) in state["last"].items()}


def _count(value: Any, *, optional: bool = False) -> Any:
    """
    Raises:
        ArgumentError: it is no count.
    """
    if (optional and value is None) or (
        isinstance(value, int) and not isinstance(value, bool) and value >= 0
    ):
        return value
    raise ArgumentError(f"[ParameterServer] expected a number of at least 0, got {value!r:.100}")
