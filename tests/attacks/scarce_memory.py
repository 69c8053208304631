"""Work in a process that may take only so much memory more. A limit holds for all of a process."""

from __future__ import annotations

import gc
import json
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dl4all as dl
from dl4all.errors import Dl4allError

MIB = 1 << 20
SIDE = 160  # of images of which eight, and what a layer makes of them, take 8 MB
F = dl.nn.functional


def train(device: str, side: int) -> float:
    """Two steps on eight images of so many pixels along a side."""
    dl.manual_seed(0)
    net = dl.nn.Sequential(
        dl.nn.Conv2d(3, 8, 3, padding=1), dl.nn.ReLU(), dl.nn.AdaptiveAvgPool2d(4), dl.nn.Flatten(),
        dl.nn.Linear(128, 4),
    ).to(device)  # fmt: skip
    optimizer = dl.optim.Adam(net.parameters(), lr=1e-2)
    images = dl.ones(8, 3, side, side, device=device)
    for _ in range(2):
        loss = (net(images) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.item())


def right(device: str) -> None:
    """What was computed before the attacks is computed again, with the same kernels."""
    block = np.random.default_rng(0).standard_normal((64, 48), np.float32)
    x = dl.tensor(block, device=device)
    assert np.array_equal((x * 2 + 1).numpy(), block * 2 + 1)
    assert np.abs((x @ x.T).numpy() - block @ block.T).max() < 1e-3
    assert np.allclose(x.sum(0).numpy(), block.sum(0), atol=1e-4)


def chain(device: str, mebibytes: int) -> float:
    x = dl.ones(mebibytes * MIB // 4, device=device)
    return float((x * 2 + x).sum().item())


def attacks(device: str, folder: Path) -> dict[str, Callable[[], Any]]:
    """Work that needs more than there is. Its kernels have run before: llvmpipe compiles a kernel when it
    first runs, and its compiler ends the process when it gets no memory."""
    return {
        "load": lambda: dl.io.load_weights(folder / "large.safetensors"),
        "load a checkpoint": lambda: dl.io.load_checkpoint(folder / "checkpoints"),
        "make": lambda: dl.zeros(4 * MIB, device=device),
        "compute": lambda: chain(device, 8),
        "compute with little left": lambda: [chain(device, size) for size in (1, 2, 4, 8)],
        "train": lambda: train(device, SIDE),
        "upload": lambda: dl.tensor(np.ones(4 * MIB, np.float32), device=device),
        "multiply": lambda: dl.ones(2000, 48, device=device) @ dl.ones(2000, 48, device=device).T,
        "many": lambda: [dl.ones(MIB // 4, device=device) for _ in range(40)],
    }


def prepare(folder: Path) -> None:
    dl.io.save_weights(folder / "large.safetensors", {"w": np.ones(4 * MIB, np.float32)})
    for step in (1, 2):
        weights = np.ones(4 * MIB if step == 2 else 1, np.float32)
        dl.io.save_checkpoint(folder / "checkpoints", step, {"step": step, "w": weights})


def used(limit: int) -> int:
    """Bytes that count against a limit now."""
    name = "VmSize" if limit == resource.RLIMIT_AS else "VmData"
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def attack(work: Callable[[], Any], limit: int, more: int) -> str:
    """What comes of it: the name of an error, or nothing."""
    resource.setrlimit(limit, (used(limit) + more, resource.RLIM_INFINITY))
    try:
        work()
    except MemoryError as error:
        return type(error).__name__ if isinstance(error, Dl4allError) else "MemoryError"
    except Exception as error:  # noqa: BLE001  # it is the test that says what is right
        return f"wrong: {type(error).__name__}: {error}"
    finally:
        resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return "enough"


def main(devices: list[str], limits: list[str], mores: list[int]) -> None:
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for device in devices:
            train(device, SIDE)
            before = train(device, 16)
            for do in (right, lambda device: chain(device, 1)):
                do(device)
            dl.ones(90, 48, device=device) @ dl.ones(90, 48, device=device).T
            for limit in limits:
                for more in mores:
                    for what, work in attacks(device, folder).items():
                        dl.device(device).pool.trim()  # or it would take what was reserved before
                        result = attack(work, getattr(resource, limit), more * MIB)
                        found[f"{device} {limit} {more} {what}"] = result
                        gc.collect()
                        right(device)
            assert train(device, 16) == before
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1].split(","), sys.argv[2].split(","), [int(more) for more in sys.argv[3].split(",")])
