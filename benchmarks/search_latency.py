"""Predicted and measured time of networks of several spaces: the rank correlation.

python benchmarks/search_latency.py [--device cpu vulkan:0] [--networks 40]

Networks are drawn from the ready-made spaces in turn. The prediction is that of dl.search.costs with the
speeds that calibration measures once a device (`dl4all devices --calibrate`, as here); the measurement is the
median of 20 calls in each of three turns over all networks.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

from scipy.stats import kendalltau, spearmanr

import dl4all as dl
from dl4all.search import spaces

SPACES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (spaces.mlp(256, 10, width=(16, 1024)), (32, 256)),
    "nas_bench_201": (spaces.nas_bench_201(3, 10, width=8, cells=1), (4, 3, 32, 32)),
    "resnet": (spaces.resnet(3, 10), (4, 3, 32, 32)),
    "mobilenet": (spaces.mobilenet(3, 10), (2, 3, 32, 32)),
    "transformer": (spaces.transformer(16, 10), (4, 32, 16)),
}


def compare(device: str, count: int) -> None:
    dl.calibrate(device)
    models, inputs = [], []
    for number in range(count):
        net, shape = list(SPACES.values())[number % len(SPACES)]
        space = dl.search.Space(net)
        models.append(space.build(space.draw(number)).to(device))
        inputs.append(shape)
    pairs = list(zip(models, inputs, strict=True))
    predicted = [dl.search.costs(m, x, device=device)["milliseconds"] for m, x in pairs]
    turns = [[dl.search.latency(m, x, device=device) for m, x in pairs] for _ in range(3)]
    measured = [median(times) for times in zip(*turns, strict=True)]
    print(
        f"{device}: {count} networks, {min(measured):.2f} to {max(measured):.2f} ms; "
        f"Spearman's rho {spearmanr(predicted, measured).statistic:.3f}, "
        f"Kendall's tau {kendalltau(predicted, measured).statistic:.3f}"
    )
    for name in SPACES:
        rows = [n for n in range(count) if list(SPACES)[n % len(SPACES)] == name]
        ratio = median(predicted[n] / measured[n] for n in rows)
        rho = spearmanr([predicted[n] for n in rows], [measured[n] for n in rows]).statistic
        print(f"  {name:14} rho {rho:.2f}, predicted / measured {ratio:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", nargs="+", default=["cpu", "vulkan:0"])
    parser.add_argument("--networks", type=int, default=40)
    options = parser.parse_args()
    for name in options.device:
        compare(name, options.networks)
