"""Parameters that servers keep: the optimizer's steps, staleness, servers that end, and messages that lie."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import dl4all as dl
from dl4all.distributed.parameter_server.messages import METHODS, OPTIONS, PIECE, SERVICE, pieces
from dl4all.errors import ArgumentError, DistError, DistNetworkError, FileFormatError, FolderInUseError
from dl4all.training import parameter_server
from dl4all.training.parameter_server import ParameterServer
from tests.distributed.processes import LIMIT, ROOT, free_port
from tests.support.forked_process import ForkedProcess

Client = dl.distributed.ParameterClient


def network(device: str = "cpu", seed: int = 1) -> dl.nn.Module:
    dl.manual_seed(seed)
    net = dl.nn.Sequential(dl.nn.Linear(5, 7), dl.nn.Tanh(), dl.nn.Linear(7, 3), dl.nn.Linear(3, 2))
    return net.to(device)


def loss(net: dl.nn.Module, step: int) -> dl.Tensor:
    numbers = np.random.default_rng(step)
    device = next(net.parameters()).device
    x, y = (dl.from_numpy(numbers.standard_normal((6, n)).astype(np.float32), device) for n in (5, 3))
    assert isinstance(net, dl.nn.Sequential)
    found: dl.Tensor = (net[:3](x) - y).square().mean()
    return found


def elements(net: dl.nn.Module) -> Any:
    return np.concatenate([p.detach().numpy().ravel() for p in net.parameters()])


def called(channel: grpc.Channel, method: str, message: list[bytes]) -> list[bytes]:
    """The pieces of an answer."""
    call: Any = channel.stream_stream(f"/{SERVICE}/{method}")
    return list(call(iter(message), timeout=20))


@pytest.fixture
def server() -> Iterator[ParameterServer]:
    with ParameterServer("127.0.0.1:0") as made:
        yield made


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize(
    ("name", "options"), [("SGD", {"lr": 0.1, "momentum": 0.9}), ("AdamW", {"lr": 0.01, "betas": (0.8, 0.9)})]
)
def test_one_client_makes_the_optimizers_steps(servers: int, name: str, options: dict[str, Any]) -> None:
    """The layer without a gradient keeps none, as with the optimizer alone."""
    alone = network()
    optimizer = getattr(dl.optim, name)(alone.parameters(), **options)
    with ExitStack() as stack:
        addresses = [stack.enter_context(ParameterServer("127.0.0.1:0")).address for _ in range(servers)]
        net = network()
        client = stack.enter_context(closing(Client(addresses, net, name, **options)))
        other = network(seed=2)
        follower = stack.enter_context(closing(Client(addresses, other, name, **options)))
        for step in range(5):
            optimizer.zero_grad()
            loss(alone, step).backward()
            optimizer.step()
            assert client.pull() == step
            loss(net, step).backward()
            assert client.push()
            assert all(parameter.grad is None for parameter in net.parameters())
        for one, asking in ((net, client), (other, follower)):
            assert asking.pull() == 5
            assert asking.pull() == 5  # nothing new
            assert np.array_equal(elements(one), elements(alone))


@pytest.mark.vulkan
def test_a_device_of_its_own(server: ParameterServer) -> None:
    net, alone = network("vulkan:0"), network()
    with closing(Client(server.address, net, lr=0.1)) as client:
        for step in range(3):
            client.pull()
            loss(net, step).backward()
            client.push()
        client.pull()
    optimizer = dl.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        loss(alone, step).backward()
        optimizer.step()
    assert np.allclose(elements(net), elements(alone), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [dl.float64, dl.bfloat16, dl.float16])
def test_dtypes_and_large_parameters(server: ParameterServer, dtype: Any) -> None:
    """Parameters of several pieces, and of no axis."""
    large = dl.nn.Parameter(dl.arange(700_001, device="cpu").remainder(251).to(dtype))
    scalar = dl.nn.Parameter(dl.full((), 2.0, dtype=dtype, device="cpu"))
    empty = dl.nn.Parameter(dl.zeros(0, 3, dtype=dtype, device="cpu"))
    before = large.detach().clone()
    named = [("empty", empty), ("large", large), ("scalar", scalar)]
    with closing(Client(server.address, named, lr=0.5)) as client:
        large.grad, scalar.grad, empty.grad = dl.ones_like(large), dl.ones_like(scalar) * 2, empty.detach()
        assert client.push()
        assert client.pull() == 1
    assert scalar.item() == 1
    expected = (before.float() - 0.5).to(dtype) if dtype is not dl.float64 else before - 0.5
    assert np.array_equal(large.detach().numpy(), expected.numpy())


def test_gradients_may_be_too_old(server: ParameterServer) -> None:
    first, second = network(), network()
    with (
        closing(Client(server.address, first, lr=0.1, staleness=2)) as one,
        closing(Client(server.address, second, lr=0.1, staleness=2)) as other,
    ):
        one.pull()
        for step in range(3):
            other.pull()
            loss(second, step).backward()
            assert other.push()
            loss(first, step).backward()
            assert one.push() == (step < 1), step  # the other's steps and its own lie between
        assert other.pull() == 4
        assert one.pull() == 4
        loss(first, 9).backward()
        assert one.push()


def test_many_clients_at_once(server: ParameterServer) -> None:
    """Each step is one step, and no gradient is mixed with another."""
    count, each = 6, 25
    parameters = [dl.nn.Parameter(dl.zeros(1000, device="cpu")) for _ in range(count)]
    clients = [Client(server.address, [("x", one)], lr=1.0) for one in parameters]

    def work(number: int) -> None:
        for _ in range(each):
            clients[number].pull()
            parameters[number].grad = dl.full((1000,), -(10.0**number), device="cpu")
            assert clients[number].push()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert clients[0].pull() == count * each
    assert set(parameters[0].tolist()) == {each * 111111.0}
    for client in clients:
        client.close()


def test_a_step_is_not_made_twice(server: ParameterServer) -> None:
    """A client that has had no answer sends its message again."""
    x = dl.nn.Parameter(dl.zeros(2, device="cpu"))
    with (
        closing(Client(server.address, [("x", x)], lr=1.0)) as client,
        grpc.insecure_channel(server.address) as channel,
    ):
        header = {"version": 0, "parameters": [0], "client": "me", "number": 1}
        for _ in range(3):
            message = list(pieces(header, [np.ones(2, np.float32)]))
            answer = json.loads(called(channel, "push", message)[0])
            assert answer == {"accepted": True, "version": 1}
        assert client.pull() == 1
        assert x.tolist() == [-1, -1]


def started(port: int, folder: Path) -> subprocess.Popen[str]:
    """A server in a process of its own."""
    command = [sys.executable, "-m", "dl4all", "parameter-server"]
    running = ForkedProcess(
        [*command, "--port", str(port), "--folder", str(folder), "--save-every", "2"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == f"parameters at 127.0.0.1:{port}\n"
    return running


def test_servers_go_on_from_their_folder(tmp_path: Path) -> None:
    port, net, alone = free_port(), network(), network()
    optimizer = dl.optim.AdamW(alone.parameters(), lr=0.01)
    running = started(port, tmp_path)
    try:
        with closing(Client(f"127.0.0.1:{port}", net, "AdamW", lr=0.01)) as client:
            for step, end in enumerate([None, None, signal.SIGKILL, None, signal.SIGTERM, None]):
                optimizer.zero_grad()
                loss(alone, step).backward()
                optimizer.step()
                if end is not None:  # after an even number of steps, of which the last is written
                    running.send_signal(end)
                    assert running.wait(LIMIT) == (0 if end == signal.SIGTERM else -end)
                    running.stdout.close()  # type: ignore[union-attr]
                    running = started(port, tmp_path)
                assert client.pull() == step
                loss(net, step).backward()
                assert client.push()
            client.pull()
        assert np.array_equal(elements(net), elements(alone))
    finally:
        running.kill()
        running.wait()
        running.stdout.close()  # type: ignore[union-attr]


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    other = tmp_path / "other"
    dl.io.save_checkpoint(other, 1, {"model": {"x": np.ones(2)}})
    with pytest.raises(FileFormatError, match="is none of a parameter server"):
        ParameterServer("127.0.0.1:0", folder=other)
    x = dl.nn.Parameter(dl.zeros(2, device="cpu"))
    folder = tmp_path / "own"
    with ParameterServer("127.0.0.1:0", folder=folder, save_every=1) as server:
        with pytest.raises(FolderInUseError):
            ParameterServer("127.0.0.1:0", folder=folder)

        def full(*_: Any, **__: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with closing(Client(server.address, [("x", x)], lr=1.0)) as client:
            for version in (1, 2):
                with monkeypatch.context() as patch:
                    if version == 1:
                        patch.setattr(parameter_server, "save_checkpoint", full)
                    x.grad = dl.ones(2, device="cpu")
                    assert client.push()
                    assert client.pull() == version
    assert "No space left on device" in caplog.text
    assert dl.io.load_checkpoint(folder)["version"] == 2


def test_clients_that_do_not_fit(server: ParameterServer) -> None:
    with closing(Client(server.address, network(), lr=0.1)):
        pass
    wider = dl.nn.Sequential(dl.nn.Linear(5, 8), dl.nn.Tanh(), dl.nn.Linear(8, 3), dl.nn.Linear(3, 2))
    fewer = [("0.weight", dl.nn.Parameter(dl.zeros(7, 5)))]
    refused: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (DistError, "where this client has 0.weight", lambda: Client(server.address, wider, lr=0.1)),
        (
            DistError,
            "keeps 6 parameters, where this client has 1",
            lambda: Client(server.address, fewer, lr=0.1),
        ),
        (
            DistError,
            "has options {'lr': 0.1}, this client {'lr': 0.2}",
            lambda: Client(server.address, network(), lr=0.2),
        ),
        (DistError, "has optimizer 'SGD'", lambda: Client(server.address, network(), "Adam", lr=0.1)),
        (
            ArgumentError,
            "staleness must be at least 0",
            lambda: Client(server.address, network(), staleness=-1),
        ),
        (ArgumentError, "addresses of different servers", lambda: Client([], network(), lr=0.1)),
        (ArgumentError, "got 0 parameters", lambda: Client(server.address, [], lr=0.1)),
        (ArgumentError, "pairs of names and tensors", lambda: Client(server.address, [dl.ones(1)], lr=0.1)),
    ]
    for kind, message, call in refused:
        with pytest.raises(kind) as error:
            call()
        assert message in str(error.value)
    with pytest.raises(DistNetworkError, match=r"does not answer within 0.3 seconds"):
        Client(f"127.0.0.1:{free_port()}", network(), timeout=0.3, lr=0.1)


def test_optimizers_that_are_none(server: ParameterServer) -> None:
    with pytest.raises(ArgumentError, match="expected an optimizer of"):
        Client(server.address, network(), "Gradient", lr=0.1)
    with pytest.raises(ArgumentError, match="lr"):
        Client(server.address, network(), "SGD", lr=-1.0)
    with pytest.raises(ArgumentError, match="expected numbers, texts and lists of them as options"):
        Client(server.address, network(), "SGD", lr=np.float32(0.1))
    with pytest.raises(ArgumentError, match="unexpected keyword"):
        Client(server.address, network(), "SGD", lr=0.1, speed=3)
    with closing(Client(server.address, network(), "SGD", lr=0.1)) as client:  # nothing of theirs is kept
        assert client.pull() == 0


def test_a_server_without_its_parameters(server: ParameterServer) -> None:
    with closing(Client(server.address, network(), lr=0.1)) as client:
        server._kept = None
        with pytest.raises(DistError, match="was started anew, without a folder"):
            client.pull()
    small = ParameterServer("127.0.0.1:0", limit=100)
    with small, pytest.raises(ArgumentError, match="are more than the 100 allowed"):
        Client(small.address, network(), lr=0.1)
    with pytest.raises(OSError, match="cannot listen at"):
        ParameterServer(server.address)


def test_hostile_messages(server: ParameterServer) -> None:
    """A server answers each with an error, allocates nothing for it, and goes on."""
    x = dl.nn.Parameter(dl.zeros(4, device="cpu"))
    client = Client(server.address, [("x", x)], lr=1.0)
    four = bytes(16)
    push: dict[str, Any] = {"version": 0, "parameters": [0], "client": "c", "number": 1}
    create: dict[str, Any] = {
        "parameters": [["y", "float32", [4]]],
        "optimizer": "SGD",
        "options": {},
        "staleness": None,
    }
    bodies: list[tuple[str, list[Any]]] = [
        *(
            (method, body)
            for method in METHODS
            for body in ([], [b""], [b"\xff\xfe"], [b"[1]"], [b"1" * 5000], [b"[" * 50000])
        ),
        ("push", [push]),
        ("push", [push, four, b"1"]),
        ("push", [push, four[:15]]),
        *(
            ("push", [push | {"parameters": numbers}, four])
            for numbers in ([1], [-1], [0, 0], ["0"], [2**62], None)
        ),
        *(
            ("push", [push | {name: value}, four])
            for name in ("version", "number")
            for value in (-1, None, "1", 1.5)
        ),
        *(
            ("create", [create | {"parameters": [["y", dtype, shape]]}, four])
            for dtype, shape in (
                ("float32", [2**62]),
                ("float32", [2**31, 2**31]),
                ("float32", [-4]),
                ("float32", [4.0]),
                ("float32", [True]),
                ("float32", "4"),
                ("object", [4]),
                (None, [4]),
            )
        ),
        ("create", [{**create, "parameters": []}]),
        ("create", [{**create, "parameters": [["y", "float32", [2]]] * 2}, four]),
        ("create", [{**create, "options": 3}, four]),
        ("create", [{**create, "staleness": "none"}, four]),
        ("pull", [{}]),
    ]
    with grpc.insecure_channel(server.address, OPTIONS) as channel:
        for method, body in bodies:
            sent = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in body]
            with pytest.raises(grpc.RpcError) as error:
                called(channel, method, sent)
            assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT, (method, body)
        with pytest.raises(grpc.RpcError) as error:
            called(channel, "everything", [b"{}"])
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as error:
        called(channel, "describe", [b" " * (PIECE + 1)])
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    x.grad = dl.ones(4, device="cpu")
    assert client.push()
    assert client.pull() == 1
    assert x.tolist() == [-1] * 4
    client.close()
