"""Pipelines over processes beside one of as many devices: ``pipeline_program.py [--backend B] CASE ...``."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import numpy as np

import dl4all as dl
from dl4all.errors import ArgumentError, DistError, DistNetworkError, GradientError, ShapeError
from dl4all.ops.random.generator import default_generator
from tests.distributed.membership import joined, refused
from tests.distributed.programs import weights

STEPS = 4


def network() -> dl.nn.Sequential:
    """Layers that change their input, draw numbers, have statistics, and have nothing to learn."""
    dl.manual_seed(4)
    return dl.nn.Sequential(
        dl.nn.Conv2d(2, 4, 3, padding=1, bias=False),  # it would learn from rounding only
        dl.nn.BatchNorm2d(4),
        dl.nn.ELU(inplace=True),
        dl.nn.Dropout(0.3),
        dl.nn.Conv2d(4, 6, 3),
        dl.nn.Tanh(),
        dl.nn.Flatten(),
        dl.nn.Linear(216, 8),
        dl.nn.Dropout(0.2),
        dl.nn.Linear(8, 3),
    )


SPLITS = {2: ["4"], 3: ["1", "6"]}


def trained(group: Any, count: int, case: dict[str, Any], seed: int = 5) -> list[Any]:
    """The weights, losses, outputs and the state of the generator after some steps."""
    net = network()
    if seed != 5:  # only the first process's parameters count
        for parameter in net.parameters():
            parameter.detach().fill_(seed)
    piped = dl.pipeline(net, group, split=SPLITS[count], **case)
    optimizer = dl.optim.Adam(net.parameters(), lr=0.01)
    dl.manual_seed(seed)
    losses = []
    for step in range(STEPS):
        numbers = np.random.default_rng(step)
        x = dl.tensor(numbers.standard_normal((11, 2, 8, 8)).astype(np.float32), device="cpu")
        y = dl.tensor(numbers.integers(0, 3, 11), device="cpu")
        optimizer.zero_grad()
        losses.append(piped.train_step(x, y, dl.nn.CrossEntropyLoss()).item())
        optimizer.step()
    piped.eval()
    with dl.no_grad():
        outputs = piped(x)
    if hasattr(piped, "synchronize"):
        piped.synchronize()
    return [weights(net), losses, outputs.numpy(), default_generator().get_state()]


def compared(args: list[str]) -> None:
    """Each case is as a pipeline of one process has it."""
    rank, count, cases = joined(args)
    group = dl.distributed.new_group()
    for text in cases:
        case = json.loads(text)
        devices = case.pop("devices", ["cpu"] * count)
        found = trained(group, count, {**case, "device": devices[rank]}, seed=5 if rank == 0 else 9)
        with dl.DeviceGroup([f"cpu#{n}" if n else "cpu" for n in range(count)]) as devices_here:
            expected = trained(devices_here, count, case)
        exact = devices == ["cpu"] * count
        for ours, theirs in zip(found, expected, strict=True):
            if exact:
                assert np.array_equal(ours, theirs), (case, ours, theirs)
            else:
                assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-5), case
    refusals(rank, count, group)
    dl.distributed.destroy_process_group()
    print("complete")


def refusals(rank: int, count: int, group: Any) -> None:
    net = network()
    piped = dl.pipeline(net, group, split=SPLITS[count])
    x, y = dl.randn(8, 2, 8, 8, device="cpu"), dl.zeros(8, dtype=dl.int64, device="cpu")
    shared = dl.nn.Sequential(*(dl.nn.Linear(4, 4) for _ in range(3)))
    shared[2].weight = shared[0].weight
    wide = dl.nn.Sequential(*(dl.nn.Linear(4, 4 + rank) for _ in range(3)))
    split = ["1", "2"][-(count - 1) :]
    loss = dl.nn.CrossEntropyLoss()
    for kind, text, call in (
        (GradientError, "use train_step", lambda: piped(x)),
        (ShapeError, "as many targets", lambda: piped.train_step(x, y[:4], loss)),
        (DistError, "at different calls", lambda: piped.train_step(x[rank:], y[rank:], loss)),
        (ArgumentError, "need as many stages", lambda: dl.pipeline(net, group, split=["0"])),
        (ArgumentError, "a parameter of several stages", lambda: dl.pipeline(shared, group, split=split)),
        (DistError, "have different modules", lambda: dl.pipeline(wide, group, split=split)),
    ):
        refused("pipeline", kind, text, call)
    assert all(parameter.grad is None for parameter in net.parameters())  # nothing of what failed
    assert piped.train_step(x, y, loss).item() > 0


def dies() -> None:
    """The last process ends in the middle of a step."""
    rank, count, _ = joined([])

    class Ending(dl.nn.Module):
        def forward(self, x: dl.Tensor) -> dl.Tensor:
            if rank == count - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return x

    net = dl.nn.Sequential(dl.nn.Linear(4, 4), dl.nn.Linear(4, 4), Ending(), dl.nn.Linear(4, 2))
    group = dl.distributed.new_group()
    assert group is not None
    piped = dl.pipeline(net, group, split=["2"])
    try:
        piped.train_step(dl.ones(8, 4, device="cpu"), dl.ones(8, 2, device="cpu"), dl.nn.MSELoss())
    except DistNetworkError as error:
        assert all(parameter.grad is None for parameter in net.parameters())
        print("network:", error)


if __name__ == "__main__":
    dies() if sys.argv[1:] == ["dies"] else compared(sys.argv[1:])
