"""Faults that attacks on this library found, each as it was found; broader tests lie beside this file."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import pickle
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, OutOfMemoryError
from dl4all.graph.run.compiled import CompileWarning
from dl4all.nn import functional as F
from dl4all.ops.core.kernels.launch_plan import call_of
from dl4all.scheduler.device.device import Device
from tests.conftest import need, run_python

VULKAN = [pytest.param("vulkan:0", marks=pytest.mark.vulkan)]
DEVICES = ["cpu", *VULKAN]


@pytest.fixture(autouse=True)
def no_compile_warnings() -> Iterator[None]:
    """What is not compiled says so, which is no error here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompileWarning)
        yield


def trained(optimizer: Callable[[Any], Any], pause: str, *, compiled: bool, device: str) -> list[Any]:
    """Two parameters after 30 steps in which the second one pauses."""
    w = [dl.nn.Parameter(dl.tensor([1.0, 0.5], device=device)) for _ in range(2)]
    opt = optimizer(w)

    def step(x: Any, both: bool) -> None:
        opt.zero_grad()
        loss = (w[0] ** 2 * x).sum()
        if both:
            loss = loss + (w[1] ** 2 * x).sum()
        loss.backward()
        opt.step()

    run = dl.compile(step) if compiled else step
    for k in range(30):
        x = dl.tensor([1.0, 2.0], device=device) * (1 + k)
        if pause == "a branch":
            run(x, (k // 5) % 2 == 0)
        elif pause == "requires_grad":
            w[1].requires_grad_((k // 5) % 2 == 0)
            run(x, True)
        else:
            run(x, True)
            if k == 20:
                opt.state[w[1]]["step"] = 2
    return [one.tolist() for one in w]


OPTIMIZERS = {
    "Adam": lambda w: dl.optim.Adam(w, lr=0.1),
    "AdamW": lambda w: dl.optim.AdamW(w, lr=0.1, amsgrad=True),
    "Adamax": lambda w: dl.optim.Adamax(w, lr=0.1),
    "NAdam": lambda w: dl.optim.NAdam(w, lr=0.1),
    "RAdam": lambda w: dl.optim.RAdam(w, lr=0.1),
    "Adagrad": lambda w: dl.optim.Adagrad(w, lr=0.1, lr_decay=0.1),
    "ASGD": lambda w: dl.optim.ASGD(w, lr=0.1, t0=4, lambd=0),
    "SGD": lambda w: dl.optim.SGD(w, lr=0.01),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pause", ["a branch", "requires_grad", "a count that is set"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_compiled_step_counts_the_steps_of_each_parameter(name: str, pause: str, device: str) -> None:
    need(device)
    eager, compiled = (trained(OPTIMIZERS[name], pause, compiled=way, device=device) for way in (False, True))
    np.testing.assert_allclose(compiled, eager, 1e-6)


def test_steps_of_plain_sgd_that_pause_are_compiled() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(OPTIMIZERS["SGD"], "a branch", compiled=True, device="cpu")


@pytest.mark.parametrize("setter", ["__setitem__", "update", "__ior__"])
def test_a_compiled_step_that_sets_an_option_sets_it_each_time(setter: str) -> None:
    w = dl.nn.Parameter(dl.ones(2, device="cpu"))
    opt = dl.optim.SGD([w], lr=0.5)

    def step(x: Any) -> None:
        opt.zero_grad()
        (w * x).sum().backward()
        getattr(opt.param_groups[0], setter)(*(("lr", 0.25) if setter == "__setitem__" else ({"lr": 0.25},)))
        opt.step()

    run = dl.compile(step)
    for _ in range(6):
        opt.param_groups[0]["lr"] = 0.5
        run(dl.ones(2, device="cpu"))
    assert w.tolist() == [1 - 6 * 0.25] * 2


def test_gradients_do_not_reach_what_wants_none_any_more() -> None:
    w = dl.nn.Parameter(dl.ones(2))
    loss = (w * w).sum()
    w.requires_grad_(False)
    loss.backward()
    assert w.grad is None


@pytest.mark.parametrize("change", ["t_", "transpose_", "squeeze_", "unsqueeze_"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_compiled_function_changes_the_shape_of_an_argument(device: str, change: str) -> None:
    need(device)
    arguments = {"t_": (), "transpose_": (0, 1), "squeeze_": (), "unsqueeze_": (1,)}[change]

    def function(x: Any, y: Any) -> Any:
        getattr(x, change)(*arguments)
        return x * 2, x, y

    run = dl.compile(function)
    for k in range(5):
        x, y = (dl.arange(6.0, device=device).reshape(1, 6)[:, : 3 + k % 1] for _ in range(2))
        other = dl.tensor(x.tolist(), device=device)
        doubled, same, _ = run(x, y)
        getattr(other, change)(*arguments)
        assert (x.shape, x.stride(), same is x) == (other.shape, x.stride(), True)
        assert doubled.tolist() == (other * 2).tolist()


def test_a_compiled_function_that_gives_an_argument_other_memory_is_refused() -> None:
    def function(x: Any) -> Any:
        x.data = x * 2
        return x + 1

    run = dl.compile(function)
    for _ in range(5):
        x = dl.ones(2, device="cpu")
        assert (run(x).tolist(), x.tolist()) == ([3.0, 3.0], [2.0, 2.0])


def test_a_replay_follows_default_dtype_device_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        return x + dl.ones(2, device="cpu").sum() + len(os.environ.get("DL4ALL_NO_SUCH_SETTING", ""))

    run, x = dl.compile(function), dl.ones(2, dtype="int32", device="cpu")
    for _ in range(5):
        assert run(x).dtype == "float32"
    dl.set_default_dtype(dl.float64)
    try:
        assert run(x).dtype == "float64"
    finally:
        dl.set_default_dtype(dl.float32)
    monkeypatch.setenv("DL4ALL_NO_SUCH_SETTING", "five5")
    assert run(x).tolist() == [8.0, 8.0]
    monkeypatch.delenv("DL4ALL_NO_SUCH_SETTING")
    assert run(x).tolist() == [3.0, 3.0]
    made = dl.compile(lambda x: (x * 2, dl.ones(2) * 3))
    for _ in range(5):
        assert made(x)[1].device == "cpu"
    assert made.specializations
    with dl.device("cpu#1"):
        assert made(x)[1].device == "cpu#1"


@pytest.mark.parametrize("device", DEVICES)
def test_selecting_from_an_expanded_tensor_copies_nothing(device: str) -> None:
    need(device)
    x = dl.arange(4.0, device=device).reshape(4, 1).expand(4, 2**30)
    index = dl.tensor([3, 1], device=device)
    assert x[[3], [5]].tolist() == [3.0]
    assert x[index, dl.tensor([5, 2**30 - 1], device=device)].tolist() == [3.0, 1.0]
    assert x[:, index].tolist() == [[float(row)] * 2 for row in range(4)]
    assert dl.gather(x, 0, index[None]).tolist() == [[3.0, 1.0]]
    assert dl.gather(x, 1, index.reshape(2, 1)).tolist() == [[0.0], [1.0]]
    assert dl.take(x, dl.tensor([3 * 2**30 + 7, 5], device=device)).tolist() == [3.0, 0.0]
    assert dl.index_select(x, 1, index).shape == (4, 2)
    for wrong in ([[4], [0]], [[0], [2**30]]):
        with pytest.raises(ArgumentError, match="out of range"):
            x[wrong[0], wrong[1]].tolist()
    every_other = dl.arange(48.0, device=device).reshape(3, 16)[:, ::2]
    assert dl.index_select(every_other, 0, index - 1).tolist() == every_other.tolist()[2::-2]
    table = dl.arange(12.0, device=device).reshape(3, 4).t()
    assert F.embedding(index, table).tolist() == [[3.0, 7.0, 11.0], [1.0, 5.0, 9.0]]
    wanted = dl.rand(4, 3, device=device).requires_grad_()
    wanted.expand(2, 4, 3)[[0, 1], [1, 1]].sum().backward()
    assert wanted.grad.tolist() == [[0.0] * 3, [2.0] * 3, [0.0] * 3, [0.0] * 3]


def test_parallel_models_within_others_are_refused() -> None:
    with dl.DeviceGroup(["cpu", "cpu#1"]) as group:
        inner = dl.parallel(dl.nn.Linear(4, 3), group)
        for outer in (inner, dl.nn.Sequential(inner, dl.nn.ReLU())):
            with pytest.raises(ArgumentError, match=r"\[parallel\].*is a DataParallel itself"):
                dl.parallel(outer, group)
            with pytest.raises(ArgumentError, match=r"\[pipeline\].*is a DataParallel itself"):
                dl.pipeline(outer, group, split=["1"])
        piped = dl.pipeline(dl.nn.Sequential(dl.nn.Linear(4, 3), dl.nn.ReLU()), group, split=["1"])
        with pytest.raises(ArgumentError, match="is a Pipeline itself"):
            dl.parallel(piped, group)


def test_bad_use_of_several_devices_is_explained() -> None:
    with dl.DeviceGroup(["cpu", "cpu#1"]) as group:
        net = dl.parallel(dl.nn.Linear(4, 3), group)
        assert net(dl.ones(0, 4, device="cpu")).shape == (0, 3)
        for spread in (copy.deepcopy, pickle.dumps):
            with pytest.raises(ArgumentError, match="cannot be copied or pickled"):
                spread(net)
        for given in ((64,), (), (dl.ones(0, 4, device="cpu"),)):
            with pytest.raises(ArgumentError, match=r"\[plan\] expected a batch"):
                net.plan(*given)
        with pytest.raises(ArgumentError, match=r"split must be .* got None"):
            dl.pipeline(dl.nn.Sequential(dl.nn.Linear(4, 3)), group, split=None)  # type: ignore[arg-type]


class Counter:
    """A plain class with compiled methods."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    @dl.compile
    def scaled(self, x: Any) -> Any:
        return x * self.factor + 1


def test_compiled_methods_are_those_of_their_object() -> None:
    x, (one, other) = dl.ones(2, device="cpu"), (Counter(2.0), Counter(3.0))
    for _ in range(5):
        assert (one.scaled(x).tolist(), other.scaled(x).tolist()) == ([3.0, 3.0], [4.0, 4.0])
    one.factor = 5.0
    assert one.scaled(x).tolist() == [6.0, 6.0]
    assert one.scaled is one.scaled
    assert len(one.scaled.specializations) == 1
    assert copy.deepcopy(one).scaled(x).tolist() == [6.0, 6.0]


@pytest.mark.parametrize("length", [2**32, 2**62, -(2**63), -5])
def test_target_lengths_of_ctc_are_checked(length: int) -> None:
    scores = F.log_softmax(dl.rand(5, 2, 4), -1)
    for targets in (dl.tensor([[1, 2], [1, 2]]), dl.tensor([1, 2, 1])):
        with pytest.raises(ArgumentError, match=r"\[ctc_loss\] target_lengths must lie between 0 and"):
            F.ctc_loss(scores, targets, [5, 5], [2, length])


@pytest.mark.parametrize("device", DEVICES)
def test_small_forms_of_pytorch(device: str) -> None:
    need(device)
    x = dl.tensor([[1.0, -2.0], [3.0, 0.5]], device=device).requires_grad_()
    assert +x is x
    assert x.real is x
    w = dl.tensor([2.0, 1.0], device=device).requires_grad_()
    y = F.linear(x, w)
    assert y.tolist() == [0.0, 6.5]
    y.sum().backward()
    assert (w.grad.tolist(), x.grad.tolist()) == ([4.0, -1.5], [[2.0, 1.0], [2.0, 1.0]])
    image = dl.arange(12.0, device=device).reshape(1, 1, 3, 4)
    grid = dl.tensor([[[[math.nan, 0.2], [0.0, 0.0]]]], device=device)
    values = F.grid_sample(image, grid, padding_mode="border", align_corners=True).flatten().tolist()
    assert values == pytest.approx([4.8, 5.5])


def test_an_index_out_of_range_is_told_at_the_end_of_the_process() -> None:
    need("vulkan:0")
    ended = run_python(
        "import dl4all as dl\n"
        "dl.nn.functional.embedding(dl.tensor([1, 7], device='vulkan:0'), dl.rand(5, 3, device='vulkan:0'))"
    )
    assert ended.returncode == 0
    assert "vulkan:0: [embedding] index 7 is out of range for an axis of size 5 (called at" in ended.stderr


def test_an_interrupt_does_not_wait_for_a_task_that_sleeps() -> None:
    begun = time.monotonic()
    ended = run_python(
        "import dl4all as dl, time, _thread, threading\n"
        "task = dl.Stream('cpu').submit(time.sleep, 60)\n"
        "threading.Timer(0.3, _thread.interrupt_main).start()\n"
        "task.result()"
    )
    assert "KeyboardInterrupt" in ended.stderr
    assert time.monotonic() - begun < 30


def test_a_result_of_vmap_that_lives_leaves_launch_plans_alone() -> None:
    w = dl.rand(3, 3, device="cpu", requires_grad=True)
    kept = dl.vmap(lambda v: w @ v)(dl.rand(5, 3, device="cpu"))
    assert call_of(dl.ops.relu, [dl.rand(16, device="cpu")]) is not None
    assert kept.requires_grad


@pytest.mark.vulkan
def test_reductions_of_tensors_without_axes_are_compiled() -> None:
    need("vulkan:0")
    run = dl.compile(lambda x: x.abs().amax(0).mean(0, keepdim=True))
    x = dl.tensor([1.0, -3.0, 2.0], device="vulkan:0")
    assert [run(x).tolist() for _ in range(4)] == [3.0] * 4


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_repeated_rows_lie_where_they_were_selected(device: str) -> None:
    need(device)
    rows = dl.rand(1, 2, 3, device=device).requires_grad_().expand(2, 2, 3)
    expected = np.zeros((2, 2, 3))
    expected[[1, 0], [1, 1]] = 1.0
    (gradient,) = dl.autograd.grad(rows[[1, 0], [1, 1]].sum(), rows)
    assert gradient.tolist() == expected.tolist()
    expected = np.zeros((2, 2, 3))
    expected[1] = 1.0
    (gradient,) = dl.autograd.grad(dl.index_select(rows, 0, dl.tensor([1], device=device)).sum(), rows)
    assert gradient.tolist() == expected.tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_a_replay_without_memory_loses_nothing(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of its allocations fails: gradients that are added up stay, and the next call is right."""
    need(device)
    w = dl.nn.Parameter(dl.ones(3, device=device))
    optimizer = dl.optim.Adam([w], lr=0.1)

    def accumulate(x: Any) -> Any:
        loss = (w * x).square().sum()
        loss.backward()
        return loss.detach() * 1

    @dl.compile
    def step() -> Any:
        optimizer.step()
        return w.detach() * 1

    run, x = dl.compile(accumulate), dl.tensor([1.0, 2.0, 3.0], device=device)
    for _ in range(6):
        run(x)
        step()
    before = [t.tolist() for t in (w, w.grad)], optimizer.state[w]["step"]
    allocate, left = Device.allocate, [0]

    def scarce(self: Device, nbytes: int, tag: str = "") -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OutOfMemoryError("[test] there is no more")
        return allocate(self, nbytes, tag)

    failed = 0
    for number in range(8):
        monkeypatch.setattr(Device, "allocate", scarce)
        for function, arguments in ((run, (x,)), (step, ())):
            left[0] = number
            with contextlib.suppress(OutOfMemoryError):
                function(*arguments)
                continue
            failed += 1
        monkeypatch.setattr(Device, "allocate", allocate)
        if failed == 2 * number + 2:
            assert ([t.tolist() for t in (w, w.grad)], optimizer.state[w]["step"]) == before
    assert failed
    grad = np.array(w.grad.tolist())
    run(x)
    np.testing.assert_allclose(w.grad.tolist(), grad + 2 * w.detach().numpy() * np.array([1, 4, 9]), 1e-5)
