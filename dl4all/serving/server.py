"""A server of models: HTTP and gRPC in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dl4all.errors import ArgumentError, BackendMissingError, ConfigError
from dl4all.lazy_names import install_command
from dl4all.nn.module import Module
from dl4all.serving.language_models import LanguageModels
from dl4all.serving.model_config import NAME, ModelConfig, TensorSpec, checked_config
from dl4all.serving.repository import Repository
from dl4all.serving.request_error import RequestError
from dl4all.serving.served_model import ServedModel
from dl4all.serving.served_models import ServedModels

try:
    import grpc
    import uvicorn

    from dl4all.serving.metrics import Metrics
    from dl4all.serving.protocol.grpc_service import add_services
    from dl4all.serving.protocol.http_connection import HttpConnection
    from dl4all.serving.protocol.http_routes import application
    from dl4all.serving.protocol.request_tensors import MOST_BYTES
except ImportError as error:
    raise BackendMissingError(f"[serve] {error.name} is not installed: {install_command('serve')}") from None

if TYPE_CHECKING:
    from dl4all.llm.decoder import Decoder
    from dl4all.llm.tokenizer import Tokenizer

GRPC_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # a port that is taken is an error
)
GRACE_SECONDS = 30.0
"""For requests that are under way when the server is to stop."""
BACKLOG = 2048
"""Connections that wait to be accepted."""
IDLE_SECONDS = 75
"""After which an idle connection is closed: later than proxies close theirs, so that none is lost between."""


class Server:
    """Serve models over HTTP and gRPC.

    Args:
        repository: a folder of models; see :doc:`/serving`. Others are added by :meth:`add`.
        host: the address to listen at.
        http_port, grpc_port: 0 for any that is free.
        devices: names, ``["auto"]``, or ``["all"]`` for all of this machine.
        model_control_mode: ``"explicit"`` lets clients load and unload models.
        drain_seconds: for which :meth:`run` still answers after a signal, not ready any more: until whoever
            asks for that sends requests elsewhere. A second signal cuts it short.

    Attributes:
        http_url, grpc_url: where it listens, such as ``"127.0.0.1:8000"``, once it does.

    Raises:
        ConfigError: the repository is no folder.
        BackendMissingError: a package is not installed: the message has the command.

    Example:
        >>> import dl4all as dl
        >>> import json, urllib.request
        >>> server = dl.serving.Server(http_port=0, grpc_port=0, devices=["cpu"])
        >>> spec = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}
        >>> server.add("relu", dl.nn.ReLU(), inputs=[spec], outputs=[{**spec, "name": "y"}])
        >>> body = {"inputs": [{**spec, "shape": [1, 4], "data": [-1, 2, -3, 4]}]}
        >>> with server:
        ...     address = f"http://{server.http_url}/v2/models/relu/infer"
        ...     with urllib.request.urlopen(address, json.dumps(body).encode()) as answer:
        ...         json.load(answer)["outputs"][0]["data"]
        [0.0, 2.0, 0.0, 4.0]
    """

    def __init__(
        self,
        repository: str | Path | None = None,
        *,
        host: str = "127.0.0.1",
        http_port: int = 8000,
        grpc_port: int = 8001,
        devices: Sequence[str] = ("auto",),
        model_control_mode: Literal["none", "explicit"] = "none",
        drain_seconds: float = 1.0,
    ) -> None:
        if model_control_mode not in ("none", "explicit"):
            raise ArgumentError(f"[serve] model_control_mode is none or explicit, got {model_control_mode!r}")
        folder = None if repository is None else Repository(Path(repository))
        self._models = ServedModels(folder, devices, model_control_mode == "explicit")
        self._metrics = Metrics(self._models)
        self._language_models = LanguageModels()
        self._host, self._ports = host, (http_port, grpc_port)
        self._drain_seconds = drain_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self.http_url = self.grpc_url = ""

    def add(
        self,
        name: str,
        module: Module,
        inputs: Sequence[TensorSpec | Mapping[str, Any]],
        outputs: Sequence[TensorSpec | Mapping[str, Any]],
        *,
        version: str = "1",
        **settings: Any,
    ) -> None:
        """Serve a module, in the place of one of the same name; a copy of its present weights.

        Args:
            name: by which clients ask for it.
            module: its inputs and outputs have the batch as first axis.
            inputs, outputs: in the order of its arguments and results: :class:`TensorSpec`, or dicts with
                ``name``, ``datatype`` and ``shape``.
            version: a number.
            settings: further fields of :class:`ModelConfig`.

        Raises:
            ConfigError: a setting is out of its range, or the module returns something else than `outputs`.
            Exception: what the module raises when it is called for the first time.
        """
        if not NAME.fullmatch(name) or not version.isdecimal():
            raise ConfigError(
                f"[serve] expected a name of letters and a numeric version, got {name!r}, {version!r}"
            )
        config = ModelConfig(_specs(inputs), _specs(outputs), **settings)
        checked_config(config, f"[serve] {name}")
        try:
            made = ServedModel(name, version, module, config, self._models.devices)
        except RequestError as error:
            raise ConfigError(f"[serve] {error}") from None
        if self._loop is None:
            self._models.put(made)
        else:
            asyncio.run_coroutine_threadsafe(self._put(made), self._loop).result()

    async def _put(self, made: ServedModel) -> None:
        self._models.put(made)

    def add_language_model(
        self, name: str, model: Decoder, tokenizer: Tokenizer | None, *, slots: int = 8
    ) -> None:
        """Serve a language model as OpenAI's API has it, from the start: ``/v1/chat/completions`` and so on.

        Args:
            name: by which clients ask for it.
            model, tokenizer: from :func:`dl4all.llm.load`.
            slots: completions that are computed together; others wait.

        Raises:
            ConfigError: there is one of this name, or the server runs already.
        """
        if self._loop is not None:
            raise ConfigError("[serve] add language models before the server starts")
        from dl4all.llm.completion_batcher import CompletionBatcher  # whose extra other servers need not have

        if name in self._language_models.by_name:
            raise ConfigError(f"[serve] there is a language model {name!r} already")
        self._language_models.put(name, CompletionBatcher(model, tokenizer, slots=slots))

    def start(self) -> None:
        """Listen, in a thread; returns when requests are answered.

        Raises:
            OSError: a port is taken.
        """
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="serving", daemon=True
        )
        self._thread.start()
        ready.result()

    def stop(self) -> None:
        """Answer what is under way, and end."""
        if self._loop is not None and self._stopped is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def run(self, ready: Callable[[], None]) -> None:
        """Listen until SIGTERM or SIGINT comes; in the main thread.

        Args:
            ready: called when requests are answered.

        Raises:
            OSError: a port is taken.
        """
        listening: Future[None] = Future()
        listening.add_done_callback(lambda done: None if done.exception() else ready())
        asyncio.run(self._serve(listening, (signal.SIGTERM, signal.SIGINT)))
        listening.result()

    async def _serve(self, ready: Future[None], signals: Sequence[signal.Signals] = ()) -> None:
        """Serve until :meth:`stop`, or one of the signals.

        Args:
            ready: gets a result when requests are answered, or the error why they will not be.
            signals: that end it.
        """
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        for number in signals:
            self._on_signal(number)
        try:
            await self._listen_until_stopped(ready)
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            await self._models.stop()
            await asyncio.to_thread(self._language_models.stop)
            self._loop = None

    def _on_signal(self, number: signal.Signals) -> None:
        """Stop when a signal comes; event loops of Windows have no place for that."""
        loop = self._loop
        assert loop is not None
        try:
            loop.add_signal_handler(number, self._begin_to_stop)
        except NotImplementedError:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(self._begin_to_stop))

    def _begin_to_stop(self) -> None:
        """A signal has come."""
        assert self._loop is not None
        assert self._stopped is not None
        if self._models.stopping:
            self._stopped.set()
        else:
            self._models.stopping = True
            self._loop.call_later(self._drain_seconds, self._stopped.set)

    async def _listen_until_stopped(self, ready: Future[None]) -> None:
        await asyncio.to_thread(self._models.load_all)
        rpc = grpc.aio.server(options=[*GRPC_OPTIONS])
        add_services(rpc, self._models, self._metrics)
        http = _HttpServer(
            uvicorn.Config(
                application(self._models, self._metrics, self._more_routes()),
                http=HttpConnection,
                loop="none",
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=int(GRACE_SECONDS),
            )
        )
        with _listening(self._host, self._ports[0]) as listener:
            host = f"[{self._host}]" if ":" in self._host else self._host
            self.http_url = f"{host}:{listener.getsockname()[1]}"
            self.grpc_url = f"{host}:{_bound(rpc, host, self._ports[1])}"
            await rpc.start()
            serving = asyncio.create_task(http.serve([listener]))
            ready.set_result(None)
            await self._until_stopped(serving)
            self._models.stopping = True  # not ready from now on
            http.should_exit = True
            await asyncio.gather(serving, rpc.stop(GRACE_SECONDS))

    def _more_routes(self) -> list[Any]:
        """Routes of language models, if there are some."""
        if not self._language_models.by_name:
            return []
        from dl4all.serving.protocol.openai_routes import openai_routes

        return openai_routes(self._language_models, self._metrics.count_completion)

    async def _until_stopped(self, serving: asyncio.Task[None]) -> None:
        """Return when somebody wants the end, or HTTP is not served any more."""
        assert self._stopped is not None
        stopped = asyncio.create_task(self._stopped.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()


class _HttpServer(uvicorn.Server):
    """uvicorn without its handlers of signals: they would raise SIGTERM again when all has ended in peace."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By its protocol asyncio knows that connections are TCP's, and sends small packets at once.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _bound(rpc: grpc.aio.Server, host: str, port: int) -> int:
    """The port that gRPC listens at."""
    try:
        return rpc.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise OSError(f"[serve] cannot listen at {host}:{port}; another program has it in use") from error


def _specs(given: Sequence[TensorSpec | Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(spec if isinstance(spec, TensorSpec) else TensorSpec(**spec) for spec in given)
