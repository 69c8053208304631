"""A Trainer in an elastic launch, whose processes end at stages of their steps."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dl4all as dl
from dl4all.errors import DistNetworkError
from dl4all.multi_device.data_parallel.peers import LayerExchange, NetworkReduction
from dl4all.training import resume
from dl4all.training.elastic import ElasticRun
from tests.distributed.programs import weights

COUNT = 3  # processes of the launch
TIMEOUT = 6.0  # seconds after which a stopped process is given up


class Ends:
    """Ends a process at the next of some stages, when all processes are there.

    Args:
        folder: has a file for each that has happened.
        stages: in their order: a stage's name, and after a colon the way in which it ends: the process is
            killed (``kill``, the default), or stopped for some seconds (``stop``), the lighthouse is killed
            in its place (``lighthouse``), it takes a step that has succeeded for failed (``doubt``), or its
            disk is full (``full``).
    """

    def __init__(self, folder: Path, stages: list[str]) -> None:
        self._folder, self._stages = folder, stages
        self.awaited = bool(stages)  # whether processes that end are

    def at(self, stage: str) -> None:
        number = len(list(self._folder.glob("end-*")))
        if number == len(self._stages) or dl.distributed.get_world_size() < COUNT:
            return
        awaited, _, kind = self._stages[number].partition(":")
        writer = stage == "saving"  # the first process is the only one to come here
        if stage != awaited or (not writer and int(os.environ["LOCAL_RANK"]) != (number + 1) % COUNT):
            return
        with contextlib.suppress(FileExistsError):
            (self._folder / f"end-{number}").touch(exist_ok=False)
            self._end(kind or "kill")

    def _end(self, kind: str) -> None:
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "lighthouse":
            os.kill(lighthouse(), signal.SIGKILL)
        elif kind == "stop":
            if os.fork() == 0:
                time.sleep(1.5 * TIMEOUT)
                os.kill(os.getppid(), signal.SIGCONT)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGSTOP)
        elif kind == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        else:
            raise DistNetworkError("[test] this process takes the step for failed")


def lighthouse() -> int:
    """The process id of the lighthouse of this launch."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getppid() and "lighthouse" in (folder / "cmdline").read_text():
                return int(folder.name)
    raise AssertionError("there is no lighthouse")


def around(owner: Any, name: str, ends: Ends, before: str, after: str) -> None:
    """Have a function come to a stage before and after it."""
    function: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:
        ends.at(before)
        result = function(*args, **options)
        ends.at(after)
        return result

    setattr(owner, name, wrapped)


class Stages(dl.autograd.Function):
    """The identity, with stages in both directions."""

    @staticmethod
    def forward(ctx: Any, x: dl.Tensor, ends: Ends) -> dl.Tensor:
        ctx.ends = ends
        ends.at("forward")
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, grad: dl.Tensor) -> Any:
        ctx.ends.at("backward")
        return grad, None


class Net(dl.nn.Module):
    """Convolution, batch normalization and dropout."""

    def __init__(self, ends: Ends, width: int) -> None:
        super().__init__()
        self.ends = ends
        self.conv = dl.nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.norm = dl.nn.BatchNorm2d(width)
        self.head = dl.nn.Sequential(
            dl.nn.ReLU(), dl.nn.Flatten(), dl.nn.Dropout(0.25), dl.nn.Linear(width * 64, 10)
        )

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        if not self.training:
            self.ends.at("validation")
        x = self.norm(self.conv(x))
        return self.head(Stages.apply(x, self.ends) if self.training else x)  # type: ignore[no-any-return]


class Images(dl.data.Dataset):
    """Random images, whose loading waits while others are awaited."""

    def __init__(self, count: int, ends: Ends) -> None:
        numbers = np.random.default_rng(1)
        self.ends = ends
        self.images = numbers.standard_normal((count, 1, 8, 8)).astype(np.float32)
        self.labels = numbers.integers(0, 10, count)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        self.ends.at("loading")
        return self.images[index], self.labels[index]


def train(out: Path, options: dict[str, Any], *, distributed: bool) -> None:
    """Train; the weights and the history's rows go into `out`."""
    ends = Ends(out, options.get("stages", []))
    rank = os.environ.get("LOCAL_RANK", "alone")
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if distributed:
        dl.distributed.init_process_group(timeout=TIMEOUT)
        around(LayerExchange, "exchange", ends, "exchange", "exchanged")
        around(NetworkReduction, "begin", ends, "bucket", "reduce")
        around(ElasticRun, "commit", ends, "commit", "committed")
        around(dl.Trainer, "_update", ends, "step", "update")
        around(resume, "save_checkpoint", ends, "saving", "saved")
    dl.manual_seed(3 if not restarted else 40)  # whoever comes takes the others' weights and random numbers
    net = Net(ends, 5 if rank == str(options.get("odd")) else 4)
    data = Images(103, ends)
    made = dl.Trainer(
        net,
        dl.nn.CrossEntropyLoss(),
        dl.optim.SGD(net.parameters(), lr=options.get("lr", 0.02), momentum=0.9),
        ["accuracy"],
        "cpu",
        folder=out / ("elastic" if distributed else "alone"),
        progress=False,
        clip_norm=1.0,
        checkpoint_every=4,
        accumulate=options.get("accumulate", 1),
        callbacks=[lambda trained, row: wait(ends, distributed)],
        distributed=distributed,
    )
    loader = dl.data.DataLoader(data, 20, shuffle=True, device=None)
    validation = dl.data.DataLoader(dl.data.Subset(data, range(70)), 32, device=None)
    history = made.fit(loader, options["epochs"], validation, resume=True)
    scores = made.evaluate(validation)
    np.save(out / f"{rank}.npy", weights(net))
    (out / f"{rank}.json").write_text(json.dumps([*history.rows, scores]))
    print("complete", rank, dl.distributed.get_world_size() if distributed else 1, flush=True)


def wait(ends: Ends, distributed: bool) -> None:
    """Give processes that are started again some time to come."""
    if distributed and ends.awaited and dl.distributed.get_world_size() < COUNT:
        time.sleep(1)


if __name__ == "__main__":
    train(Path(sys.argv[1]), json.loads(sys.argv[2]), distributed=True)
