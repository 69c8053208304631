"""Computes with shapes that never come again, and looks for what grows with them. In a process of its own:
``pytest`` freezes what was collected, so that the garbage collector does not show it there."""

from __future__ import annotations

import collections
import functools
import gc
import json
import sys
from typing import Any

import numpy as np

import dl4all as dl
from dl4all.ops.core.kernels import autotune
from dl4all.scheduler.device import plan_table
from dl4all.scheduler.device.current import device

F = dl.nn.functional
CONTAINERS = (dict, set, list, collections.deque, collections.OrderedDict, collections.Counter)


def compute(name: str, seeded: np.random.Generator) -> None:
    """One step of everything whose kernels are chosen by sizes."""
    rows, inner, columns, height, width = (int(n) for n in seeded.integers(1, 200, 5))
    kernel, stride, pad = (int(n) for n in seeded.integers(1, 5, 3))
    x = dl.ones(rows, inner, device=name)
    (x @ dl.ones(inner, columns, device=name)).sum(0)
    F.linear(x, dl.ones(columns, inner, device=name)).relu().amax(1)
    dl.einsum("ij,kj->ik", x, x)
    image = dl.ones(1, 2, height + 4, width + 4, device=name)
    weight = dl.ones(3, 2, kernel, 1 + kernel // 2, device=name)
    F.conv2d(image, weight, stride=stride, padding=pad)
    F.max_pool2d(image, kernel, stride)
    F.softmax(image, 3).permute(0, 2, 3, 1).contiguous()
    dl.cat([x, x], 0)[1:].float().exp()


def sizes() -> dict[int, tuple[int, Any]]:
    """How many entries each container and each cache of this process has."""
    found: dict[int, tuple[int, Any]] = {}
    for each in gc.get_objects():
        if isinstance(each, CONTAINERS):
            found[id(each)] = len(each), each
        elif isinstance(each, functools._lru_cache_wrapper) and each.cache_info().maxsize is None:
            found[id(each)] = each.cache_info().currsize, each
    return found


def describe(thing: Any) -> str:
    entries = list(thing)[-3:] if isinstance(thing, CONTAINERS) else [thing]
    return f"{type(thing).__name__} with {str(entries)[:300]}"


def main(name: str, steps: int, most: int) -> None:
    """Print what has grown by more than half of the steps, and how large the tuner's tables are.

    With a bound of `most` classes and launch plans, which must be less than that.
    """
    autotune.MOST_CLASSES = plan_table.MOST_PLANS = plan_table.MOST_SEEN = most
    seeded = np.random.default_rng(9)
    for _ in range(20):
        compute(name, seeded)
    before = sizes()
    for _ in range(steps):
        compute(name, seeded)
    gc.collect()
    grown = [
        f"{count} entries: {describe(thing)}"
        for key, (count, thing) in sizes().items()
        if key != id(before) and count - before.get(key, (0, None))[0] > steps / 2
    ]
    state = device(name).tables.get("tuning")
    tables = [] if state is None else [len(state.chosen), len(state.unknown)]
    print(json.dumps({"grown": grown, "tables": tables}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
