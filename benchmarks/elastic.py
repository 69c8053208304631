"""The cost of a launch whose processes may end: a step beside one over gloo, and the pause after a kill.

    python benchmarks/elastic.py [--runs 3] [--json FILE]

Two processes of this host train a perceptron by Trainer, by torchrun and elastically in turn; the figure is
the median of a step. Then three processes train, one of which is killed in the middle of a step: the pause is
the time from there to the beginning of the step behind the one that the others have computed anew.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

STEPS, LAST, KILLED_AT = 500, 100, 60


def train(out: Path, width: int, kill: bool) -> None:
    """Train in each process of a launch; the first one writes the times of its steps."""
    import dl4all as dl

    dl.manual_seed(3)
    layers = [m for _ in range(3) for m in (dl.nn.Linear(width, width), dl.nn.ReLU())]
    net = dl.nn.Sequential(*layers, dl.nn.Linear(width, 10))
    times: list[float] = []
    rank = int(os.environ["LOCAL_RANK"])

    class Timed(dl.nn.Module):
        def forward(self, x: dl.Tensor) -> dl.Tensor:
            now = time.time()
            if (
                kill
                and rank == 1
                and len(times) == KILLED_AT
                and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
            ):
                (out / "killed").write_text(repr(now))
                os.kill(os.getpid(), signal.SIGKILL)
            if dl.distributed.get_world_size() > 1:  # the first one there may be alone for a while
                times.append(now)
            return x

    numbers = np.random.default_rng(1)
    x = numbers.standard_normal((64 * STEPS, width)).astype(np.float32)
    y = numbers.integers(0, 10, 64 * STEPS)
    loader = dl.data.DataLoader(dl.data.TensorDataset(x, y), 64, device=None)
    optimizer = dl.optim.SGD(net.parameters(), lr=0.01)
    net.append(Timed())
    trainer = dl.Trainer(
        net, dl.nn.CrossEntropyLoss(), optimizer, device="cpu", progress=False, distributed=True
    )
    trainer.fit(loader, epochs=1)
    if rank == 0:
        (out / "times").write_text(json.dumps(times))


def launched(options: list[str], width: int, kill: bool = False) -> tuple[list[float], float]:
    """The times at which steps began in the first process, and that of the kill."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "dl4all",
            "launch",
            *options,
            __file__,
            "--out",
            folder,
            "--width",
            str(width),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
        subprocess.run([*command, *["--kill"] * kill], env=environment, check=True, timeout=300)
        out = Path(folder)
        killed = float((out / "killed").read_text()) if kill else 0.0
        return json.loads((out / "times").read_text()), killed


def step_ms(options: list[str], width: int) -> float:
    times, _ = launched(options, width)
    return float(statistics.median(np.diff(times[-LAST:]))) * 1e3


def pause(width: int) -> float:
    """Seconds from a kill to the beginning of the step behind the one that was computed anew."""
    times, killed = launched(["--elastic", "-n", "3"], width, kill=True)
    later = [t for t in times if t > killed + 0.2]  # the first of these is the try that succeeds
    return later[1] - killed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--width", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--kill", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.out is not None:
        train(args.out, args.width, args.kill)
        return
    results: dict[str, Any] = {}
    for width in (64, 512, 1024):
        found: dict[str, list[float]] = {"gloo": [], "elastic": []}
        for _ in range(args.runs):
            found["gloo"].append(step_ms(["-n", "2"], width))
            found["elastic"].append(step_ms(["--elastic", "-n", "2"], width))
        plain, elastic = (statistics.median(found[name]) for name in ("gloo", "elastic"))
        results[str(width)] = {"gloo_ms": plain, "elastic_ms": elastic, "ratio": elastic / plain}
        print(f"width {width}: {plain:.1f} ms over gloo, {elastic:.1f} elastically: {elastic / plain:.2f}")
    pauses = [pause(64) for _ in range(args.runs)]
    results["pause_s"] = pauses
    print(
        f"a process is killed: {statistics.median(pauses):.2f} s (of {', '.join(f'{p:.2f}' for p in pauses)})"
    )
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
