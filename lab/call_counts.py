"""Count the calls of Python functions that steady calls of the library take, in the calling thread.

python lab/call_counts.py [cpu vulkan:0 ...]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import dl4all as dl
from dl4all.nn import functional as F

LIBRARY = str(Path(dl.__file__).parent)
STEADY = 5  # calls after which nothing is new


def calls_of(function: Callable[[], Any]) -> Counter[str]:
    """The calls of the library's functions in a steady call, by file and name."""
    for _ in range(STEADY):
        function()
    counts: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(LIBRARY):
            counts[f"{code.co_filename}:{code.co_name}"] += 1

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return counts


def relu(device: str) -> Callable[[], Any]:
    x = dl.rand(8, 8, device=device)
    return lambda: F.relu(x)


def matmul(device: str) -> Callable[[], Any]:
    x = dl.rand(8, 8, device=device)
    return lambda: x @ x


def conv2d(device: str) -> Callable[[], Any]:
    x, weight = dl.rand(2, 3, 8, 8, device=device), dl.rand(4, 3, 3, 3, device=device)
    return lambda: F.conv2d(x, weight)


def compiled_step(device: str) -> Callable[[], Any]:
    net = dl.nn.Linear(4, 2, device=device)
    optimizer = dl.optim.Adam(net.parameters())
    x = dl.rand(8, 4, device=device)

    @dl.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(x)


def parallel_forward(device: str) -> Callable[[], Any]:
    net = dl.parallel(dl.nn.Linear(4, 2), dl.DeviceGroup([device, f"{device}#1"]))
    x = dl.rand(8, 4, device="cpu")
    return lambda: net(x)


WORK = {
    "relu": relu,
    "matmul": matmul,
    "conv2d": conv2d,
    "compiled step": compiled_step,
    "dl.parallel forward of a Linear": parallel_forward,
}

if __name__ == "__main__":
    devices = sys.argv[1:] or ["cpu"]
    for name, make in WORK.items():
        print(f"{name:32}", *(f"{device} {calls_of(make(device)).total():4}" for device in devices))
