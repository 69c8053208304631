"""The proxies of ``deploy/`` in front of two servers: one that stops or is killed loses no request."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.servers import VERSIONED, Load, Process, ask, wait_until, write_model

pytestmark = [pytest.mark.usefixtures("deadline"), pytest.mark.slow]
CLIENTS_AT_ONCE = 3
DEPLOY = Path(__file__).parents[2] / "deploy"
PROXIES = {
    "haproxy": ("haproxy.cfg", ["-f"]),
    "nginx": ("nginx.conf", ["-g", "daemon off; pid nginx.pid;", "-c"]),
}


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [made.getsockname()[1] for made in sockets]
    for made in sockets:
        made.close()
    return ports


class Cluster:
    """Two servers behind a proxy."""

    def __init__(self, folder: Path, proxy: str) -> None:
        self.repository = folder / "models"
        write_model(self.repository, "m", 1, VERSIONED.format(version=1))
        self.ports = [free_ports(2), free_ports(2)]
        self.front = dict(zip(("http", "grpc"), free_ports(2), strict=True))
        file, options = PROXIES[proxy]
        text = (DEPLOY / file).read_text()
        for number, (http, grpc) in enumerate(self.ports, 1):
            text = text.replace(f"dl4all-{number}:8000", f"127.0.0.1:{http}")
            text = text.replace(f"dl4all-{number}:8001", f"127.0.0.1:{grpc}")
        # HAProxy asks a server of gRPC over the port of HTTP whether it is ready
        checks = iter([http for http, _ in self.ports])
        text = re.sub(r"check port 8000", lambda _: f"check port {next(checks)}", text)
        for line, own in (
            ("bind :8080", "http"),
            ("bind :8081", "grpc"),
            ("listen 8080", "http"),
            ("listen 8081", "grpc"),
        ):
            text = text.replace(line, f"{line.split()[0]} 127.0.0.1:{self.front[own]}")
        configuration = folder / file
        configuration.write_text(text)
        # nginx gives no call that a server had begun with, or refuses as it ends, to the other one
        self.lost_of_grpc = 2 * CLIENTS_AT_ONCE if proxy == "nginx" else 0
        self.servers: list[Process] = [self.server(number) for number in range(2)]
        path = shutil.which(proxy)
        assert path is not None
        self.proxy = subprocess.Popen(
            [path, *(["-p", f"{folder}/"] if proxy == "nginx" else []), *options, str(configuration)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )

    def server(self, number: int) -> Process:
        http, grpc = self.ports[number]
        return Process(self.repository, f"--http-port={http}", f"--grpc-port={grpc}")

    def url(self, protocol: str) -> str:
        return f"127.0.0.1:{self.front[protocol]}"

    def end(self) -> None:
        self.proxy.terminate()
        self.proxy.wait(30)
        for server in self.servers:
            server.__exit__()


@pytest.fixture(params=PROXIES)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    made = Cluster(tmp_path, request.param)
    try:
        wait_until(lambda: answers(made))
        yield made
    finally:
        made.end()


def answers(cluster: Cluster) -> bool:
    try:
        return ask(cluster.url("http"), "GET", "/v2/health/ready").status == 200
    except OSError:
        return False


def test_servers_that_stop_or_die_lose_no_request(cluster: Cluster) -> None:
    loads = [Load(protocol, cluster.url(protocol), CLIENTS_AT_ONCE) for protocol in ("http", "grpc")]

    def go_on(count: int = 100) -> None:
        before = [len(load.answers) for load in loads]
        wait_until(
            lambda: all(len(load.answers) > had + count for load, had in zip(loads, before, strict=True))
        )

    go_on()
    cluster.servers[0].popen.send_signal(signal.SIGTERM)
    assert cluster.servers[0].ended() == ""
    assert cluster.servers[0].popen.returncode == 0
    go_on()
    cluster.servers[0] = cluster.server(0)
    time.sleep(2.5)  # both proxies have found out that it is back
    go_on()
    cluster.servers[1].popen.kill()
    go_on(300)
    for load in loads:
        load.end()
    http, grpc = (len(load.errors) for load in loads)
    assert (http, grpc) <= (0, cluster.lost_of_grpc), [*map(str, loads[0].errors + loads[1].errors)]
    for load in loads:
        assert {number for _, number in load.answers} == {1.0}


def test_clients_go_round_servers_by_themselves(tmp_path: Path) -> None:
    """gRPC's own round robin, as the guide has it: no proxy, and a server that is killed loses no request."""
    write_model(tmp_path, "m", 1, VERSIONED.format(version=1))
    with Process(tmp_path) as first, Process(tmp_path) as second:
        addresses = ",".join(server.urls["grpc"] for server in (first, second))
        options = [
            ("grpc.lb_policy_name", "round_robin"),
            (
                "grpc.service_config",
                '{"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [{"name": [{}], '
                '"retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.05s", "maxBackoff": "1s", '
                '"backoffMultiplier": 2, '
                '"retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]}}]}',
            ),
        ]
        load = Load("grpc", f"ipv4:{addresses}", channel_args=options)
        wait_until(lambda: len(load.answers) > 100)
        counts = [
            ask(s.urls["http"], "GET", "/v2/models/m/stats").json["model_stats"][0] for s in (first, second)
        ]
        assert min(count["inference_count"] for count in counts) > 20
        first.popen.kill()
        had = len(load.answers)
        wait_until(lambda: len(load.answers) > had + 200)
        load.end()
        assert [*map(str, load.errors)] == []
