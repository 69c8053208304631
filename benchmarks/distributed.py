"""Training by two processes over a link of 1 Gb/s: how much of the network's time hides behind the backward
pass.

    python benchmarks/distributed.py [--rate 1gbit] [--batch 128] [--runs 3] [--json FILE]

As root, two network namespaces stand for two hosts; otherwise both processes use loopback, which is no link
at all, and only the figures of one process mean something. A perceptron of 25 MB takes these steps in turn:

    compute     each process for itself
    after       the backward pass, then one all-reduce of all gradients
    ddp         dl.nn.parallel.DistributedDataParallel, whose buckets leave during the backward pass
    bf16        the same with PyTorch's bf16_compress_hook
    one         a process alone, without a group
    group       the same, within a group of one
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, LAYERS, STEPS, WARM = 1024, 6, 12, 3
MODES = ("compute", "after", "ddp", "bf16")
NAMES = ("dl4all-a", "dl4all-b")


def measure(mode: str, batch: int) -> float:
    """Milliseconds of a step, the median."""
    import dl4all as dl

    alone = mode in ("one", "group")
    if mode != "one":
        address, size, rank = ("tcp://127.0.0.1:29533", 1, 0) if alone else (None, -1, -1)
        dl.distributed.init_process_group(None, address, 120, size, rank)
    world = 1 if mode == "one" else dl.distributed.get_world_size()
    dl.manual_seed(3)
    layers = [m for _ in range(LAYERS) for m in (dl.nn.Linear(WIDTH, WIDTH), dl.nn.ReLU())]
    net = dl.nn.Sequential(*layers, dl.nn.Linear(WIDTH, 10)).to("cpu")
    model: Any = net
    if mode in ("ddp", "bf16", "group"):
        model = dl.nn.parallel.DistributedDataParallel(net)
    if mode == "bf16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        model.register_comm_hook(None, bf16_compress_hook)
    optimizer = dl.optim.SGD(net.parameters(), lr=0.01)
    numbers = np.random.default_rng(1)
    x = dl.from_numpy(numbers.standard_normal((batch, WIDTH)).astype(np.float32), "cpu")
    y = dl.from_numpy(numbers.integers(0, 10, batch), "cpu")
    times = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        optimizer.zero_grad()
        dl.nn.functional.cross_entropy(model(x), y).backward()
        if mode == "after":
            flat = dl.cat([p.grad.reshape(-1) for p in net.parameters()])
            dl.distributed.all_reduce(flat)
            offset = 0
            for p in net.parameters():
                p.grad = (flat[offset : offset + p.numel()] / world).reshape(p.shape)
                offset += p.numel()
        optimizer.step()
        times.append(time.perf_counter() - begun)
    if mode != "one":
        dl.distributed.destroy_process_group()
    return statistics.median(times[WARM:]) * 1e3


def wire() -> float:
    """Milliseconds in which the gradients of the perceptron go over the link."""
    import dl4all as dl

    dl.distributed.init_process_group(timeout=120)
    flat = dl.zeros(LAYERS * WIDTH * (WIDTH + 1) + WIDTH * 10 + 10, device="cpu")
    times = []
    for _ in range(6):
        begun = time.perf_counter()
        dl.distributed.all_reduce(flat)
        times.append(time.perf_counter() - begun)
    dl.distributed.destroy_process_group()
    return statistics.median(times[1:]) * 1e3


@contextlib.contextmanager
def hosts(rate: str) -> Iterator[list[list[str]]]:
    """The beginnings of the commands that run on two hosts, which end with the block."""
    if os.geteuid() or shutil.which("tc") is None:
        print("no root, or no tc: both processes use loopback", file=sys.stderr)
        yield [[], []]
        return

    def call(text: str) -> None:
        subprocess.run(text.split(), check=True)

    try:
        for name in NAMES:
            call(f"ip netns add {name}")
            call(f"ip -n {name} link set lo up")
        call(f"ip link add link0 netns {NAMES[0]} type veth peer name link0 netns {NAMES[1]}")
        for number, name in enumerate(NAMES):
            call(f"ip -n {name} addr add 10.77.0.{number + 1}/24 dev link0")
            call(f"ip -n {name} link set link0 up")
            call(f"tc -n {name} qdisc add dev link0 root tbf rate {rate} burst 256kb latency 50ms")
        yield [["ip", "netns", "exec", name] for name in NAMES]
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False)


def together(prefixes: list[list[str]], mode: str, batch: int) -> float:
    """The slower one's milliseconds."""
    real = bool(prefixes[0])
    running = []
    for rank, prefix in enumerate(prefixes):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "10.77.0.1" if real else "127.0.0.1",
            "MASTER_PORT": "29531",
            "OMP_NUM_THREADS": "1",
            **({"GLOO_SOCKET_IFNAME": "link0"} if real else {}),
        }
        command = [*prefix, sys.executable, __file__, "--mode", mode, "--batch", str(batch)]
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    return max(float(process.communicate(timeout=300)[0]) for process in running)


def by_itself(mode: str, batch: int) -> float:
    command = [sys.executable, __file__, "--mode", mode, "--batch", str(batch)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.mode:
        print(wire() if options.mode == "wire" else measure(options.mode, options.batch))
        return
    found: dict[str, list[float]] = {}
    with hosts(options.rate) as prefixes:
        for _ in range(options.runs):
            for mode in ("wire", *MODES):
                found.setdefault(mode, []).append(together(prefixes, mode, options.batch))
            for mode in ("one", "group"):
                found.setdefault(mode, []).append(by_itself(mode, options.batch))
    ms = {mode: statistics.median(values) for mode, values in found.items()}
    ratios: dict[str, Any] = {
        "ddp / after": ms["ddp"] / ms["after"],
        "ddp / max(compute, wire)": ms["ddp"] / max(ms["compute"], ms["wire"]),
        "bf16's wait / ddp's": (ms["bf16"] - ms["compute"]) / (ms["ddp"] - ms["compute"]),
        "group of one / one": ms["group"] / ms["one"],
    }
    for name, value in ms.items():
        print(f"{name:10}{value:8.1f} ms")
    for name, value in ratios.items():
        print(f"{name:26}{value:6.2f}")
    if options.json:
        options.json.write_text(json.dumps({"ms": ms, "ratios": ratios, "batch": options.batch}, indent=1))


if __name__ == "__main__":
    main()
