"""Programs that tests run in several processes: ``python programs.py NAME ARGS``."""

from __future__ import annotations

import datetime
import functools
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DistError
from dl4all.multi_device.data_parallel.balance import Balance, split
from dl4all.runtime.simulated.description import Failure
from dl4all.scheduler.cost.simulation import simulated_device
from tests.distributed.membership import TIMEOUT, joined, refused

BATCH, STEPS = 60, 8
CUTS: dict[str, Callable[[int, int], list[int]]] = {
    "even": lambda count, rows: [rows * rank // count for rank in range(count)],
    "uneven": lambda count, rows: [0, 4, 12, 16][:count],
    "odd": lambda count, rows: [0, *(13 + rank for rank in range(count - 1))],
    "without_rows": lambda count, rows: [0] + [rows // 2] * (count - 1) if count > 2 else [0, rows],
}
"""The first rows of processes in a batch."""


class Net(dl.nn.Module):
    """Convolution, batch normalization, dropout, a layer that no call uses and one that later calls use."""

    def __init__(self) -> None:
        super().__init__()
        self.body = dl.nn.Sequential(
            dl.nn.Conv2d(1, 6, 3, padding=1, bias=False),
            dl.nn.BatchNorm2d(6),
            dl.nn.ReLU(),
            dl.nn.Flatten(),
            dl.nn.Dropout(0.25),
            dl.nn.Linear(6 * 64, 10),
        )
        self.unused = dl.nn.Linear(3, 3)
        self.late = dl.nn.Linear(10, 10)
        self.scale = dl.nn.Parameter(dl.ones((), device="cpu"))

    def forward(self, x: dl.Tensor, late: bool) -> dl.Tensor:
        y = self.body(x) * self.scale
        return self.late(y) if late else y  # type: ignore[no-any-return]


def digits(step: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]:
    numbers = np.random.default_rng(step)
    images = numbers.standard_normal((BATCH, 1, 8, 8)).astype(np.float32)
    return images, numbers.integers(0, 10, BATCH)


def weights(module: dl.nn.Module) -> npt.NDArray[np.float64]:
    tensors = [*module.parameters(), *module.buffers()]
    joint = np.concatenate([tensor.detach().numpy().ravel() for tensor in tensors])
    return np.asarray(joint, np.float64)


def train(
    device: str,
    wrap: Callable[[dl.nn.Module], dl.nn.Module],
    rows: slice = slice(None),
    *,
    seed: int = 3,
    before_step: Callable[[int], None] = lambda step: None,
) -> npt.NDArray[np.float64]:
    """The weights after some steps with these rows of each batch."""
    dl.manual_seed(seed)
    net = Net().to(device)
    model = wrap(net)
    optimizer = dl.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    dl.manual_seed(seed + 4)
    for step in range(STEPS):
        before_step(step)
        x, y = (dl.from_numpy(array[rows], device) for array in digits(step))
        optimizer.zero_grad()
        dl.nn.functional.cross_entropy(model(x, step >= STEPS // 2), y).backward()
        optimizer.step()
    assert net.unused.weight.grad is None
    assert net.late.weight.grad is not None
    return weights(net)


# The programs


def data_parallel(*args: str) -> None:
    """Train with each `cut:devices` of the arguments; the weights go into a folder."""
    rank, count, (folder, *cases) = joined(args)
    for number, case in enumerate(cases):
        cut, _, devices = case.partition(":")
        starts = [*CUTS[cut](count, BATCH), BATCH]

        wrap = functools.partial(
            dl.nn.parallel.DistributedDataParallel, devices=devices.split(","), bucket_cap_mb=0.005
        )
        # Another seed in each process: rank 0's parameters and random numbers count.
        rows = slice(starts[rank], starts[rank + 1])
        found = train(devices.split(",")[0], wrap, rows, seed=3 if rank == 0 else 50 + rank)
        np.save(Path(folder, f"{number}-{rank}.npy"), found)
    dl.distributed.destroy_process_group()


def collectives(*args: str) -> None:
    """Every collective, with every dtype, and calls that do not fit together."""
    rank, count, _ = joined(args)
    d = dl.distributed
    whole = count * (count - 1) // 2
    device = (
        "vulkan:0" if rank % 2 and os.environ.get("DL4ALL_TEST_DEVICES", "").find("vulkan") >= 0 else "cpu"
    )
    for dtype in (
        dl.float32,
        dl.float64,
        dl.float16,
        dl.bfloat16,
        dl.int64,
        dl.int32,
        dl.int16,
        dl.int8,
        dl.uint8,
    ):
        x = (dl.arange(6, device=device).reshape(2, 3) + rank).to(dtype)
        d.all_reduce(x)
        assert x.tolist() == (np.arange(6).reshape(2, 3) * count + whole).tolist(), dtype
        x = (dl.arange(6, device=device).reshape(2, 3).t() + rank).to(dtype)  # not contiguous
        d.all_reduce(x, d.ReduceOp.MAX)
        assert x.tolist() == (np.arange(6).reshape(2, 3).T + count - 1).tolist(), dtype
    x = dl.arange(3.0, device=device) + rank
    work = d.all_reduce(x, d.ReduceOp.AVG, async_op=True)
    assert work is not None
    work.wait()
    assert x.tolist() == [n + (count - 1) / 2 for n in range(3)]
    x = dl.tensor([1 << rank], device=device)
    d.all_reduce(x, d.ReduceOp.BOR)
    assert x.tolist() == [(1 << count) - 1]
    for dtype in (dl.float32, dl.bool_, dl.bfloat16):
        parts = [dl.zeros(2, dtype=dtype, device=device) for _ in range(count)]
        d.all_gather(parts, dl.tensor([rank == 1, True], device=device).to(dtype))
        assert [[bool(v) for v in part.tolist()] for part in parts] == [[n == 1, True] for n in range(count)]
    into = dl.zeros(count, 2, device=device)
    d.all_gather_into_tensor(into, dl.full((1, 2), float(rank), device=device))
    assert into[:, 0].tolist() == list(range(count))
    values: list[Any] = [None] * count
    d.all_gather_object(values, {"rank": rank, "long": "x" * 1000 * rank})
    assert [value["rank"] for value in values] == list(range(count))
    settings = [rank, "of", count]
    d.broadcast_object_list(settings, src=1)
    assert settings == [1, "of", count]
    x = dl.full((3,), float(rank), device=device)
    d.broadcast(x, src=1)
    assert x.tolist() == [1.0] * 3
    x = dl.full((3,), float(rank + 1), device=device)
    d.reduce(x, dst=1)
    assert x.tolist() == ([float(whole + count)] * 3 if rank == 1 else [float(rank + 1)] * 3)
    x = dl.zeros(2, device=device)
    d.scatter(x, [dl.full((2,), float(n)) for n in range(count)] if rank == 1 else None, src=1)
    assert x.tolist() == [float(rank)] * 2
    collected = [dl.zeros(2) for _ in range(count)] if rank == 0 else None
    d.gather(x, collected)
    assert collected is None or [part.tolist() for part in collected] == [
        [float(n)] * 2 for n in range(count)
    ]
    d.reduce_scatter(x, [dl.full((2,), float(n + rank)) for n in range(count)])
    assert x.tolist() == [float(count * rank + whole)] * 2
    d.reduce_scatter_tensor(x, dl.arange(2.0 * count), d.ReduceOp.AVG)
    assert x.tolist() == [2.0 * rank, 2.0 * rank + 1]
    if rank == 0:
        d.send(dl.arange(5), dst=1)
        refused("send", dl.errors.ShapeError, "that of rank 1 float32", lambda: d.send(dl.arange(5), dst=1))
    if rank == 1:
        x = dl.zeros(5, dtype=dl.int64, device=device)
        assert d.recv(x, src=0) == 0
        assert x.tolist() == [0, 1, 2, 3, 4]
        refused("recv", dl.errors.ShapeError, "that of rank 0 int64", lambda: d.recv(dl.zeros(5), src=0))
    for empty in (dl.zeros(0), dl.zeros(3, 0)):
        d.all_reduce(empty)
    if d.get_backend() != "torchft":  # whose groups have no parts
        groups_of_some(rank, count)
    d.barrier()
    mistakes(rank)
    d.barrier()  # the group works as before
    d.destroy_process_group()
    print("complete")


def groups_of_some(rank: int, count: int) -> None:
    d = dl.distributed
    last = [count - 2, count - 1]
    pair = d.new_group(last, timeout=datetime.timedelta(seconds=17))
    assert pair is None or pair.timeout.total_seconds() == 17
    assert (pair is None) == (rank not in last)
    if pair is not None:
        assert (d.get_rank(pair), d.get_world_size(pair)) == (rank - last[0], 2)
        assert d.get_process_group_ranks(pair) == last
        x = dl.full((1,), float(rank))
        d.all_reduce(x, group=pair)
        assert x.item() == sum(last)
        d.broadcast(x.fill_(rank), src=last[1], group=pair)  # ranks are those among all
        assert x.item() == last[1]
        net = dl.nn.Linear(1, 1).to("cpu")
        model = dl.nn.parallel.DistributedDataParallel(net, process_group=pair)
        model(dl.full((2, 1), float(rank), device="cpu")).mean().backward()
        assert net.weight.grad is not None
        assert net.weight.grad.tolist() == [[sum(last) / 2]]
        x.zero_()


def mistakes(rank: int) -> None:
    d = dl.distributed
    for text, call in (
        ("rank 1: all_reduce of float32 of shape (3,)", lambda: d.all_reduce(dl.ones(2 + (rank == 1)))),
        (
            "rank 1: all_reduce of float64",
            lambda: d.all_reduce(dl.ones(2, dtype=["float32", "float64"][rank == 1])),
        ),
        ("rank 0: barrier", lambda: d.barrier() if rank == 0 else d.all_reduce(dl.ones(2))),
        ("from rank 1", lambda: d.broadcast(dl.ones(2), src=int(rank == 1))),
    ):
        refused("calls", d.DistError, text, call)


def trainer(out: str, *runs: str) -> None:
    """Train by Trainers one after the other, each with options as JSON; saves weights and rows of each."""
    for text in runs:
        options = json.loads(text)
        name, expected = options.pop("name"), options.pop("refused", None)
        if expected is not None:
            refused(name, ArgumentError, expected, functools.partial(trained, options))
            continue
        found, rows = trained(options)
        rank = dl.distributed.get_rank() if options.get("distributed") else 0
        np.save(Path(out, f"{name}-{rank}.npy"), found)
        Path(out, f"{name}-{rank}.json").write_text(json.dumps(rows))


def classifier(*, plain: bool) -> dl.nn.Sequential:
    """A network; a plain one draws no random numbers, and has no statistics."""
    dl.manual_seed(3)
    return dl.nn.Sequential(
        dl.nn.Conv2d(1, 4, 3, padding=1, bias=False),
        *([] if plain else [dl.nn.BatchNorm2d(4), dl.nn.Dropout(0.25)]),
        dl.nn.ReLU(),
        dl.nn.Flatten(),
        dl.nn.Linear(256, 10),
    )


def samples() -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]:
    numbers = np.random.default_rng(1)
    return numbers.standard_normal((103, 1, 8, 8)).astype(np.float32), numbers.integers(0, 10, 103)


def trained(options: dict[str, Any]) -> tuple[npt.NDArray[np.float64], list[dict[str, Any]]]:
    """The weights and the history's rows of a Trainer with these options."""
    given = {k: v for k, v in options.items() if k not in ("epochs", "resume", "die", "cut")}
    die = options.get("die")
    net = classifier(plain=bool(options.get("compile") or given.pop("plain", False)))
    x, y = samples()
    optimizer: dl.optim.Optimizer = dl.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    if given.pop("zero", False):
        if not dl.distributed.is_initialized():
            dl.distributed.init_process_group(timeout=TIMEOUT)
        spread = dl.optim.ZeroRedundancyOptimizer
        optimizer = spread(net.to("cpu").parameters(), dl.optim.SGD, lr=0.05, momentum=0.9)

    def end(trained: dl.Trainer, row: Any) -> None:
        rank = dl.distributed.get_rank()
        if die == [rank, row["epoch"]] and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
            os.kill(os.getpid(), signal.SIGKILL)

    made = dl.Trainer(
        net,
        dl.nn.CrossEntropyLoss(),
        optimizer,
        ["accuracy"],
        "cpu",
        progress=False,
        clip_norm=1.0,
        callbacks=[end] if die else [],
        **given,
    )
    loader = dl.data.DataLoader(dl.data.TensorDataset(x, y), 50, shuffle=True, device=None)
    validation = dl.data.DataLoader(dl.data.TensorDataset(x[:70], y[:70]), 32, device=None)
    history = made.fit(loader, options["epochs"], validation, resume=options.get("resume", False))
    return weights(net), history.rows


def dies(stage: str, kind: str) -> None:
    """Train until rank 1 is killed or stopped at a stage; the others say what they met with."""
    rank, _, _ = joined((), timeout={"kill": TIMEOUT, "stop": 8.0}[kind])
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[kind]

    def end(*_: Any) -> None:
        if rank == 1:
            os.kill(os.getpid(), number)

    class Ending(dl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: dl.Tensor) -> dl.Tensor:
            if stage == "forward":
                end()
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, grad: dl.Tensor) -> dl.Tensor:
            if stage == "backward":
                end()
            return grad

    class Wrapped(dl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = dl.nn.Sequential(dl.nn.Linear(4, 8), dl.nn.BatchNorm1d(8), dl.nn.Linear(8, 1))

        def forward(self, x: dl.Tensor) -> dl.Tensor:
            return self.net(Ending.apply(self.net[0](x))[:, :4])  # type: ignore[no-any-return]

    model = dl.nn.parallel.DistributedDataParallel(Wrapped().to("cpu"), devices=["cpu", "cpu#1"])
    optimizer = dl.optim.SGD(model.module.parameters(), lr=0.1)
    try:
        for step in range(3):
            loss = model(dl.ones(8, 4, device="cpu") * (rank + 1)).square().mean()
            loss.backward()
            if stage == "update" and step:
                end()
            optimizer.step()
            optimizer.zero_grad()
    except dl.errors.DistNetworkError as error:
        assert len(model.group) == 2, "a device was taken for failed"
        print("network:", error)
        sys.exit(3)


def loses_a_device(folder: str, *failures: str) -> None:
    """Rank 1 loses the second of its devices in a pass, between exchanges and buckets that leave."""
    rank, count, _ = joined(())
    Balance.shares = evenly  # type: ignore[method-assign]  # however small the model is
    rows = slice(rank * BATCH // count, (rank + 1) * BATCH // count)
    for number, failure in enumerate(failures):
        phase, after = failure.split(":")
        failing = simulated_device(failures=(Failure("lost", phase, int(after)),))
        group = dl.DeviceGroup(["cpu", failing] if rank == 1 else ["cpu"])
        wrap = functools.partial(dl.nn.parallel.DistributedDataParallel, devices=group, bucket_cap_mb=0.0003)
        np.save(Path(folder, f"{number}-{rank}.npy"), train("cpu", wrap, rows))
        assert list(group.retired) == ([failing] if rank == 1 else [])
    print("complete")


def evenly(self: Balance, rows: int, devices: Sequence[Any]) -> list[int]:
    """As many rows for each device."""
    return split(rows, [0.0] * len(devices), [1.0] * len(devices), self.grain)


class Noting(dl.nn.Module):
    """A buffer that follows from the rows of a call, and statistics that do."""

    seen: dl.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = dl.nn.Linear(1, 2), dl.nn.BatchNorm1d(2)
        self.register_buffer("seen", dl.zeros(1))

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        with dl.no_grad():
            self.seen.copy_(self.seen + x.max())
        return self.norm(self.layer(x))  # type: ignore[no-any-return]


def shares() -> None:
    """Buffers and orders in which processes would differ: those of rank 0 count."""
    rank, count, _ = joined(())
    net = Noting().to("cpu")
    model = dl.nn.parallel.DistributedDataParallel(net, sync_batch_norm=False)
    for _ in range(3):  # each pass begins with rank 0's buffer, and adds this process's
        model(dl.full((4, 1), 10.0**rank, device="cpu") * dl.rand(4, 1, device="cpu").add(1)).sum().backward()
    before: list[Any] = [None] * count
    dl.distributed.all_gather_object(before, (net.seen.item(), net.norm.running_mean.tolist()))
    assert len({mean for mean, _ in before}) == count  # they differ after a pass,
    assert before[1][0] < 5 + 20  # but do not add up
    order = dl.data.DataLoader(dl.data.TensorDataset(list(range(40))), 16, shuffle=True, device="cpu")
    dl.manual_seed(rank)
    for _ in range(2):
        own = [index for (rows,) in order.shard(rank, count) for index in rows.tolist()]
        parts: list[Any] = [None] * count
        dl.distributed.all_gather_object(parts, own)
        assert sorted(index for part in parts for index in part) == list(range(40))
    sampler = dl.data.DistributedSampler(range(10), shuffle=False)
    assert list(sampler) == list(range(rank, 10, count))
    print("complete")


def differ() -> None:
    """Processes whose modules, then whose calls differ."""
    rank, _, _ = joined(())
    make, error = dl.nn.parallel.DistributedDataParallel, dl.distributed.DistError
    text = "rank 0 has weight, float32 of shape (2, 3), where rank 1 has weight, float32 of shape (3, 3)"
    refused("modules", error, text, lambda: make(dl.nn.Linear(3, 2 + rank)))
    net, x = dl.nn.Linear(3, 2).to("cpu"), dl.ones(4, 3, device="cpu")
    model = make(net)
    refused("calls", error, "rank 1: barrier", dl.distributed.barrier if rank else lambda: model(x))
    next(net.parameters()).requires_grad_(rank == 0)
    refused("frozen", error, "different calls", lambda: model(x))
    print("complete")


def accumulated() -> None:
    """Passes that keep their gradients, beside one process's pass over all rows; and hooks of PyTorch's."""
    rank, count, _ = joined(())
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    x, y = (dl.from_numpy(array, "cpu") for array in digits(0))
    own = slice(rank * BATCH // count, (rank + 1) * BATCH // count)

    def made() -> dl.nn.Module:
        dl.manual_seed(1)
        return dl.nn.Sequential(dl.nn.Flatten(), dl.nn.Linear(64, 32), dl.nn.Tanh(), dl.nn.Linear(32, 10)).to(
            "cpu"
        )

    def gradients(net: dl.nn.Module) -> npt.NDArray[np.float64]:
        return np.asarray(np.concatenate([p.grad.numpy().ravel() for p in net.parameters()]), np.float64)

    def passes(model: dl.nn.Module, rows: slice, times: int) -> None:
        for _ in range(times):
            dl.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()

    def close(found: dl.nn.Module, times: int, tolerance: float = 1e-6) -> None:
        expected = made()
        passes(expected, slice(None), times)
        a, b = gradients(found), gradients(expected)
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b), (
            np.linalg.norm(a - b),
            np.linalg.norm(b),
        )

    plain: list[Any] = [None, default_hooks.allreduce_hook]
    for hook in plain:
        net = made()
        model = dl.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.002)
        if hook is not None:
            model.register_comm_hook(None, hook)
        passes(model, own, 1)
        close(net, 1)
        with model.no_sync():
            passes(model, own, 2)
        passes(model, own, 1)
        close(net, 4)
        with model.no_sync():
            passes(model, own, 1)
        model.reduce_gradients()
        close(net, 5)
    power = powerSGD_hook.PowerSGDState(None, 16, start_powerSGD_iter=2)
    inexact: list[tuple[Any, Any, float]] = [
        (default_hooks.fp16_compress_hook, None, 2e-3),
        (default_hooks.bf16_compress_hook, None, 2e-2),
        (powerSGD_hook.powerSGD_hook, power, 0.6),
    ]
    for hook, state, tolerance in inexact:
        net = made()
        model = dl.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.002)
        model.register_comm_hook(state, hook)
        for _ in range(4):
            net.zero_grad()
            passes(model, own, 1)
            close(net, 1, tolerance)
    print("complete")


def zero_redundancy(*args: str) -> None:
    """Optimizers whose state is spread over processes, beside the same ones alone, to the last bit."""
    rank, count, devices = joined(args)
    cases: list[tuple[type[dl.optim.Optimizer], dict[str, Any]]] = [
        (dl.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
        (dl.optim.AdamW, {"lr": 0.01, "amsgrad": True}),
        (dl.optim.RMSprop, {"lr": 0.01, "centered": True}),
    ]
    for device in devices:
        for kind, options in cases:
            nets = [_perceptron(device) for _ in range(3)]
            alone, spread, resumed = (_parts_of(net) for net in nets)
            plain = kind(alone, **options)
            zero = dl.optim.ZeroRedundancyOptimizer(spread, kind, **options)
            for step in range(4):
                for net, optimizer in zip(nets, (plain, zero), strict=False):
                    if step == 2:  # as schedulers do
                        optimizer.param_groups[1]["lr"] *= 0.5
                    _backward(net, step)
                    optimizer.step()
                np.testing.assert_array_equal(weights(nets[0]), weights(nets[1]))
            own = sum(owner == rank for owner in zero._owners)
            assert len(zero.state) == own < len(plain.state)
            _raises(ArgumentError, "consolidate_state_dict", zero.state_dict)
            zero.consolidate_state_dict(to=count - 1)
            if rank == count - 1:
                _same_state(plain.state_dict(), zero.state_dict())
            else:
                _raises(ArgumentError, "consolidate_state_dict", zero.state_dict)
            nets[2].load_state_dict(nets[0].state_dict())
            again = dl.optim.ZeroRedundancyOptimizer(resumed, kind, **options)
            again.load_state_dict(plain.state_dict())
            for net, optimizer in ((nets[0], plain), (nets[2], again)):
                _backward(net, 9)
                optimizer.step()
            np.testing.assert_array_equal(weights(nets[0]), weights(nets[2]))
            bad = plain.state_dict()
            bad["param_groups"][1]["params"] = bad["param_groups"][1]["params"][:1]
            _raises(ArgumentError, "the groups have", lambda: again.load_state_dict(bad))  # noqa: B023
    few = dl.nn.Parameter(dl.ones(3, device="cpu"))  # fewer parameters than processes
    zero = dl.optim.ZeroRedundancyOptimizer([few], dl.optim.SGD, lr=0.5)
    few.grad = dl.ones(3, device="cpu")
    zero.step()
    assert few.tolist() == [0.5] * 3
    _raises(ArgumentError, "all of them then", lambda: zero.add_param_group({"params": [few]}))
    _raises(ArgumentError, "a class of dl.optim", lambda: dl.optim.ZeroRedundancyOptimizer([few], int))  # type: ignore[arg-type]
    other = dl.nn.Parameter(dl.ones(3 + rank, device="cpu"))
    _raises(
        DistError, "different calls", lambda: dl.optim.ZeroRedundancyOptimizer([other], dl.optim.SGD, lr=0.5)
    )
    print("complete")


def _perceptron(device: str) -> dl.nn.Module:
    dl.manual_seed(11)
    return dl.nn.Sequential(dl.nn.Linear(9, 17), dl.nn.Tanh(), dl.nn.Linear(17, 5), dl.nn.PReLU()).to(device)


def _parts_of(net: dl.nn.Module) -> list[dict[str, Any]]:
    first, *rest = net.parameters()
    return [{"params": [first]}, {"params": rest, "weight_decay": 0.02}]


def _backward(net: dl.nn.Module, step: int) -> None:
    net.zero_grad()
    x = np.random.default_rng(step).standard_normal((7, 9)).astype(np.float32)
    y: dl.Tensor = net(dl.from_numpy(x, next(net.parameters()).device))
    y.square().sum().backward()


def _raises(kind: type[Exception], text: str, function: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        function()


def _same_state(expected: dict[str, Any], found: dict[str, Any]) -> None:
    assert [*expected["state"]] == [*found["state"]]
    for number, values in expected["state"].items():
        assert values.keys() == found["state"][number].keys()
        for name, value in values.items():
            np.testing.assert_array_equal(np.asarray(_array(value)), _array(found["state"][number][name]))
    assert expected["param_groups"] == found["param_groups"]


def _array(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, dl.Tensor) else value


PROGRAMS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        *(data_parallel, collectives, trainer, dies, differ, accumulated, loses_a_device, shares),
        zero_redundancy,
    )
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
