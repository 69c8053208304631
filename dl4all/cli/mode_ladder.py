"""The ways in which a network can run, measured beside each other: from the CPU's NumPy to op codes."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.graph.ir.graph import Graph
from dl4all.graph.op_codes.choice import SINGLE_OPS
from dl4all.graph.op_codes.interpreter import variant_for
from dl4all.graph.op_codes.translator import lower
from dl4all.graph.passes import pipeline
from dl4all.graph.run.compiled import Compiled, CompileWarning
from dl4all.graph.run.specialization import Optimize, optimized
from dl4all.training.config import MODELS

CLASSES, TAGS = 10, 5
WORDS, LENGTH = 96, 64  # of a text
PHOTOGRAPH = (3, 224, 224)
WARM_UP = 5  # calls: the first ones are traced, as the optimizer makes its state in one of them
SHOWN = 3  # ops that are named where there are no op codes for them

Call = Callable[[], Any]


@dataclass(frozen=True)
class LadderNetwork:
    """A network, and the shape of one sample of its input; where `kinds` is given, of so many words."""

    make: Callable[[], dl.nn.Module]
    sample: tuple[int, ...]
    kinds: int = 0

    def inputs(self, batch: int) -> Any:
        """The same numbers in each process."""
        rng = np.random.default_rng(0)
        shape = (batch, *self.sample)
        return rng.integers(self.kinds, size=shape) if self.kinds else rng.standard_normal(shape, np.float32)


NETWORKS = {
    "mlp": LadderNetwork(lambda: dl.models.MLP(784, [128], CLASSES), (784,)),
    "lenet": LadderNetwork(lambda: dl.models.LeNet(CLASSES), (1, 28, 28)),
    "gpt": LadderNetwork(lambda: dl.models.GPT(WORDS, LENGTH, 4, 4, 128), (LENGTH,), WORDS),
    "tagger": LadderNetwork(lambda: dl.models.LSTMTagger(WORDS, TAGS, 32, 32), (16,), WORDS),
    **{
        name: LadderNetwork(make, PHOTOGRAPH) for name, make in MODELS.items() if name not in ("mlp", "lenet")
    },
}


@dataclass(frozen=True)
class Rung:
    """The figures of one way; a number that cannot be had is None, and `reason` says why there is no time.

    `nbytes` is the most memory that weights, batch and a call need together.
    """

    name: str
    milliseconds: float | None = None
    dispatches: int | None = None
    submissions: int | None = None
    nbytes: int | None = None
    reason: str = ""


class NoInstructions(ArgumentError):
    """A graph has nodes for which there are no op codes."""


def measure_modes(model: str, device: dl.Device, batch: int, train: bool, repeat: int) -> list[Rung]:
    """Measure all ways, each in its turn in each of `repeat` rounds.

    Args:
        model: a name in `NETWORKS`.
        device: where all but the reference run.
        batch: samples.
        train: whether to take a training step (cross entropy, SGD with momentum), or to infer.
        repeat: rounds.

    Raises:
        OutOfMemoryError: the ways do not fit into the device's memory beside each other.
    """
    network = NETWORKS[model]
    calls: dict[str, tuple[dl.Device, Call]] = {}
    rungs: dict[str, Rung] = {}
    if not device.is_host:
        host = dl.device("cpu")
        calls["CPU reference"] = host, _call(network, host, batch, train)
        rungs["CPU reference"] = _counted("CPU reference", host, calls["CPU reference"][1], 0)
    before = _allocated(device)
    call = _call(network, device, batch, train)
    first = Rung("immediate, first call", _milliseconds(device, call))
    calls["immediate"] = device, call
    rungs["immediate"] = _counted("immediate", device, call, before)
    for name, optimize in _optimizations(device).items():
        before = _allocated(device)
        try:
            call, dispatches = _compiled_call(network, device, batch, train, optimize)
        except (NoInstructions, CompileWarning) as problem:
            rungs[name] = Rung(name, reason=str(problem))
            continue
        calls[name] = device, call
        rungs[name] = replace(_counted(name, device, call, before), dispatches=dispatches)
    if device.is_host:
        rungs["op codes"] = Rung("op codes", reason="there is no interpreter for them on the CPU")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeat):
        for name, (place, call) in calls.items():
            times[name].append(_milliseconds(place, call))
    found = [_timed(rung, times.get(rung.name, [])) for rung in rungs.values()]
    place_of_first = next(i for i, rung in enumerate(found) if rung.name == "immediate")
    return [*found[:place_of_first], first, *found[place_of_first:]]


def _optimizations(device: dl.Device) -> dict[str, Optimize]:
    """The optimizations of a traced graph before it is replayed, by way."""
    ways: dict[str, Optimize] = {"graph": lambda graph, device: graph, "compiled": optimized}
    return ways if device.is_host else {**ways, "op codes": _programs}


def _programs(graph: Graph, device: dl.Device) -> Graph:
    """The graph as programs.

    Raises:
        NoInstructions: it cannot be lowered as a whole.
    """
    left_out = set(pipeline.NAMES).difference(SINGLE_OPS)
    simpler = pipeline.run(graph, left_out)
    lowered = lower(simpler, variant_for(device.info))
    if lowered.reasons or not lowered.programs:
        names = list(dict.fromkeys(simpler.nodes[position].name for position in sorted(lowered.reasons)))
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        which = ", ".join(names[:SHOWN]) + more
        raise NoInstructions(f"no op codes for {which}" if which else "too few ops for a program")
    return lowered.graph


def _call(
    network: LadderNetwork,
    device: dl.Device,
    batch: int,
    train: bool,
    compiled: Callable[[Callable[..., Any]], Any] = lambda function: function,
) -> Call:
    """A call of a new network with the same weights and the same batch, which may be compiled."""
    dl.manual_seed(0)
    net = network.make().to(device).train(train)
    x = dl.from_numpy(network.inputs(batch), device)
    if not train:

        def infer(x: Any) -> Any:
            with dl.no_grad():
                return net(x)

        call = compiled(infer)
        return lambda: call(x)
    with dl.no_grad():
        shape = net(x).shape
    classes = np.random.default_rng(1).integers(shape[-1], size=math.prod(shape[:-1]))
    y = dl.from_numpy(classes, device)
    optimizer = dl.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = dl.nn.functional.cross_entropy(net(x).reshape(-1, shape[-1]), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    call = compiled(step)
    return lambda: call(x, y)


def _compiled_call(
    network: LadderNetwork, device: dl.Device, batch: int, train: bool, optimize: Optimize
) -> tuple[Call, int]:
    """A call that replays a graph, and how many dispatches that has, or functions of the CPU.

    Raises:
        CompileWarning: it runs uncompiled.
        NoInstructions
    """
    made: list[Compiled[..., Any]] = []
    problems: list[NoInstructions] = []

    def noted(graph: Graph, device: dl.Device) -> Graph:
        try:
            return optimize(graph, device)
        except NoInstructions as problem:
            problems.append(problem)
            raise

    def compiled(function: Callable[..., Any]) -> Any:
        made.append(Compiled(function, "default", noted))
        return made[0]

    call = _call(network, device, batch, train, compiled)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        try:
            for _ in range(WARM_UP):
                call()
        except CompileWarning:
            if problems:
                raise problems[0] from None
            raise
    [[found]] = made[0].specializations.values()
    return call, found.executable.dispatches


def _counted(name: str, device: dl.Device, call: Call, before: int) -> Rung:
    """The costs of a call apart from time, when caches are warm."""
    call()
    dl.synchronize(device)
    counters = device.counters
    submitted = _submitted(device)
    dispatches = counters.launches + counters.host_kernels
    dl.memory.reset_peak(device)
    kept = call()
    after = _submitted(device)
    del kept
    return Rung(
        name,
        dispatches=counters.launches + counters.host_kernels - dispatches,
        submissions=None if after is None or submitted is None else after - submitted,
        nbytes=dl.memory.stats(device).peak - before,
    )


def _submitted(device: dl.Device) -> int | None:
    """The number of submissions to the device, where its backend counts them."""
    value: int | None = getattr(device.record_event(), "value", None)
    return value


def _allocated(device: dl.Device) -> int:
    dl.synchronize(device)
    return dl.memory.stats(device).allocated


def _milliseconds(device: dl.Device, call: Call) -> float:
    start = time.perf_counter()
    call()
    dl.synchronize(device)
    return (time.perf_counter() - start) * 1e3


def _timed(rung: Rung, times: list[float]) -> Rung:
    if not times:
        return rung
    found = statistics.median(times)
    return replace(rung, milliseconds=found)
