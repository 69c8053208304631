"""Requests a second and latencies of ``dl4all serve``, with batches and without, over HTTP and gRPC.

    python benchmarks/serving.py [--device cpu] [--threads 16] [--seconds 4] [--rounds 3] [--json FILE]
                                 [--peer HTTP_PORT:GRPC_PORT]

One server has the same perceptron, 64-2048-2048-2048-10, twice: with batches of up to 32 rows and with
batches of one. The clients are threads of tritonclient (``pip install 'tritonclient[http,grpc]'``) in this
process, so they take their part of the cores. The cases take turns, and the median of the rounds counts:

    many    all threads at once: requests a second
    lone    one client: the median of its latencies, models in turn
    rows    one client that sends 32 rows at once, in turn with one row: the same

``--peer`` asks another server in turn, one of the same models under the same names.

``--overload`` sends four times what a model can answer instead, for ``--seconds``, over gRPC: a model whose
batches of 4 rows take 20 ms, behind a queue of 64 rows. It prints how many requests were accepted and
refused, the 99th percentile of the accepted ones beside the time that a full queue takes, the growth of the
server's memory, and the latency of a lone client one second later.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.utils

FEATURES, ROWS = 64, 32
MODELS = {"batched": ROWS, "single": 1}  # and their largest batches
TURNS = {
    "lone": {"batched": ("batched", 1), "single": ("single", 1)},
    "rows": {"one": ("batched", 1), "many": ("batched", ROWS)},
}
CONFIG = """max_batch_size = {most}
[[inputs]]
name = "x"
datatype = "FP32"
shape = [-1, 64]
[[outputs]]
name = "y"
datatype = "FP32"
shape = [-1, 10]
"""
MODEL = """import dl4all as dl
def load():
    dl.manual_seed(0)
    return dl.models.MLP(64, [2048, 2048, 2048], 10)
"""
PROTOCOLS: dict[str, ModuleType] = {"http": tritonclient.http, "grpc": tritonclient.grpc}


SLOW = """import time
import dl4all as dl
class Slow(dl.nn.Module):
    def forward(self, x):
        time.sleep(0.02)
        return x[:, :10] + 0
def load():
    return Slow()
"""
SLOW_ROWS, SLOW_SECONDS, SLOW_QUEUE = 4, 0.02, 64


def write_repository(folder: Path) -> None:
    """The perceptron with and without batches, and the slow model."""
    (folder / "slow" / "1").mkdir(parents=True)
    (folder / "slow" / "config.toml").write_text(
        f"max_queue_size = {SLOW_QUEUE}\n" + CONFIG.format(most=SLOW_ROWS)
    )
    (folder / "slow" / "1" / "model.py").write_text(SLOW)
    for name, most in MODELS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.toml").write_text(CONFIG.format(most=most))
        (folder / name / "1" / "model.py").write_text(MODEL)


@contextlib.contextmanager
def serving(folder: Path, device: str) -> Iterator[tuple[dict[str, str], psutil.Process]]:
    """A server of a repository: where it listens, by protocol, and its process."""
    command = [sys.executable, "-m", "dl4all", "serve", str(folder), "--http-port=0", "--grpc-port=0"]
    server = subprocess.Popen([*command, "--device", device], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        words = server.stdout.readline().split()
        yield {url.split("://")[0]: url.split("://")[1] for url in words[1:]}, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(60)


class Client:
    """A client with a request that it sends again and again."""

    def __init__(self, protocol: str, url: str, model: str, rows: int) -> None:
        module = PROTOCOLS[protocol]
        self.client = module.InferenceServerClient(url)
        x = np.random.default_rng(rows).standard_normal((rows, FEATURES)).astype(np.float32)
        self.input = module.InferInput("x", [*x.shape], "FP32")
        self.input.set_data_from_numpy(x)
        self.model = model

    def ask(self) -> Any:
        return self.client.infer(self.model, [self.input])


def rate(protocol: str, url: str, model: str, threads: int, seconds: float) -> float:
    """Requests a second of many clients."""
    counts = [0] * threads
    begin = threading.Barrier(threads + 1)
    until = [0.0]

    def work(number: int) -> None:
        client = Client(protocol, url, model, 1)
        client.ask()
        begin.wait()
        while time.perf_counter() < until[0]:
            client.ask()
            counts[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    until[0] = time.perf_counter() + seconds + 1.0  # until all are here; set anew just before
    while begin.n_waiting < threads:
        time.sleep(0.01)
    begun = time.perf_counter()
    until[0] = begun + seconds
    begin.wait()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - begun)


def latencies(protocol: str, url: str, cases: Sequence[tuple[str, int]], count: int) -> list[float]:
    """The medians of a lone client's latencies, in milliseconds: models and their rows are asked in turn."""
    clients = [Client(protocol, url, model, rows) for model, rows in cases]
    taken: list[list[float]] = [[] for _ in clients]
    for _ in range(count + 10):
        for client, times in zip(clients, taken, strict=True):
            begun = time.perf_counter()
            client.ask()
            times.append(time.perf_counter() - begun)
    return [statistics.median(times[10:]) * 1e3 for times in taken]


async def overload(url: str, server: psutil.Process, seconds: float) -> dict[str, float]:
    """Send four times as many requests as a model can answer; returns the counts and times."""
    capacity = SLOW_ROWS / SLOW_SECONDS
    client = tritonclient.grpc.aio.InferenceServerClient(url)
    x = tritonclient.grpc.InferInput("x", [1, FEATURES], "FP32")
    numbers = np.random.default_rng(0).standard_normal((1, FEATURES)).astype(np.float32)
    x.set_data_from_numpy(numbers)
    accepted: list[float] = []
    codes: Counter[str] = Counter()
    memory: list[int] = []

    async def ask() -> None:
        begun = time.perf_counter()
        try:
            answer = await client.infer("slow", [x])
        except tritonclient.utils.InferenceServerException as error:
            codes[str(error.status())] += 1
            return
        accepted.append(time.perf_counter() - begun)
        codes["right" if np.array_equal(answer.as_numpy("y"), numbers[:, :10]) else "wrong"] += 1

    tasks: list[asyncio.Task[None]] = []
    begun = time.perf_counter()
    while (passed := time.perf_counter() - begun) < seconds:
        while len(tasks) < 4 * capacity * passed:
            tasks.append(asyncio.create_task(ask()))
        memory.append(server.memory_info().rss)
        await asyncio.sleep(0.005)
    await asyncio.gather(*tasks)
    await asyncio.sleep(1.0)
    found = {
        "requests a second": len(tasks) / seconds,
        **{f"answers: {name}": float(n) for name, n in codes.items()},
    }
    found["accepted, p99 in ms"] = float(np.percentile(accepted, 99)) * 1e3
    found["a full queue and 100 ms, in ms"] = SLOW_QUEUE / capacity * 1e3 + 100
    quarter = len(memory) // 4
    found["memory, last quarter less the second, in MB"] = (
        float(np.median(memory[-quarter:]) - np.median(memory[quarter : 2 * quarter])) / 1e6
    )
    await client.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", metavar="HTTP:GRPC", help="ports of another server on this host")
    parser.add_argument("--overload", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        write_repository(Path(folder))
        with serving(Path(folder), options.device) as (urls, process):
            if options.overload:
                overloaded = asyncio.run(overload(urls["grpc"], process, options.seconds))
                (overloaded["a lone client a second later, in ms"],) = latencies(
                    "grpc", urls["grpc"], [("slow", 1)], 20
                )
                show(overloaded, options.json)
                return
            servers = {"": urls}
            if options.peer:
                ports = dict(zip(PROTOCOLS, options.peer.split(":"), strict=True))
                servers["peer "] = {protocol: f"127.0.0.1:{port}" for protocol, port in ports.items()}
            for _ in range(options.rounds):
                for prefix, own in servers.items():
                    for protocol, url in own.items():
                        key = f"{prefix}{protocol}"
                        for model in MODELS:
                            found[f"{key} many {model}"].append(
                                rate(protocol, url, model, options.threads, options.seconds)
                            )
                        for case, turns in TURNS.items():
                            medians = latencies(protocol, url, [*turns.values()], 200)
                            for name, median in zip(turns, medians, strict=True):
                                found[f"{key} {case} {name}"].append(median)
    result = {name: statistics.median(values) for name, values in found.items()}
    for prefix in servers:
        for protocol in PROTOCOLS:
            key = f"{prefix}{protocol}"
            result[f"{key}: many, batched to single"] = (
                result[f"{key} many batched"] / result[f"{key} many single"]
            )
            result[f"{key}: lone, batched to single"] = (
                result[f"{key} lone batched"] / result[f"{key} lone single"]
            )
            result[f"{key}: {ROWS} rows to one"] = result[f"{key} rows many"] / result[f"{key} rows one"]
            if prefix:
                result[f"{protocol}: many, to the peer"] = (
                    result[f"{protocol} many batched"] / result[f"{key} many batched"]
                )
    show(result, options.json)


def show(found: dict[str, float], file: Path | None) -> None:
    """Print numbers by name, and write them to a file."""
    for name, value in found.items():
        print(f"{name:45} {value:10.2f}")
    if file is not None:
        file.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
