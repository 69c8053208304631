"""More requests than a server can take, clients that leave, are slow or late, and devices that are lost."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import threading
import time
from collections import Counter
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
import tritonclient.grpc.aio
import tritonclient.utils
from grpc_health.v1 import health_pb2, health_pb2_grpc

import dl4all as dl
from dl4all.runtime.simulated.description import Failure
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.serving.served_model import ServedModel
from tests.serving.servers import CLIENTS, X, Y, ask, infer, numbers, serving, tensors, urls_of, wait_until

pytestmark = pytest.mark.usefixtures("deadline")
FULL = os.environ.get("DL4ALL_TEST_FULL") == "1"
BODY = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}]}
).encode()


class Gate:
    """All copies of a model have the same one."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.computed = 0
        self.seconds = 0.0


class Gated(dl.nn.Module):
    """Its input, once a gate is open; rows of ones, as the server's examples are, pass."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        if not bool((x == 1).all().item()):
            self.gate.computed += x.shape[0]
            time.sleep(self.gate.seconds)
            assert self.gate.open.wait(30)
        return x


def model_of(server: dl.serving.Server) -> ServedModel:
    return server._models.by_name["m"]


def waiting(server: dl.serving.Server) -> int:
    return len(model_of(server).queue)


def in_background(
    count: int, url: str, protocol: str, **options: Any
) -> tuple[list[Any], list[threading.Thread]]:
    """Requests of two rows in threads of their own, and what came of them."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(infer(url, "m", protocol, {"x": numbers(2, 3)}, **options).as_numpy("y"))
        except tritonclient.utils.InferenceServerException as error:
            found.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return found, threads


@pytest.mark.parametrize("protocol", CLIENTS)
def test_a_full_queue_refuses_at_once(protocol: str) -> None:
    model = Gated()
    with serving(model, max_batch_size=2, max_queue_size=4) as server:
        url = urls_of(server)[protocol]
        found, threads = in_background(3, url, protocol)
        wait_until(lambda: waiting(server) == 4)
        for _ in range(3):
            if protocol == "http":
                refused = ask(url, "POST", "/v2/models/m/infer", BODY)
                assert (refused.status, refused.headers["retry-after"]) == (503, "1")
                assert "no room" in refused.json["error"]
                continue
            with pytest.raises(tritonclient.utils.InferenceServerException, match="no room") as caught:
                infer(url, "m", protocol, {"x": numbers(2, 3)})
            assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        assert ask(server.http_url, "GET", "/v2/health/ready").status == 200  # full is no failure
        model.gate.open.set()
        for thread in threads:
            thread.join()
        for output in found:
            np.testing.assert_array_equal(output, numbers(2, 3))


@pytest.mark.parametrize("protocol", CLIENTS)
@pytest.mark.parametrize("whose", ["server", "client"])
def test_late_requests_leave_the_queue(protocol: str, whose: str) -> None:
    model = Gated()
    with serving(model, max_batch_size=2, timeout_seconds=0.2 if whose == "server" else 60) as server:
        url = urls_of(server)[protocol]
        options: dict[str, Any] = {"timeout": 200_000} if whose == "client" and protocol == "http" else {}
        if whose == "client" and protocol == "grpc":
            options = {"client_timeout": 0.2}
        found, threads = in_background(3, url, protocol, **options)
        for thread in threads:
            thread.join()  # though the gate is closed
        statuses = {"504", "StatusCode.DEADLINE_EXCEEDED"}
        assert [str(error.status()) in statuses for error in found] == [True] * 3
        wait_until(lambda: waiting(server) == 0)
        model.gate.open.set()
        np.testing.assert_array_equal(
            infer(url, "m", protocol, {"x": numbers(1, 3)}).as_numpy("y"), numbers(1, 3)
        )
    assert model.gate.computed <= 2 + 1  # the batch that had begun, and the last request


def test_clients_that_leave_take_their_rows_along() -> None:
    count = 1000 if FULL else 200
    model = Gated()
    with serving(model, max_batch_size=2, max_queue_size=2 * count) as server:
        host, port = server.http_url.split(":")
        head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
        connections = []
        for _ in range(count // 2):
            connections.append(socket.create_connection((host, int(port)), 30))
            connections[-1].sendall(head + BODY)
        client = CLIENTS["grpc"].InferenceServerClient(server.grpc_url)
        given = tensors(CLIENTS["grpc"], {"x": numbers(2, 3)})
        calls = [client.async_infer("m", given, lambda result, error: None) for _ in range(count // 2)]
        wait_until(lambda: waiting(server) == 2 * (count - 1))
        for connection in connections:
            connection.close()
        for call in calls:
            call.cancel()
        wait_until(lambda: waiting(server) == 0)
        client.close()
        model.gate.open.set()
        assert infer(server.http_url, "m", "http", {"x": numbers(1, 3)}).as_numpy("y").shape == (1, 3)
        text = ask(server.http_url, "GET", "/metrics").body.decode()
        assert 'code="499",model="m",protocol="http"' in text
        assert 'code="CANCELLED",model="m",protocol="grpc"' in text
        assert (
            ask(server.http_url, "GET", "/v2/models/m/stats").json["model_stats"][0]["inference_count"] <= 3
        )
    assert model.gate.computed <= 3


def test_slow_clients_hold_up_nobody() -> None:
    with serving(dl.nn.Identity()) as server:
        host, port = server.http_url.split(":")
        slow = [socket.create_connection((host, int(port)), 30) for _ in range(50)]
        for connection in slow:
            connection.sendall(
                b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{"
            )
        for _ in range(20):
            for connection in slow:
                connection.sendall(b" ")
            assert ask(server.http_url, "POST", "/v2/models/m/infer", BODY).status == 200
        for connection in slow:
            connection.close()


def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dl4all.serving.protocol.http_request.BODY_SECONDS", 0.2)
    with serving(dl.nn.Identity()) as server:
        host, port = server.http_url.split(":")
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(
                b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{"
            )
            assert connection.recv(1000).startswith(b"HTTP/1.1 408")


def test_overload_is_answered_right_or_refused() -> None:
    """Four times as many requests as the model can answer, for a while; then everything is as before."""
    model = Gated()
    model.gate.open.set()
    model.gate.seconds = 0.01
    with serving(model, max_batch_size=4, max_queue_size=16) as server:
        codes: Counter[str] = Counter()
        until = time.monotonic() + (10.0 if FULL else 2.0)
        memory = []

        async def work(number: int) -> None:
            x = np.full((2, 3), number + 2.0, np.float32)
            client = tritonclient.grpc.aio.InferenceServerClient(server.grpc_url)
            while time.monotonic() < until:
                try:
                    answer = await client.infer("m", tensors(CLIENTS["grpc"], {"x": x}))
                    np.testing.assert_array_equal(answer.as_numpy("y"), x)
                    codes["right"] += 1
                except tritonclient.utils.InferenceServerException as error:
                    codes["full" if error.status() == "StatusCode.RESOURCE_EXHAUSTED" else str(error)] += 1
                    await asyncio.sleep(0.005)
                memory.append(psutil.Process().memory_info().rss)
            await client.close()

        async def all_of_them() -> None:
            await asyncio.gather(*map(work, range(64)))

        asyncio.run(all_of_them())
        assert codes.keys() == {"right", "full"}
        assert codes["right"] > 50
        assert codes["full"] > codes["right"]
        assert waiting(server) == 0
        half = len(memory) // 2
        assert np.median(memory[half:]) - np.median(memory[: half // 4]) < 50 << 20
        for protocol, url in urls_of(server).items():
            infer(url, "m", protocol, {"x": numbers(2, 3)})
    gc.collect()


@pytest.mark.parametrize("protocol", CLIENTS)
def test_a_lost_device_loses_no_request(protocol: str) -> None:
    good, bad = "cpu", simulated_device(failures=[Failure("lost", "forward", after=6)])
    server = dl.serving.Server(http_port=0, grpc_port=0)
    spec = {"name": "x", "datatype": "FP32", "shape": [-1, 8]}
    network = dl.nn.Sequential(dl.nn.Linear(8, 8), dl.nn.ReLU())
    server._models.devices = [good, bad]  # type: ignore[list-item]
    server.add("m", network, [spec], [{**spec, "name": "y"}], max_batch_size=2)
    x = numbers(3, 8)
    expected = network.eval()(dl.from_numpy(x)).detach().numpy()
    with server:
        for _ in range(20):  # each is split into two batches, which both devices compute
            found = infer(urls_of(server)[protocol], "m", protocol, {"x": x}).as_numpy("y")
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert [*model_of(server).group.retired] == [bad]
        assert ask(server.http_url, "GET", "/v2/health/ready").status == 200
        model_of(server).group.retire(dl.device(good), "a test")
        assert ask(server.http_url, "GET", "/v2/health/ready").status == 503
        assert ask(server.http_url, "GET", "/v2/models/m/ready").status == 503
        body = {"inputs": [{**spec, "shape": [3, 8], "data": x.tolist()}]}
        refused = ask(server.http_url, "POST", "/v2/models/m/infer", json.dumps(body).encode())
        assert refused.status == 503
        assert "no device is left" in refused.json["error"]
        with pytest.raises(tritonclient.utils.InferenceServerException) as caught:
            infer(server.grpc_url, "m", "grpc", {"x": x})
        assert caught.value.status() == "StatusCode.UNAVAILABLE"
        (entry,) = ask(server.http_url, "POST", "/v2/repository/index").json
        assert entry["state"] == "UNAVAILABLE"
        assert "a test" in entry["reason"]


def test_a_model_s_own_mistakes_are_internal_errors_and_inputs_that_do_not_fit_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Picky(dl.nn.Module):
        def forward(self, x: dl.Tensor) -> dl.Tensor:
            if bool((x == 7).any().item()):
                raise ValueError("seven")
            return x.reshape(x.shape[0], 2, -1).sum(1)

    spec = {"name": "x", "datatype": "FP32", "shape": [-1, -1]}
    with serving(Picky(), [spec], [{**spec, "name": "y"}]) as server:

        def status(columns: int, value: float) -> tuple[int, str]:
            data = [value] * columns
            body = {"inputs": [{**spec, "shape": [1, columns], "data": data}]}
            answer = ask(server.http_url, "POST", "/v2/models/m/infer", json.dumps(body).encode())
            return answer.status, str(answer.json.get("error", ""))

        assert status(4, 1.0) == (200, "")
        assert status(3, 1.0)[0] == 400
        assert "[reshape]" in status(3, 1.0)[1]
        assert status(4, 7.0) == (500, "ValueError: seven")
    assert [record.message for record in caplog.records].count("a request failed") == 1


def test_health_of_grpc() -> None:
    with serving(dl.nn.Identity()) as server, grpc.insecure_channel(server.grpc_url) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        serving_status = health_pb2.HealthCheckResponse.SERVING
        for service in ("", "inference.GRPCInferenceService", "m"):
            assert stub.Check(health_pb2.HealthCheckRequest(service=service)).status == serving_status
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="n"))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        watched = stub.Watch(health_pb2.HealthCheckRequest(service="m"))
        assert next(watched).status == serving_status
        group = model_of(server).group
        group.retire(group.primary, "a test")
        assert next(watched).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watched.cancel()


def test_watchers_of_health_hear_of_the_end() -> None:
    server = dl.serving.Server(http_port=0, grpc_port=0, devices=["cpu"])
    server.add("m", dl.nn.Identity(), [X], [Y])
    with server, grpc.insecure_channel(server.grpc_url) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watched = stub.Watch(health_pb2.HealthCheckRequest())
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert [answer.status for answer in watched] == [health_pb2.HealthCheckResponse.NOT_SERVING]
        stopping.join()
