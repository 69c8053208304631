"""What memory costs: time for each allocate and free, and how much more is reserved than is needed.

    python benchmarks/allocator.py [--device NAME] [--json]

``pair_us`` is the time to make a storage and let it go again, as every op does for its result, with sizes
that come back. It stands beside a pair of calls of the driver (on the device) and beside the least that
Python can do: a dictionary of lists of free buffers, without locks, statistics or streams.

``fragmentation`` is the part of the reserved memory that the largest load of the trace does not need:
1 - peak / peak reserved. What is reserved is taken from the second half of a trace, when blocks have been put
together; the first half is told apart. It is the mean over all traces. There are two kinds, both of training
loops of several steps, with parameters, gradients and the optimizer's state: ``recorded`` ones are taken
from real training steps as the benchmark starts, see ``training_traces.py``; the others follow what other
libraries do, who keep more and unroll whole batches. Both of a network like ResNet-18 with a smaller batch
now and then, an LSTM over sequences of random lengths, and a transformer over sentences of random lengths.
"""

from __future__ import annotations

import json
import statistics
import sys
import timeit
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.training_traces import RECORDED, Step, null_device, record

SIZES = (256, 4096, 16_384, 100_000, 802_816, 3_211_264)  # bytes
FLOAT = 4
SEEDS = 3  # traces of each kind


class Trace:
    """Allocations and frees in order. Numbers of allocations count from 0."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._count = 0

    def take(self, *shape: int) -> int:
        """Memory for a tensor of floats."""
        self.steps.append(("allocate", FLOAT * int(np.prod(shape))))
        self._count += 1
        return self._count - 1

    def drop(self, *numbers: int) -> None:
        self.steps.extend(("free", number) for number in numbers)


class Layer(NamedTuple):
    """What an op's training takes: what is kept for the gradient, what only while it runs, and parameters."""

    kept: tuple[tuple[int, ...], ...]
    scratch: tuple[tuple[int, ...], ...] = ()
    parameters: tuple[tuple[int, ...], ...] = ()


def train(steps: Iterator[list[Layer]], parameters: list[tuple[int, ...]], states: int) -> Trace:
    """The memory of a training loop: forward, backward in reverse order, update in place."""
    trace = Trace()
    for shape in parameters:
        for _ in range(1 + states):
            trace.take(*shape)
    gradients: list[int] = []
    for layers in steps:
        batch = trace.take(*layers[0].kept[0])
        kept = []
        for layer in layers:
            scratch = [trace.take(*shape) for shape in layer.scratch]
            kept.append([trace.take(*shape) for shape in layer.kept])
            trace.drop(*scratch)
        fresh: list[int] = []
        flowing = trace.take(*layers[-1].kept[-1])
        for layer, held in zip(reversed(layers), reversed(kept), strict=True):
            scratch = [trace.take(*shape) for shape in layer.scratch]
            fresh += [trace.take(*shape) for shape in layer.parameters]
            incoming = trace.take(*layer.kept[0])
            trace.drop(*scratch, flowing, *held)
            flowing = incoming
        trace.drop(flowing, batch, *gradients)  # zero_grad of the loop before set these to None
        gradients = fresh
        for shape in parameters[:: max(1, len(parameters) // 8)]:  # temporaries of the update
            trace.drop(trace.take(*shape))
        trace.drop(*gradients)
        gradients = []
    return trace


def convolutional(random: np.random.Generator) -> Trace:
    """ResNet-18 at 112 x 112, every fifth batch smaller."""
    most = int(random.integers(6, 12))
    plan = [(64, 56)] + [(64, 28)] * 4 + [(128, 14)] * 4 + [(256, 7)] * 4 + [(512, 4)] * 4

    def layers(batch: int) -> list[Layer]:
        made, before = [], 3
        for channels, side in plan:
            shape = (batch, channels, side, side)
            inner = before * 9
            made.append(
                Layer((shape,), ((batch, inner, side, side),), ((channels, inner),))
            )  # convolution through unrolled columns
            made.append(Layer((shape, (2, channels)), (), ((channels,), (channels,))))  # normalisation
            made.append(Layer((shape,)))  # relu
            before = channels
        made.append(Layer(((batch, 1000),), (), ((1000, 512), (1000,))))
        return made

    parameters = [shape for layer in layers(1) for shape in layer.parameters]
    return train((layers(most if i % 5 else most // 3) for i in range(20)), parameters, states=1)


def recurrent(random: np.random.Generator) -> Trace:
    """An LSTM of 256 units over 5 to 120 words, batch 32."""
    batch, units = 32, 256

    def layers(length: int) -> list[Layer]:
        cell = Layer(((batch, 4 * units), (batch, units), (batch, units)), ((batch, 4 * units),))
        first = Layer(((batch, length, units),), (), ((4 * units, units), (4 * units, units), (4 * units,)))
        return [first, *[cell] * length, Layer(((batch, 10),), (), ((10, units), (10,)))]

    parameters = [shape for layer in layers(1) for shape in layer.parameters]
    return train((layers(int(n)) for n in random.integers(5, 121, 40)), parameters, states=2)


def attentive(random: np.random.Generator) -> Trace:
    """A transformer of 6 layers of 256 units and 8 heads over 16 to 128 words, batch 16."""
    batch, units, heads, words = 16, 256, 8, 4096

    def layers(length: int) -> list[Layer]:
        rows, scores = (batch, length, units), (batch, heads, length, length)
        square = ((units, units), (units,))
        block = [
            Layer((rows, (batch, length, 2)), (), ((units,), (units,))),
            *[Layer((rows,), (), square)] * 3,
            Layer((scores,), (scores,)),
            Layer((rows,)),
            Layer((rows,), (rows,), square),
            Layer((rows, (batch, length, 2)), (), ((units,), (units,))),
            Layer(((batch, length, 4 * units),), (), ((4 * units, units), (4 * units,))),
            Layer(((batch, length, 4 * units),)),
            Layer((rows,), (rows,), ((units, 4 * units), (units,))),
        ]
        return [
            Layer((rows,), (), ((words, units),)),
            *block * 6,
            Layer(((batch, length, words),), (), square),
        ]

    parameters = [shape for layer in layers(16) for shape in layer.parameters]
    return train((layers(int(n)) for n in random.integers(16, 129, 30)), parameters, states=2)


TRACES: dict[str, Callable[[np.random.Generator], Trace]] = {
    "convolutional": convolutional,
    "recurrent": recurrent,
    "transformer": attentive,
}


class Replayed(NamedTuple):
    """What a trace came to. Sizes in bytes."""

    fragmentation: float
    first_fragmentation: float  # of the first half
    peak: int
    peak_reserved: int
    steps: int
    driver_calls: int
    late_driver_calls: int  # in the second half of the trace


def replay(steps: list[Step]) -> Replayed:
    """Let a device's allocator follow a trace. The device has a discrete GPU's limits, and no memory."""
    backend, place = null_device()
    storages: list[Any] = []
    for i, (what, number) in enumerate(steps):
        if i == len(steps) // 2:
            first = place.pool.stats
            place.pool.reset_peak()
            half = place.pool.driver.asked
        if what == "allocate":
            storages.append(place.allocate(number))
        else:
            storages[number] = None
    stats = place.pool.stats
    peak = max(first.peak, stats.peak)
    found = Replayed(
        fragmentation=1 - peak / stats.peak_reserved,
        first_fragmentation=first.fragmentation,
        peak=peak,
        peak_reserved=stats.peak_reserved,
        steps=len(steps),
        driver_calls=place.pool.driver.asked,
        late_driver_calls=place.pool.driver.asked - half,
    )
    storages.clear()
    assert place.pool.stats.allocated == 0
    place.pool.trim()
    assert place.pool.stats.reserved == 0
    backend.close()
    return found


# Time


def best(work: Callable[[], object], number: int, repeat: int = 200) -> float:
    """The fastest of many short runs, in microseconds for each call: others use the machine too."""
    work()
    return min(timeit.repeat(work, number=number, repeat=repeat)) / number * 1e6


def pairs(place: dl.Device) -> dict[str, float]:
    """Microseconds for each allocate and free: ours, the driver's, a dictionary's."""
    free: defaultdict[int, list[Any]] = defaultdict(list)

    def ours() -> None:
        for size in SIZES:
            place.allocate(size)

    def dictionary() -> None:
        for size in SIZES:
            waiting = free[size]
            buffer = waiting.pop() if waiting else object()
            free[size].append(buffer)

    def driver() -> None:
        for size in SIZES:
            place._backend.allocate(size).free()

    for _ in range(3):  # the first ones come from the driver
        ours()
    return {
        "pair_us": best(ours, 200) / len(SIZES),
        "driver_pair_us": best(driver, 5, 20) / len(SIZES),
        "dictionary_pair_us": best(dictionary, 200) / len(SIZES),
    }


@click.command()
@click.option("--device", "name", default="vulkan:0", show_default=True, help="Whose allocator is timed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def benchmark(name: str, as_json: bool) -> None:
    """Time allocations on a device, record and replay the traces of training loops."""
    times = pairs(dl.device(name))
    replayed = {f"recorded {what}": replay(record(loop, 0)) for what, loop in RECORDED.items()}
    replayed |= {
        f"{what} {seed}": replay(make(np.random.default_rng(seed)).steps)
        for what, make in TRACES.items()
        for seed in range(SEEDS)
    }
    found = {
        **times,
        "driver_ratio": times["driver_pair_us"] / times["pair_us"],
        "dictionary_ratio": times["pair_us"] / times["dictionary_pair_us"],
        "fragmentation": statistics.mean(result.fragmentation for result in replayed.values()),
        "worst_fragmentation": max(result.fragmentation for result in replayed.values()),
        "traces": {what: result._asdict() for what, result in replayed.items()},
    }
    if as_json:
        print(json.dumps(found, indent=2))
        return
    table = Table("", "microseconds for a pair")
    for key, taken in times.items():
        table.add_row(key.removesuffix("pair_us").strip("_") or "dl4all", f"{taken:.2f}")
    Console().print(table)
    table = Table("trace", "peak, MB", "reserved, MB", "fragmentation", "driver calls", "in the second half")
    for what, result in replayed.items():
        sizes = (f"{result.peak / 1e6:.1f}", f"{result.peak_reserved / 1e6:.1f}")
        calls = (str(result.driver_calls), str(result.late_driver_calls))
        table.add_row(what, *sizes, f"{result.fragmentation:.1%}", *calls)
    Console().print(table)
    print(f"mean fragmentation {found['fragmentation']:.1%}, worst {found['worst_fragmentation']:.1%}")


if __name__ == "__main__":
    benchmark()
