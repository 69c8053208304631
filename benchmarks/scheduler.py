"""Several devices as one: on simulated devices, and on the same device opened twice.

    python benchmarks/scheduler.py --scaling
    python benchmarks/scheduler.py --real-concurrency [--json]

``--scaling`` trains ResNet-18 with 64 images of 224 x 224 on simulated devices, whose virtual time is the
same on every machine: how fast a group is beside the sum of its devices' speeds, and what was predicted.

``--real-concurrency`` trains on ``vulkan:0`` alone and on ``vulkan:0`` and ``vulkan:0#1``, in turn in one
process, each with one thread of llvmpipe's (``LP_NUM_THREADS=1``): ``speedup`` is how many times as fast two
are. It needs two idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
for variable in ("LP_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # before drivers and NumPy are loaded

import dl4all as dl  # noqa: E402
from dl4all.runtime.simulated import clock  # noqa: E402
from dl4all.scheduler.cost.simulation import simulated_device  # noqa: E402

IMAGES = 64  # of a batch on simulated devices
STEPS = 3  # of which the last is taken: the first ones send the parameters
ROUNDS = 5
GROUPS = ((1, 1), (1, 1, 1, 1), (1,) * 8, (4, 2, 1))
NETWORKS = ("cnn", "mlp", "resnet18")


def convolutional() -> dl.nn.Module:
    """Three blocks of convolution, batch normalization and pooling, for images of 32 x 32."""
    layers: list[dl.nn.Module] = []
    channels = 3
    for out in (32, 64, 128):
        layers += [dl.nn.Conv2d(channels, out, 3, padding=1), dl.nn.BatchNorm2d(out)]
        layers += [dl.nn.ReLU(), dl.nn.MaxPool2d(2)]
        channels = out
    return dl.nn.Sequential(*layers, dl.nn.Flatten(), dl.nn.Linear(128 * 16, 10))


def network(name: str) -> tuple[dl.nn.Module, tuple[int, ...]]:
    """A network and the shape of its batch."""
    dl.manual_seed(0)
    if name == "cnn":
        return convolutional(), (256, 3, 32, 32)
    if name == "mlp":
        return dl.models.MLP(784, [1024, 1024], 10), (2048, 784)
    return dl.models.resnet18(num_classes=10), (32, 3, 64, 64)


def trained(
    model: dl.nn.Module, devices: Sequence[Any], shape: tuple[int, ...], classes: int, *, sync: bool = True
) -> tuple[Callable[[], float], Any]:
    """A function that makes one training step on devices and returns the loss, and the network."""
    target = dl.device(devices[0])
    alone = len(devices) == 1
    net = model.to(target) if alone else dl.parallel(model, dl.DeviceGroup(devices), sync_batch_norm=sync)
    optimizer = dl.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = dl.zeros(*shape, device="cpu") if target.simulated is not None else dl.randn(*shape, device="cpu")
    y = dl.zeros(shape[0], dtype="int64", device="cpu").to(target)

    def step() -> float:
        loss = dl.nn.functional.cross_entropy(net(x.to(target) if alone else x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step, net


def virtual_seconds(factors: Sequence[float], gflops: float, link: float) -> tuple[float, Any]:
    """Virtual seconds of a step, and the plan where there are several devices."""
    devices = [
        simulated_device(
            gflops=gflops * factor,
            gb_per_s=100.0 * factor,
            link_gb_per_s=link,
            memory=1 << 40,
            computes=False,
        )
        for factor in factors
    ]
    model, shape = dl.models.resnet18(), (IMAGES, 3, 224, 224)
    step, net = trained(model, devices, shape, 1000)
    begun = clock.now()
    for _ in range(STEPS):
        begun = clock.now()
        step()
        devices[0].synchronize()
    seconds = clock.now() - begun
    plan = None if len(devices) == 1 else net.plan(dl.zeros(*shape, device="cpu"))
    return seconds, plan


def scaling() -> list[dict[str, Any]]:
    """A row for each group, speed and link."""
    rows = []
    for gflops in (100.0, 1000.0):
        for link in (10.0, 1.0):
            alone = {factor: virtual_seconds([factor], gflops, link)[0] for factor in (1, 2, 4)}
            for factors in GROUPS:
                seconds, plan = virtual_seconds(factors, gflops, link)
                ideal = 1 / sum(1 / alone[factor] for factor in factors)
                rows.append(
                    {
                        "gflops": gflops,
                        "link_gb_per_s": link,
                        "devices": ":".join(map(str, factors)),
                        "rows": list(plan.rows),
                        "seconds": seconds,
                        "of_the_sum_of_speeds": ideal / seconds,
                        "times_the_fastest_alone": min(alone[f] for f in factors) / seconds,
                        "predicted_over_simulated": plan.seconds / seconds,
                    }
                )
    return rows


def real_concurrency(name: str, *, sync: bool) -> dict[str, Any]:
    """Median seconds of a step on one device and on two, measured in turn."""
    model, shape = network(name)
    one, _ = trained(model, ["vulkan:0"], shape, 10)
    two, _ = trained(network(name)[0], ["vulkan:0", "vulkan:0#1"], shape, 10, sync=sync)
    for _ in range(2):  # compiles the kernels, and finds the split
        one()
        two()
    seconds: dict[str, list[float]] = {"one": [], "two": []}
    for _ in range(ROUNDS):
        for key, step in (("one", one), ("two", two)):
            begun = time.perf_counter()
            step()
            seconds[key].append(time.perf_counter() - begun)
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    return {"network": name, "batch": shape[0], **medians, "speedup": medians["one"] / medians["two"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--real-concurrency", action="store_true")
    parser.add_argument("--network", choices=NETWORKS, default="cnn", help="of --real-concurrency")
    parser.add_argument("--local-batch-norm", action="store_true", help="each device its own statistics")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.scaling and not options.real_concurrency:
        parser.error("say --scaling or --real-concurrency")
    result: dict[str, Any] = {}
    if options.scaling:
        result["scaling"] = scaling()
    if options.real_concurrency:
        result |= real_concurrency(options.network, sync=not options.local_batch_norm)
    if options.json:
        print(json.dumps(result))
        return
    for row in [*result.pop("scaling", []), *([result] if result else [])]:
        print("  ".join(f"{key} {round(v, 3) if isinstance(v, float) else v}" for key, v in row.items()))


if __name__ == "__main__":
    main()
