"""Loading, replacing and unloading models under load, and the end of a server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import uvicorn

import dl4all as dl
from dl4all.errors import ConfigError
from dl4all.serving.protocol.http_connection import HttpConnection
from tests.serving.servers import (
    CLIENTS,
    VERSIONED,
    Load,
    Process,
    X,
    Y,
    ask,
    infer,
    numbers,
    serving,
    urls_of,
    wait_until,
    write_model,
)

pytestmark = pytest.mark.usefixtures("deadline")


def test_models_are_replaced_under_load(tmp_path: Path) -> None:
    write_model(tmp_path, "m", 1, VERSIONED.format(version=1))
    server = dl.serving.Server(
        tmp_path, http_port=0, grpc_port=0, devices=["cpu"], model_control_mode="explicit"
    )
    with server:
        loads = [Load(protocol, url, 2) for protocol, url in urls_of(server).items()]
        clients = {p: CLIENTS[p].InferenceServerClient(url) for p, url in urls_of(server).items()}
        for version in range(2, 22):
            write_model(tmp_path, "m", version, VERSIONED.format(version=version))
            clients["http" if version % 2 else "grpc"].load_model("m")
            count = len(loads[0].answers)
            wait_until(lambda count=count: len(loads[0].answers) > count + 2)  # type: ignore[misc]
            for protocol, url in urls_of(server).items():  # whoever asks from now on; others may be under way
                answer = infer(url, "m", protocol, {"x": numbers(1, 3)})
                assert answer.as_numpy("y")[0, 0] == float(version)
        for load in loads:
            load.end()
            assert not load.errors
            assert len(load.answers) > 20
            assert all(number == float(version) for version, number in load.answers)
        for client in clients.values():
            client.close()


def test_a_version_that_is_broken_leaves_the_one_that_serves(tmp_path: Path) -> None:
    write_model(tmp_path, "m", 1, VERSIONED.format(version=1))
    server = dl.serving.Server(
        tmp_path, http_port=0, grpc_port=0, devices=["cpu"], model_control_mode="explicit"
    )
    with server:
        write_model(tmp_path, "m", 2, "1 / 0")
        refused = ask(server.http_url, "POST", "/v2/repository/models/m/load")
        assert refused.status == 503
        assert "division by zero" in refused.json["error"]
        assert infer(server.http_url, "m", "http", {"x": numbers(1, 3)}).as_numpy("y")[0, 0] == 1.0
        entries = ask(server.http_url, "POST", "/v2/repository/index").json
        assert [(e["version"], e["state"]) for e in entries] == [("1", "READY"), ("2", "UNAVAILABLE")]
        ready = ask(server.http_url, "POST", "/v2/repository/index", b'{"ready": true}').json
        assert [e["version"] for e in ready] == ["1"]
        shutil.rmtree(tmp_path / "m" / "2")
        write_model(tmp_path, "m", 3, VERSIONED.format(version=3))
        rpc = CLIENTS["grpc"].InferenceServerClient(server.grpc_url)
        rpc.load_model("m")
        assert infer(server.grpc_url, "m", "grpc", {"x": numbers(1, 3)}).as_numpy("y")[0, 0] == 3.0
        assert len(ask(server.http_url, "POST", "/v2/repository/index").json) == 1
        rpc.unload_model("m")
        assert ask(server.http_url, "GET", "/v2/models/m/ready").status == 503
        assert ask(server.http_url, "GET", "/v2/health/ready").status == 503  # nothing is left
        assert ask(server.http_url, "POST", "/v2/models/m/infer", b"{}").status == 503
        assert ask(server.http_url, "POST", "/v2/repository/models/m/load").status == 200
        assert ask(server.http_url, "GET", "/v2/health/ready").status == 200
        for name in ("x", "..%2fx", "m%2f1"):
            assert ask(server.http_url, "POST", f"/v2/repository/models/{name}/load").status == 404
        with pytest.raises(Exception, match=r"has no model '\.\./m'"):
            rpc.load_model("../m")
        with pytest.raises(Exception, match="parameters are not supported"):
            rpc.load_model("m", config=json.dumps({"name": "m"}))
        rpc.close()


def test_a_model_that_is_replaced_answers_its_own(tmp_path: Path) -> None:
    """Requests under way when another version comes are answered by the one that took them."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(dl.nn.Module):
        def forward(self, x: dl.Tensor) -> dl.Tensor:
            if not bool((x == 1).all().item()):  # no example of the server
                begun.set()
                assert go_on.wait(30)
            return x

    with serving(Slow()) as server:
        found: list[Any] = []
        x = numbers(2, 3)
        asking = threading.Thread(
            target=lambda: found.append(infer(server.http_url, "m", "http", {"x": x})), daemon=True
        )
        asking.start()
        assert begun.wait(30)
        server.add("m", dl.nn.Softmax(dim=1), [X], [Y], version="2")
        newer = infer(server.http_url, "m", "http", {"x": x})
        assert newer.get_response()["model_version"] == "2"
        go_on.set()
        asking.join()
        assert found[0].get_response()["model_version"] == "1"
        np.testing.assert_array_equal(found[0].as_numpy("y"), x)


def test_added_models_are_checked() -> None:
    server = dl.serving.Server(http_port=0, grpc_port=0, devices=["cpu"])
    for name, version in (("../m", "1"), ("m", "one"), ("", "1")):
        with pytest.raises(ConfigError, match="expected a name"):
            server.add(name, dl.nn.ReLU(), [X], [Y], version=version)
    with pytest.raises(ConfigError, match="max_batch_size must be at least 1"):
        server.add("m", dl.nn.ReLU(), [X], [Y], max_batch_size=0)
    with pytest.raises(ConfigError, match="output 'y' of model 'm' is float32 of shape"):
        server.add("m", dl.nn.Linear(3, 2), [X], [Y])
    with pytest.raises(dl.Dl4allError, match="model_control_mode"):
        dl.serving.Server(model_control_mode="poll")  # type: ignore[arg-type]


def test_a_port_that_is_taken_is_an_error_and_leaves_no_thread() -> None:
    with serving(dl.nn.ReLU()) as server:
        port = int(server.http_url.split(":")[1])
        other = dl.serving.Server(http_port=port, grpc_port=0, devices=["cpu"])
        with pytest.raises(OSError, match="in use"):
            other.start()
        other.stop()
        assert "serving" not in [t.name for t in threading.enumerate() if t is other._thread]


def test_hosts_of_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    server = dl.serving.Server(host="::1", http_port=0, grpc_port=0, devices=["cpu"])
    server.add("m", dl.nn.Identity(), [X], [Y])
    with server:
        for protocol, url in urls_of(server).items():
            assert url.startswith("[::1]:")
            x = numbers(1, 3)
            np.testing.assert_array_equal(infer(url, "m", protocol, {"x": x}).as_numpy("y"), x)


def test_a_server_can_be_started_again() -> None:
    server = dl.serving.Server(http_port=0, grpc_port=0, devices=["cpu"])
    for _ in range(2):
        server.add("m", dl.nn.Identity(), [X], [Y])
        with server:
            x = numbers(1, 3)
            np.testing.assert_array_equal(infer(server.http_url, "m", "http", {"x": x}).as_numpy("y"), x)


SLOW = VERSIONED.format(version=1).replace(
    "return x * 0", "__import__('time').sleep(0.05)\n        return x * 0"
)


def _rows_that_came(process: Process) -> float:
    """The number of rows that wait, or have been computed."""
    lines = ask(process.urls["http"], "GET", "/metrics").body.decode().splitlines()
    names = ("dl4all_inference_queue_rows{", "dl4all_inference_batch_size_sum{")
    return sum(float(line.split()[-1]) for line in lines if line.startswith(names))


def test_sigterm_answers_what_is_under_way(tmp_path: Path) -> None:
    write_model(tmp_path, "m", 1, SLOW, settings="max_batch_size = 1")
    with Process(tmp_path) as process:
        found: dict[str, list[Any]] = {"http": [], "grpc": []}

        def ask_once(protocol: str) -> None:
            try:
                found[protocol].append(infer(process.urls[protocol], "m", protocol, {"x": numbers(2, 3)}))
            except Exception as error:  # noqa: BLE001  # compared below
                found[protocol].append(error)

        threads = [threading.Thread(target=ask_once, args=(p,)) for p in ("http", "grpc") for _ in range(5)]
        for thread in threads:
            thread.start()
        wait_until(lambda: _rows_that_came(process) >= 2 * len(threads) - 1)  # one is being computed
        process.popen.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        errors = process.ended()
    assert process.popen.returncode == 0
    assert errors == ""
    for answers in found.values():
        assert [type(a).__name__ for a in answers] == ["InferResult"] * 5


REFUSES = """
import asyncio.unix_events

def refuse(*args):
    raise NotImplementedError

asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = refuse
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_where_event_loops_take_none(number: signal.Signals, tmp_path: Path) -> None:
    """As those of Windows."""
    write_model(tmp_path / "models", "m", 1, VERSIONED.format(version=1))
    (tmp_path / "sitecustomize.py").write_text(REFUSES)
    with Process(tmp_path / "models", PYTHONPATH=f"{tmp_path}{os.pathsep}{Path.cwd()}") as process:
        infer(process.urls["http"], "m", "http", {"x": numbers(1, 3)})
        process.popen.send_signal(number)
        assert process.ended() == ""
    assert process.popen.returncode == 0


def test_not_ready_at_once_and_answering_for_a_while(tmp_path: Path) -> None:
    """Proxies hear that it will end before it listens no more; a second signal does not wait for them."""
    write_model(tmp_path, "m", 1, VERSIONED.format(version=1))
    with Process(tmp_path, "--drain-seconds=600") as process:
        url = process.urls["http"]
        assert ask(url, "GET", "/v2/health/ready").status == 200
        process.popen.send_signal(signal.SIGTERM)
        wait_until(lambda: ask(url, "GET", "/v2/health/ready").status == 503)
        rpc = CLIENTS["grpc"].InferenceServerClient(process.urls["grpc"])
        assert not rpc.is_server_ready()
        assert rpc.is_server_live()
        rpc.close()
        for protocol in CLIENTS:
            infer(process.urls[protocol], "m", protocol, {"x": numbers(1, 3)})
        process.popen.send_signal(signal.SIGTERM)
        assert process.ended() == ""
    assert process.popen.returncode == 0


def test_a_host_that_others_reach_is_warned_of(tmp_path: Path) -> None:
    write_model(tmp_path, "m", 1, VERSIONED.format(version=1))
    with Process(tmp_path, "--host=0.0.0.0") as process:
        process.popen.send_signal(signal.SIGINT)
        assert "without TLS and without a password" in process.ended()
    assert process.popen.returncode == 0
    command = [sys.executable, "-m", "dl4all", "serve", str(tmp_path / "none")]
    missing = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert missing.returncode == 2
    assert "does not exist" in missing.stderr


def test_without_the_extra_an_error_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from dl4all.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "pip install 'starlette>=" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("first", ["dl4all.serving.server", "tritonclient.grpc"])
def test_messages_of_clients_and_of_the_server_live_in_one_process(first: str) -> None:
    second = {"dl4all.serving.server", "tritonclient.grpc"} - {first}
    code = f"import {first}, {second.pop()}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("pause", [False, True])
def test_an_answer_leaves_in_one_piece(pause: bool) -> None:
    """A head without its body, from a server that is killed between, is more than a proxy can mend."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        if pause:
            await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": b"def"})

    async def written() -> list[bytes]:
        config = uvicorn.Config(answer, loop="none", lifespan="off", log_config=None)
        config.load()
        transport = mock.Mock(spec=asyncio.Transport)
        connection = HttpConnection(config, uvicorn.server.ServerState(), {})
        connection.connection_made(transport)
        connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(0.1)
        assert transport.close.call_count == 0
        connection.data_received(b"no request\r\n\r\n")  # is refused, and the connection closed
        assert transport.close.call_count == 1
        return [bytes(call.args[0]) for call in transport.write.call_args_list]

    first, second, refusal = asyncio.run(written())
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (first[-7:], second) == (b"\r\n\r\nabc", b"def")
    assert refusal.startswith(b"HTTP/1.1 400")
    assert refusal.endswith(b"received.")
