"""A client of parameter servers: gets parameters, and sends gradients."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from dl4all.autograd import no_grad
from dl4all.distributed.ownership import owners
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
from dl4all.errors import ArgumentError, BackendMissingError, DistError, DistNetworkError
from dl4all.lazy_names import install_command
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

T = TypeVar("T")

PAUSE = 0.2  # seconds between two calls of a server that does not answer


class _Part(NamedTuple):
    """A server, and what is kept there."""

    address: str
    calls: dict[str, Any]
    specs: list[ParameterSpec]
    tensors: list[Tensor]


class ParameterClient:
    """Trains with parameters that servers keep, without waiting for others that do.

    Each server of `dl4all parameter-server` keeps some of the parameters and the optimizer's state for them.
    The first client gives them its parameters; later ones take what is there. :meth:`pull` gets the
    parameters, :meth:`push` sends their gradients, with which the servers make a step of the optimizer at
    once. So processes never wait for each other, may have any speed, come and end; but a gradient may be of
    parameters that others have changed meanwhile. `staleness` bounds by how many steps.

    The method is Downpour SGD's: Dean et al., "Large Scale Distributed Deep Networks", 2012.

    Args:
        addresses: of the servers, ``"host:port"``, in the same order in all clients.
        parameters: a module, or named tensors, whose elements are kept; all clients have the same ones.
        optimizer: the name of an optimizer of :mod:`dl4all.optim`.
        staleness: how many steps of others may lie between a :meth:`pull` and the :meth:`push` of its
            gradients; None: any number.
        timeout: for how many seconds a server may not answer.
        options: of the optimizer, such as ``lr``.

    Raises:
        ArgumentError: there are no parameters or addresses, or the optimizer is unknown.
        BackendMissingError: grpcio is not installed.
        DistError: the servers keep other parameters, or have another optimizer.
        DistNetworkError: a server does not answer.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.training.parameter_server import ParameterServer
        >>> with ParameterServer("127.0.0.1:0") as server:
        ...     net = dl.nn.Linear(1, 1).to("cpu")
        ...     client = dl.distributed.ParameterClient([server.address], net, optimizer="SGD", lr=0.1)
        ...     x = dl.ones(4, 1, device="cpu")
        ...     for step in range(50):
        ...         version = client.pull()
        ...         (net(x) - 3).square().mean().backward()
        ...         applied = client.push()
        ...     version = client.pull()
        ...     client.close()
        >>> version, round(net(x)[0].item(), 3)
        (50, 3.0)
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        parameters: Any,
        optimizer: str = "SGD",
        *,
        staleness: int | None = None,
        timeout: float = 60.0,
        **options: Any,
    ) -> None:
        try:
            import grpc
        except ImportError as error:
            raise BackendMissingError(
                f"[ParameterClient] grpcio is missing: {install_command('parameter-server')} ({error})"
            ) from error
        settings = _settings(optimizer, options, staleness)
        named = _named(parameters)
        listed = [addresses] if isinstance(addresses, str) else list(addresses)
        if not named or not listed or len(set(listed)) < len(listed):
            raise ArgumentError(
                f"[ParameterClient] expected parameters and the addresses of different servers, got "
                f"{len(named)} parameters and {listed}"
            )
        self._grpc, self._timeout = grpc, timeout
        self._id, self._pushes = str(uuid.uuid4()), 0
        self._channels = [grpc.insecure_channel(address, OPTIONS) for address in listed]
        self._threads = ThreadPoolExecutor(len(listed), thread_name_prefix="dl4all-parameters")
        owner = owners([t.numel() * t.dtype.itemsize for _, t in named], len(listed))
        self._parts = []
        for number, address in enumerate(listed):
            if share := [one for one, own in zip(named, owner, strict=True) if own == number]:
                self._parts.append(_Part(address, _calls(self._channels[number]), *_split(share)))
        self.versions = [-1] * len(self._parts)
        """The number of steps that each server had made at the last :meth:`pull`."""
        try:
            self._each(lambda number: self._settle(number, settings))
            self.pull()
        except BaseException:
            self.close()
            raise

    def pull(self) -> int:
        """Get the parameters from the servers; returns how many steps are in them, the fewest of any server.

        Raises:
            DistNetworkError: a server does not answer.

        Example:
            See :class:`ParameterClient`.
        """
        arrived = self._each(self._pull)
        with no_grad():
            for part, arrays in zip(self._parts, arrived, strict=True):
                for tensor, array in zip(part.tensors, arrays, strict=False):
                    tensor.copy_(from_numpy(array, "cpu"))
        return min(self.versions)

    def push(self) -> bool:
        """Send the gradients of the parameters, which have none afterwards.

        Returns:
            Whether all servers have used them; one does not where they are of parameters that are too old.

        Raises:
            DistNetworkError: a server does not answer.

        Example:
            See :class:`ParameterClient`.
        """
        self._pushes += 1
        accepted = self._each(self._push)
        for part in self._parts:
            for tensor in part.tensors:
                tensor.grad = None
        return all(accepted)

    def close(self) -> None:
        """Give up the connections.

        Example:
            See :class:`ParameterClient`.
        """
        self._threads.shutdown()
        for channel in self._channels:
            channel.close()

    def _each(self, function: Callable[[int], T]) -> list[T]:
        """Call a function for each server at once."""
        return list(self._threads.map(function, range(len(self._parts))))

    def _settle(self, number: int, settings: dict[str, Any]) -> None:
        """Have a server keep parameters, or find out that it does."""
        part = self._parts[number]
        found = self._call(number, "describe", lambda: pieces({})).header
        if not found.get("parameters"):
            header = {**settings, "parameters": part.specs}
            found = self._call(number, "create", lambda: pieces(header, _arrays(part.tensors))).header
        theirs = specs_of(found["parameters"])
        for own, other in zip(part.specs, theirs, strict=False):
            if own != other:
                raise DistError(
                    f"[ParameterClient] {part.address} keeps {other}, where this client has {own}"
                )
        if len(theirs) != len(part.specs):
            raise DistError(
                f"[ParameterClient] {part.address} keeps {len(theirs)} parameters, where this client has "
                f"{len(part.specs)} for it: all clients name the same servers in the same order"
            )
        for name, value in settings.items():
            if found[name] != value:
                raise DistError(
                    f"[ParameterClient] {part.address} has {name} {found[name]!r}, this client {value!r}"
                )

    def _pull(self, number: int) -> list[Array]:
        part = self._parts[number]
        message = self._call(number, "pull", lambda: pieces({"version": self.versions[number]}), part.specs)
        self.versions[number] = message.header["version"]
        return message.received

    def _push(self, number: int) -> bool:
        part = self._parts[number]
        given = [(n, t.grad) for n, t in enumerate(part.tensors) if t.grad is not None]
        header = {
            "version": self.versions[number],
            "parameters": [n for n, _ in given],
            # A step is not made twice where an answer was lost.
            "client": self._id,
            "number": self._pushes,
        }
        message = self._call(number, "push", lambda: pieces(header, _arrays([grad for _, grad in given])))
        return bool(message.header["accepted"])

    def _call(
        self,
        number: int,
        method: str,
        message: Callable[[], Iterable[bytes]],
        specs: Sequence[ParameterSpec] = (),
    ) -> _Answer:
        """Call a method of a server, again as long as it does not answer."""
        part, end = self._parts[number], time.monotonic() + self._timeout
        while True:
            try:
                remaining = max(0.1, end - time.monotonic())
                return _Answer(Incoming(part.calls[method](message(), timeout=remaining)), specs)
            except self._grpc.RpcError as error:
                code = error.code()
                if code == self._grpc.StatusCode.INVALID_ARGUMENT:
                    raise ArgumentError(error.details()) from error
                if code == self._grpc.StatusCode.FAILED_PRECONDITION:
                    raise DistError(error.details()) from error
                if code != self._grpc.StatusCode.UNAVAILABLE or time.monotonic() + PAUSE > end:
                    raise DistNetworkError(
                        f"[ParameterClient] the server at {part.address} does not answer within "
                        f"{self._timeout:g} seconds: {error.details()}"
                    ) from error
                time.sleep(PAUSE)


class _Answer:
    """An answer that has come whole."""

    def __init__(self, message: Incoming, specs: Sequence[ParameterSpec]) -> None:
        self.header = message.header
        self.received = message.arrays(specs if self.header.get("values") else ())


def _settings(optimizer: str, options: dict[str, Any], staleness: int | None) -> dict[str, Any]:
    """The settings as they come back from a server, where tuples are lists.

    Raises:
        ArgumentError: an option has no form as JSON, or `staleness` is out of range.
    """
    if staleness is not None and staleness < 0:
        raise ArgumentError(f"[ParameterClient] staleness must be at least 0, got {staleness}")
    try:
        settings: dict[str, Any] = json.loads(
            json.dumps({"optimizer": optimizer, "options": options, "staleness": staleness})
        )
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"[ParameterClient] expected numbers, texts and lists of them as options, got {options}: {error}"
        ) from error
    return settings


def _named(parameters: Any) -> list[tuple[str, Tensor]]:
    """Parameters by their names.

    Raises:
        ArgumentError: they are no tensors.
    """
    found = parameters.named_parameters() if hasattr(parameters, "named_parameters") else parameters
    try:
        named = [(str(name), tensor) for name, tensor in found]
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            "[ParameterClient] expected a module or pairs of names and tensors, got "
            f"{type(parameters).__name__}"
        ) from error
    if not all(isinstance(tensor, Tensor) for _, tensor in named):
        raise ArgumentError("[ParameterClient] expected tensors as parameters")
    return [(name, tensor) for name, tensor in named if tensor.requires_grad]


def _split(share: Sequence[tuple[str, Tensor]]) -> tuple[list[ParameterSpec], list[Tensor]]:
    specs = specs_of([(name, str(tensor.dtype), tuple(tensor.shape)) for name, tensor in share])
    return specs, [tensor for _, tensor in share]


def _arrays(tensors: Iterable[Tensor]) -> Iterable[Array]:
    return (tensor.detach().numpy() for tensor in tensors)


def _calls(channel: Any) -> dict[str, Any]:
    """The methods of a server."""
    return {name: channel.stream_stream(f"/{SERVICE}/{name}") for name in METHODS}
