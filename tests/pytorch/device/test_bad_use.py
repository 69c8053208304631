"""Misuse of tensors on ``dlall``: typed errors, and the process goes on."""

from __future__ import annotations

import functools
import signal
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all as dl  # noqa: E402
import dl4all.torch  # noqa: E402
from dl4all.errors import DeviceError, OutOfMemoryError  # noqa: E402
from tests.conftest import run_python  # noqa: E402
from tests.support.forked_process import PYTORCH  # noqa: E402

Variable = torch.autograd.Variable


def works(place: str) -> None:
    """The device computes."""
    x = torch.randn(5, 3)
    torch.testing.assert_close((x.to(place) * 2).relu().cpu(), (x * 2).relu())


def test_operands_of_two_devices_are_refused(place: str) -> None:
    x, host = torch.randn(3, 3, device=place), torch.randn(3, 3)
    others = [
        host,
        *(host.to(f"dlall:{i}") for i in range(torch.dlall.device_count()) if f"dlall:{i}" != place),
    ]
    for other in others:
        for call in (
            torch.add,
            torch.mm,
            torch.maximum,
            lambda a, b: torch.cat([a, b]),
            lambda a, b: a.add_(b),
        ):
            for pair in ((x, other), (other, x)):
                with pytest.raises(RuntimeError, match="same device"):
                    call(*pair)
        with pytest.raises(RuntimeError, match="dlall"):
            torch.add(x, x, out=other)
    torch.testing.assert_close((x + torch.tensor(2.0)).cpu(), x.cpu() + 2)
    torch.testing.assert_close(x[torch.tensor([2, 0])].cpu(), x.cpu()[[2, 0]])
    works(place)


def test_bytes_of_storages(place: str) -> None:
    x = torch.arange(5, dtype=torch.int16).to(place)
    storage = x.untyped_storage()
    assert storage.tolist() == x.cpu().untyped_storage().tolist()
    assert storage[2] == 1
    storage[0] = 7
    assert x.tolist() == [7, 1, 2, 3, 4]
    assert storage.clone().device == storage.device
    assert storage.cpu().device.type == "cpu"
    assert torch.UntypedStorage(6, device=place).fill_(3).tolist() == [3] * 6
    for refused in (
        lambda: storage.resize_(100),
        storage.share_memory_,
        lambda: storage.byteswap(torch.int16),
        lambda: torch.multiprocessing.reductions.reduce_storage(storage),
    ):
        with pytest.raises(DeviceError, match="dlall"):
            refused()
    with pytest.raises(RuntimeError):
        x.set_(storage, 0, (100,), (1,))
    with pytest.raises(RuntimeError):
        x.set_(torch.ones(3).untyped_storage())
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()
    works(place)


def test_sparse_and_quantized_tensors_are_refused(place: str) -> None:
    x = torch.rand(3, 3, device=place)
    with pytest.raises(DeviceError, match="sparse or quantized"):
        torch.eye(3).to_sparse().to(place)
    with pytest.raises(DeviceError, match="sparse and quantized"):
        x.to_sparse()
    with pytest.raises(RuntimeError, match="sparse and quantized"):
        torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    works(place)


def test_too_large_tensors_are_refused(place: str) -> None:
    for shape in ((2**50,), (2**40, 2**40), (2**62,)):
        with pytest.raises(OutOfMemoryError):
            torch.empty(shape, device=place)
    with pytest.raises(OutOfMemoryError):
        torch.ones(1, device=place).expand(2**47).contiguous()
    works(place)


def test_memory_is_usable_again_after_it_ran_out() -> None:
    if "vulkan:0" not in dl.torch.devices.names():
        pytest.skip("there is no vulkan:0")
    place = f"dlall:{dl.torch.devices.names().index('vulkan:0')}"
    weight = torch.randn(1000, 1000, device=place, requires_grad=True)
    dl.memory.limit("vulkan:0", dl.memory.stats("vulkan:0").reserved + 2**23)
    try:
        with pytest.raises(OutOfMemoryError):
            functools.reduce(lambda result, _: (result * 1.5).tanh(), range(50), weight)
        (weight[:10] * 2).sum().backward()
        assert weight.grad is not None
    finally:
        dl.memory.limit("vulkan:0", None)
    works(place)


def test_interrupted_backward(place: str) -> None:
    weight = torch.randn(3, 3, device=place, requires_grad=True)
    middle = weight * 2
    handle = middle.register_hook(lambda grad: signal.raise_signal(signal.SIGINT))
    loss = middle.exp().sum()
    with pytest.raises(KeyboardInterrupt):
        loss.backward(retain_graph=True)
    assert weight.grad is None, weight.grad
    handle.remove()
    loss.backward()
    torch.testing.assert_close(weight.grad.cpu(), 2 * (2 * weight.detach().cpu()).exp())  # type: ignore[attr-defined]


def test_threads_compute_at_once(place: str) -> None:
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3)).to(place)
    rows = [torch.randn(4, 5) for _ in range(4)]

    def gradient(x: Any) -> Any:
        x = x.to(place).requires_grad_()
        (grad,) = torch.autograd.grad(module(x).square().sum(), x)
        return grad.cpu()

    expected = [gradient(x) for x in rows]
    found: dict[int, list[Any]] = {}

    def work(number: int) -> None:
        found[number] = [gradient(rows[number]) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, grads in found.items():
        for grad in grads:
            torch.testing.assert_close(grad, expected[number])
    assert len(found) == 4


def test_backward_in_a_thread_of_autograd() -> None:
    """What code in C++ starts runs there: PyTorch has a thread for the first device."""
    weight = torch.randn(3, 3, device="dlall:0", requires_grad=True)
    loss, one = (weight @ weight).sum(), torch.ones((), device="dlall:0")
    names: list[str] = []
    weight.register_hook(lambda grad: names.append(threading.current_thread().name))
    with torch.autograd.set_multithreading_enabled(True):
        (grad,) = Variable._execution_engine.run_backward(
            (loss,), (one,), False, False, (weight,), allow_unreachable=True, accumulate_grad=False
        )
    host = weight.detach().cpu().requires_grad_()
    (expected,) = torch.autograd.grad((host @ host).sum(), host)
    torch.testing.assert_close(grad.cpu(), expected)
    assert names != [threading.current_thread().name]


PROCESSES = """
import os, sys
import torch, dl4all.torch
from dl4all.errors import ForkError

x = torch.ones(3, device="dlall", requires_grad=True)
kept = (x * 2, torch.nn.Linear(3, 3).to("dlall:1"), torch.dlall.Event(), torch.Stream(device="dlall"))
kept[2].record()
assert kept[0].sum().item() == 6


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.ones(3, device="dlall") + index if index == 3 else torch.ones(3)


try:
    print([rows.shape for rows in torch.utils.data.DataLoader(Rows(), 2, num_workers=1)])
except ForkError as error:  # of the worker
    print("ForkError" if "fork" in str(error) else error)
child = os.fork()
if not child:
    torch.manual_seed(3)
    torch.randn(3)
    try:
        x + 1
    except ForkError:
        os._exit(7)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x + 1).sum().item())
"""


@pytest.mark.vulkan
def test_forked_children_and_exit_with_live_tensors() -> None:
    if "vulkan:0" not in dl.torch.devices.names():
        pytest.skip("there is no vulkan:0")
    done = run_python(
        PROCESSES, PYTORCH, DL4ALL_DEVICE="vulkan:0", DL4ALL_TORCH_FALLBACK="silent", OMP_NUM_THREADS="1"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["ForkError", "7 6.0"]


TWO_PROCESSES = """
import copy, os, sys, tempfile
import torch, torch.distributed as dist, dl4all.torch

folder = tempfile.mkdtemp()
child = os.fork()  # before a device is opened
rank = int(not child)
dist.init_process_group("gloo", store=dist.FileStore(folder + "/store", 2), rank=rank, world_size=2)
total = torch.full((3,), float(rank + 1), device="dlall")
dist.all_reduce(total)
parts = [torch.empty(2, device="dlall") for _ in range(2)]
dist.all_gather(parts, torch.full((2,), float(rank), device="dlall"))
assert total.tolist() == [3.0] * 3 and [part.tolist() for part in parts] == [[0.0, 0.0], [1.0, 1.0]]

if rank:
    assert dist.recv(total) == 0 and total.tolist() == [5.0] * 3  # from whoever sends
else:
    dist.send(torch.full((3,), 5.0, device="dlall"), 1)
received = torch.zeros(3, 2, device="dlall")
sent = dist.isend(torch.arange(3.0, device="dlall") + rank, 1 - rank)
came = dist.irecv(received[:, 1], 1 - rank)
for message in (came, sent, sent):  # each process sends before it receives, and waits once more than it must
    message.wait()
assert received.tolist() == [[0.0, 1.0 - rank], [0.0, 2.0 - rank], [0.0, 3.0 - rank]]
assert sent.is_completed() and came.is_completed()

torch.manual_seed(5)
host = torch.nn.Sequential(torch.nn.Linear(7, 11), torch.nn.Tanh(), torch.nn.Linear(11, 3))
x, y = torch.randn(8, 7), torch.randn(8, 3)
torch.nn.functional.mse_loss(host(x), y).backward()
mine = slice(4 * rank, 4 * rank + 4)
for options in ({}, {"find_unused_parameters": True}):
    module = copy.deepcopy(host).to("dlall")
    module.zero_grad()
    module = torch.nn.parallel.DistributedDataParallel(module, **options)
    torch.nn.functional.mse_loss(module(x[mine].to("dlall")), y[mine].to("dlall")).backward()
    for ours, theirs in zip(module.parameters(), host.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
dist.barrier()
dist.destroy_process_group()
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("equal")
"""


def test_collectives_stage_through_the_cpu(place: str) -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        x = torch.randn(3, 2).to(place).t()
        expected = x.cpu()
        parts = [torch.empty(2, 3, device=place)]
        torch.distributed.all_reduce(x, async_op=True).wait()
        torch.distributed.all_gather(parts, x)
        torch.distributed.barrier()
        assert torch.equal(x.cpu(), expected)
        assert torch.equal(parts[0].cpu(), expected)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.full
def test_gradients_of_two_processes_are_those_of_the_batch() -> None:
    done = run_python(
        TWO_PROCESSES, PYTORCH, DL4ALL_DEVICE="cpu", DL4ALL_TORCH_FALLBACK="silent", OMP_NUM_THREADS="1"
    )
    assert done.returncode == 0, done.stderr
    assert "equal" in done.stdout, done.stderr
