"""Ends of a process while other threads use devices: status and output must be the program's own.

python -m tests.attacks.exits --count 200 [--device vulkan:0] [--activity matmul] [--ending return]
python -m tests.attacks.exits --run vulkan:0 matmul return
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from tests.support.forked_process import LIBRARY, PYTORCH, run_forked

ENDINGS = {"return": 0, "sys.exit": 3, "exception": 1, "SIGTERM": -signal.SIGTERM, "closed device": 0}
"""The ways in which a program ends, and their statuses."""

SECONDS = 0.4  # that threads are at work before the end


def activities() -> dict[str, Callable[[str], Any]]:
    """What goes on on a device when the program ends; what they return stays alive."""
    import numpy as np

    import dl4all as dl
    from dl4all.errors import Dl4allError

    def in_threads(work: Callable[[int], Any], count: int = 3) -> None:
        def loop() -> None:
            for number in range(1 << 30):
                try:
                    work(number)
                except Dl4allError:  # the device was closed: the program knows what to do
                    return

        for _ in range(count):
            threading.Thread(target=loop, daemon=True).start()

    def matmul(device: str) -> None:
        in_threads(lambda _: dl.ones(50, 50, device=device) @ dl.ones(50, 50, device=device))

    def upload(device: str) -> None:
        array = np.ones((500, 1000), np.float32)
        in_threads(lambda _: dl.tensor(array, device=device))

    def download(device: str) -> None:
        x = dl.ones(300, 300, device=device)
        in_threads(lambda _: (x * 2).numpy())

    def compilation(device: str) -> None:
        x = dl.rand(97, 89, device=device)
        in_threads(lambda n: (x[: n % 96 + 1, : n % 88 + 1] @ x.t()[: n % 88 + 1]).softmax(n % 2).numpy())

    def compiled(device: str) -> Any:
        step = dl.compile(lambda x: (x @ x).relu())
        x = dl.ones(20, 20, device=device)
        for _ in range(4):
            step(x)
        in_threads(lambda _: step(x), count=2)
        return step

    def streams(device: str) -> Any:
        opened = [dl.Stream(device) for _ in range(2)]
        x = dl.ones(50, 50, device=device)
        for stream in opened:
            for _ in range(500):
                stream.submit(lambda: (x @ x).relu())
        return opened

    def group(device: str) -> Any:
        net = dl.parallel(dl.nn.Linear(8, 8), dl.DeviceGroup([device, "cpu#1"]))
        net(dl.ones(6, 8, device=device)).sum().backward()
        in_threads(lambda _: net(dl.ones(6, 8, device=device)), count=1)
        return net

    def prefetch(device: str) -> Any:
        data = dl.data.TensorDataset(dl.ones(4096, 8, device="cpu"))
        batches = iter(dl.data.DataLoader(data, 4, device=device))
        next(batches)
        return batches

    def dlall(device: str) -> Any:
        import torch

        import dl4all.torch  # noqa: F401

        # Without threads: a process aborts at its end whose daemon threads are in PyTorch, on any device.
        x = torch.ones(50, 50, device="dlall", requires_grad=True)
        (x @ x).sum().backward()  # type: ignore[no-untyped-call]
        return x, (x @ x).sum()

    def unfinished(device: str) -> Any:
        """No other thread: work that nobody has waited for."""
        return [dl.ones(200, 200, device=device) @ dl.ones(200, 200, device=device) for _ in range(50)]

    found = (
        matmul, upload, download, compilation, compiled, streams, group, prefetch, dlall, unfinished
    )  # fmt: skip
    return {function.__name__: function for function in found}


ACTIVITIES = (
    "matmul", "upload", "download", "compilation", "compiled", "streams", "group", "prefetch", "dlall",
    "unfinished",
)  # fmt: skip


def program(device: str, activity: str, ending: str) -> None:
    """What runs in the process that ends."""
    alive = activities()[activity](device)
    time.sleep(SECONDS)
    print("done", flush=True)
    if ending == "sys.exit":
        sys.exit(3)
    if ending == "exception":
        raise ValueError("the program's own")
    if ending == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
    if ending == "closed device":
        from dl4all.runtime import registry

        registry.close_all()
    del alive


def ended_badly(device: str, activity: str, ending: str) -> str:
    """Run it; what is not the program's own of its status and output, in words."""
    environment = {**os.environ, "DL4ALL_DEVICE": device, "DL4ALL_TOP": "0", "DL4ALL_CALIBRATE": "0"}
    try:
        ended = run_forked(
            [sys.executable, "-m", "tests.attacks.exits", "--run", device, activity, ending],
            cwd=Path(__file__).parents[2],
            env=environment,
            preload=PYTORCH if activity == "dlall" else LIBRARY,
            timeout=120,
        )
    except subprocess.TimeoutExpired as error:
        return f"still there after {error.timeout:.0f} s: {error.stderr!r}"
    own = ended.stderr
    if ending == "exception" and own.endswith("ValueError: the program's own\n") and own.count("Trace") == 1:
        own = ""
    if (ended.returncode, ended.stdout, own) != (ENDINGS[ending], "done\n", ""):
        return f"status {ended.returncode}, said {ended.stdout!r} and {ended.stderr[-2000:]!r}"
    return ""


@click.command(help=(__doc__ or "").replace("\n\n    python", "\n\n\b\n    python"))
@click.option("--count", default=10, help="Ends of each kind.")
@click.option("--device", "devices", multiple=True, default=("cpu", "vulkan:0", "kompute:0"))
@click.option("--activity", "chosen", multiple=True, default=ACTIVITIES)
@click.option("--ending", "endings", multiple=True, default=tuple(ENDINGS))
@click.option("--run", nargs=3, help="Be the process that ends: DEVICE ACTIVITY ENDING.")
def main(
    count: int,
    devices: tuple[str, ...],
    chosen: tuple[str, ...],
    endings: tuple[str, ...],
    run: tuple[str, str, str] | None,
) -> None:
    if run is not None:
        program(*run)
        return
    bad = 0
    kinds = [(device, activity, ending) for device in devices for activity in chosen for ending in endings]
    with ThreadPoolExecutor(2) as pool:
        for kind in kinds:
            found = list(filter(None, pool.map(lambda one: ended_badly(*one), [kind] * count)))
            bad += len(found)
            click.echo(f"{' '.join(kind)}: {len(found)} of {count} abnormal {' '.join(found[:1])}")
    click.echo(f"{bad} of {count * len(kinds)} abnormal")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
