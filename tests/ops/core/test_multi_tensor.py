"""One dispatch for many parameters computes what one for each does, bit by bit, wherever they lie."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.nn.utils import clip_grad_norm_
from dl4all.ops import all_shaders
from dl4all.ops.core.kernels.multi_tensor import MAX_ROWS, MultiTensor, MultiTensorPlan, Role
from dl4all.optim import EMA, SGD, Adadelta, Adagrad, Adam, AdamW, Lion, RMSprop
from dl4all.runtime import spirv
from dl4all.runtime.device_info import Limits
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch
from tests.conftest import need, run_python
from tests.support.operands import generator

pytestmark = pytest.mark.vulkan

SHAPES = ((7, 5), (13,), (), (0, 3), (1031,), (64, 33), (1,), (5000,))
FILLED = sum(0 not in shape for shape in SHAPES)
CASES: list[tuple[Any, dict[str, Any]]] = [
    (SGD, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    (SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    (SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    (Adam, {"lr": 0.01, "weight_decay": 0.1}),
    (Adam, {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-3, "amsgrad": True}),
    (AdamW, {"lr": 0.01, "weight_decay": 0.3, "maximize": True}),
    (AdamW, {"lr": 0.01, "amsgrad": True}),
    (RMSprop, {"lr": 0.01, "weight_decay": 0.1}),
    (RMSprop, {"lr": 0.01, "centered": True}),
    (RMSprop, {"lr": 0.01, "momentum": 0.9, "alpha": 0.9, "eps": 1e-4}),
    (RMSprop, {"lr": 0.01, "momentum": 0.9, "centered": True, "maximize": True}),
    (Adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    (Adadelta, {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}),
    (Lion, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.95, 0.98)}),
]
IDS = [f"{cls.__name__}-{'-'.join(f'{k}={v}' for k, v in options.items())}" for cls, options in CASES]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few parameters go together too."""
    monkeypatch.setattr("dl4all.ops.core.kernels.multi_tensor.MIN_SAVED_DISPATCHES", 1)


@pytest.fixture
def place() -> dl.Device:
    """With a pool of its own: in how many buffers tensors lie depends on what was there before."""
    need("vulkan:0")
    return Device.of_backend("vulkan:0", dl.device("vulkan:0")._backend)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many dispatches there were of each shader of an optimizer."""
    counted: Counter[str] = Counter()
    launch = Device.launch

    def counting(self: Device, what: Launch, *storages: Any) -> None:
        if what.shader.path.startswith("optim/"):
            counted[what.shader.path[6:-5] + "+" * (("MULTI_TENSOR", "1") in what.shader.defines)] += 1
        launch(self, what, *storages)

    monkeypatch.setattr(Device, "launch", counting)
    return counted


def made(place: dl.Device, shapes: Sequence[tuple[int, ...]] = SHAPES) -> list[dl.Tensor]:
    rng = generator("together")
    arrays = [np.asarray(rng.standard_normal(shape), np.float32) for shape in shapes]
    return [dl.tensor(a, device=place).requires_grad_() for a in arrays]


def give(params: Sequence[dl.Tensor], step: int) -> None:
    rng = generator("gradients", step)
    for p in params:
        p.grad = dl.tensor(np.asarray(rng.standard_normal(p.shape), np.float32), device=p.device)


Run = Callable[[], list[dl.Tensor]]


def one_by_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[dl.Tensor]:
    with monkeypatch.context() as patch:
        patch.setattr(
            MultiTensor,
            "plan",
            lambda self, jobs, roles, slot=None: MultiTensorPlan((), tuple(range(len(jobs)))),
        )
        return run()


def same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways give the same bits, and something that is not trivial."""
    expected = [t.numpy().copy() for t in one_by_one(run, monkeypatch)]
    found = run()
    for t, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(t.numpy(), want)
        assert np.isfinite(want).all()
    assert any(np.ptp(want) > 0 for want in expected if want.size)


def everything(params: Sequence[dl.Tensor], optimizer: Any) -> list[dl.Tensor]:
    """The parameters, and all of the state."""
    parts = [v for p in params for v in optimizer.state[p].values() if isinstance(v, dl.Tensor)]
    return [p.detach() for p in params] + [part for part in parts if part.numel() > 1]


@pytest.mark.parametrize(("cls", "options"), CASES, ids=IDS)
def test_the_same_bits(
    cls: Any,
    options: dict[str, Any],
    place: dl.Device,
    launched: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run() -> list[dl.Tensor]:
        params = made(place)
        optimizer = cls(params, **options)
        for step in range(4):
            give(params, step)
            optimizer.step()
        return everything(params, optimizer)

    same(run, monkeypatch)
    (alone, first), (together, second) = sorted(launched.items())
    assert together == alone + "+"
    assert (first, second < first / 2) == (4 * FILLED, True)


def test_averages(place: dl.Device, launched: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[dl.Tensor]:
        params = made(place)
        ema = EMA(params, decay=0.9)
        for step in range(3):
            give(params, step)
            SGD(params, lr=0.1).step()
            ema.update()
        return ema.shadow

    same(run, monkeypatch)
    assert launched["ema"] == 3 * FILLED
    assert launched["ema+"] == 3


def test_one_dispatch_and_one_table(place: dl.Device, launched: Counter[str]) -> None:
    """Where the gradients lie where they lay, nothing is planned or uploaded anew."""
    params = made(place)
    optimizer = SGD(params, lr=0.1, momentum=0.9)
    give(params, 0)
    optimizer.step()
    tables = [batch.table for batch in known(optimizer)]
    for _ in range(3):
        optimizer.step()
    assert [batch.table for batch in known(optimizer)] == tables
    assert launched == {"sgd+": 4}


def known(optimizer: Any) -> Iterator[Any]:
    """The batches of all the plans that an optimizer has kept."""
    for _, plan in optimizer._plans._plans.values():
        yield from plan.batches


def test_few_parameters_go_alone(
    place: dl.Device, launched: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dl4all.ops.core.kernels.multi_tensor.MIN_SAVED_DISPATCHES", 8)
    for count in (8, 9):
        params = made(place, [(3,)] * count)
        give(params, 0)
        SGD(params, lr=0.1).step()
    assert launched == {"sgd": 8, "sgd+": 1}


def test_one_parameter_has_no_table(place: dl.Device, launched: Counter[str]) -> None:
    params = made(place, [(7, 5)])
    give(params, 0)
    Adam(params).step()
    assert launched == {"adam": 1}


def test_several_buffers(place: dl.Device, launched: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatch for each set of buffers that at least two parameters lie in, and one for who is alone."""
    buffers: list[tuple[Any, ...]] = []

    def run() -> list[dl.Tensor]:
        params = made(place, [(700, 411), (13,), (600, 513), (5, 7), (900, 301), (3, 3, 3)])
        optimizer = Adam(params)
        for step in range(3):
            give(params, step)
            optimizer.step()
        held = [(p.storage, p.grad.storage, optimizer.state[p]["exp_avg"].storage) for p in params]
        buffers[:] = [tuple(storage.buffer for storage in storages) for storages in held]
        return everything(params, optimizer)

    same(run, monkeypatch)
    assert len(set(buffers)) > 1
    launched.clear()
    run()
    assert launched["adam+"] >= 3
    assert launched.total() < 3 * len(buffers)


def test_missing_and_changing_gradients(
    place: dl.Device, launched: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters that rest for some steps are behind the others, which go on in another dispatch."""

    def run() -> list[dl.Tensor]:
        params = made(place)
        optimizer = AdamW(params, lr=0.1)
        kept = []
        for step in range(6):
            give(params, step)
            kept += [p.grad for p in params[: step % 3]]  # so that the next ones lie elsewhere
            for p in params[step % 4 :: 3]:
                p.grad = None
            optimizer.step()
        assert len({optimizer.state[p]["step"] for p in params if p.numel()}) > 1
        return everything(params, optimizer)

    same(run, monkeypatch)
    assert launched["adam+"] > 6


def test_layouts_of_gradients(place: dl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[dl.Tensor]:
        params = made(place, [(7, 5), (5, 7), (12,), (6, 1, 4), (1, 9)])
        optimizer = SGD(params, lr=0.1, momentum=0.9)
        rng = generator("layouts")
        for _ in range(3):
            for p in params:
                whole = dl.tensor(rng.standard_normal((3, *p.shape[::-1])).astype(np.float32), device=place)
                p.grad = whole[1].permute(*reversed(range(len(p.shape))))
            params[4].grad = dl.tensor([[0.5]], device=place).expand(1, 9)
            optimizer.step()
        return everything(params, optimizer)

    same(run, monkeypatch)


@pytest.mark.parametrize("overlap", [0, 5])
def test_shared_memory(
    overlap: int, place: dl.Device, launched: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of one tensor go together, unless they overlap: then the first is done before the second."""
    whole = generator("whole").standard_normal(100).astype(np.float32)

    def run() -> list[dl.Tensor]:
        memory = dl.tensor(whole, device=place)
        params: list[dl.Tensor] = [memory[3:33].detach(), memory[33 - overlap : 70].detach().reshape(-1)]
        optimizer = SGD(params, lr=0.1)
        for step in range(3):
            give(params, step)
            optimizer.step()
        return [memory]

    same(run, monkeypatch)
    assert launched == ({"sgd": 12} if overlap else {"sgd": 6, "sgd+": 3})
    np.testing.assert_array_equal(run()[0].numpy()[[0, 1, 2, 70, 99]], whole[[0, 1, 2, 70, 99]])


def test_a_gradient_that_is_a_parameter(place: dl.Device, launched: Counter[str]) -> None:
    a, b = dl.tensor([1.0, 2.0], device=place), dl.tensor([3.0, 4.0], device=place)
    a.grad, b.grad = a.detach(), a.detach()
    SGD([a, b], lr=0.5).step()
    assert (a.tolist(), b.tolist()) == ([0.5, 1.0], [2.75, 3.5])
    assert launched == {"sgd": 2}


def test_one_gradient_for_two(place: dl.Device, launched: Counter[str]) -> None:
    a, b = dl.tensor([1.0, 2.0], device=place), dl.tensor([3.0, 4.0], device=place)
    a.grad = b.grad = dl.tensor([1.0, -1.0], device=place)
    SGD([a, b], lr=0.5).step()
    assert (a.tolist(), b.tolist()) == ([0.5, 2.5], [2.5, 4.5])
    assert launched == {"sgd+": 1}


def test_saved_and_loaded(place: dl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[dl.Tensor]:
        params = made(place)
        optimizer = Adam(params, amsgrad=True)
        for step in range(4):
            give(params, step)
            if step == 2:
                saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
                optimizer = Adam(params)
                optimizer.load_state_dict(saved)
            optimizer.step()
        return everything(params, optimizer)

    same(run, monkeypatch)


def test_copies_plan_anew(place: dl.Device) -> None:
    params = made(place)
    give(params, 0)
    optimizer = SGD(params, lr=0.1)
    optimizer.step()
    assert list(known(optimizer))
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert not list(known(other))
        copies = other.param_groups[0]["params"]
        give(copies, 1)
        other.step()
    give(params, 1)
    optimizer.step()
    for p, q in zip(params, copies, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())


def test_states_are_separate_tensors(place: dl.Device) -> None:
    """They begin their storages, although they lie side by side, and the memory goes back with the last."""
    before = place.pool.stats.allocated
    params = made(place)
    optimizer: Any = Adam(params)
    give(params, 0)
    optimizer.step()
    means = [optimizer.state[p]["exp_avg"] for p in params if p.numel()]
    assert len({mean.storage for mean in means}) == len(means)
    assert len({mean.storage.buffer for mean in means}) == 1
    assert all(mean.offset == 0 and mean.storage.nbytes == 8 * mean.numel() for mean in means)
    kept = means[0].numpy().copy()
    del optimizer, params
    assert place.pool.stats.allocated > before
    np.testing.assert_array_equal(means[0].numpy(), kept)
    del means
    assert place.pool.stats.allocated == before


def test_small_spans(place: dl.Device, launched: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device can bind at once is less than where the parameters lie."""
    limits = dataclasses.replace(place.info.limits, storage_buffer_range=20480)
    monkeypatch.setattr(place, "info", dataclasses.replace(place.info, limits=limits))
    bound: list[int] = []
    launch = Device.launch

    def looking(self: Device, what: Launch, *storages: Any) -> None:
        bound.extend(storage.span.nbytes for storage in storages)
        launch(self, what, *storages)

    def run() -> list[dl.Tensor]:
        monkeypatch.setattr(Device, "launch", looking)
        params = made(place, [(1031,)] * 12)
        optimizer = Adam(params)
        for step in range(2):
            give(params, step)
            optimizer.step()
        monkeypatch.setattr(Device, "launch", launch)
        return everything(params, optimizer)

    same(run, monkeypatch)
    assert launched["adam+"] >= 2 * 3
    assert max(bound) <= 20480


def test_many_workgroups(place: dl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workgroup does more where there are too few of them."""

    def run() -> list[dl.Tensor]:
        params = made(place, [(5000,), (1,), (129,)])
        give(params, 0)
        SGD(params, lr=0.1).step()
        return [p.detach() for p in params]

    monkeypatch.setattr("dl4all.ops.core.kernels.multi_tensor.ELEMENTS_PER_GROUP", 100)
    monkeypatch.setattr("dl4all.ops.core.kernels.multi_tensor.MAX_GRID_SIZE", 10)
    same(run, monkeypatch)


def test_many_parameters(place: dl.Device, launched: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dl4all.ops.core.kernels.multi_tensor.MAX_ROWS", 16)
    assert MAX_ROWS < 1 << 16

    def run() -> list[dl.Tensor]:
        params = made(place, [(3,)] * 50)
        give(params, 0)
        SGD(params, lr=0.1).step()
        return [p.detach() for p in params]

    same(run, monkeypatch)
    assert launched == {"sgd": 50, "sgd+": 4}


def test_groups_and_dtypes(place: dl.Device, launched: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups have their own options; what is no contiguous float32 goes through the host."""

    def run() -> list[dl.Tensor]:
        params = made(place)
        double = dl.tensor([1.0, 2.0], device=place).double()
        turned = dl.tensor(np.ones((3, 2), np.float32), device=place).T.detach()
        groups: list[dict[str, Any]] = [
            {"params": params[:5]},
            {"params": [*params[5:], double, turned], "lr": 0.5},
        ]
        optimizer = SGD(groups, lr=0.1)
        for step in range(2):
            give(params, step)
            double.grad = dl.tensor([1.0, -1.0], device=place).double()
            turned.grad = dl.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=place)
            optimizer.step()
        return [*(p.detach() for p in params), double, turned]

    same(run, monkeypatch)
    assert launched["sgd+"] == 4


def test_the_least_limits(launched: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    backend = VulkanBackend(0)
    place = dl.Device.of_backend("vulkan:0", backend)
    place.info = dataclasses.replace(place.info, limits=Limits())

    def run() -> list[dl.Tensor]:
        params = made(place)
        optimizer = Adam(params, amsgrad=True)
        for step in range(2):
            give(params, step)
            optimizer.step()
        return [dl.tensor(t.numpy(), device="cpu") for t in everything(params, optimizer)]

    try:
        same(run, monkeypatch)
    finally:
        backend.close()
    assert launched == {"adam": 2 * FILLED, "adam+": 2}


def test_long_dispatches_can_be_cut() -> None:
    """No kernel for many asks how many workgroups there are."""
    together = [code for code in all_shaders() if ("MULTI_TENSOR", "1") in code.defines]
    assert len(together) > len({cls for cls, _ in CASES})
    assert not any(spirv.load(code).interface.counts_groups for code in together)


@pytest.mark.parametrize("name", ["kompute:0", "cpu"])
def test_devices_that_bind_whole_buffers(name: str) -> None:
    need(name)
    params = made(dl.device(name))
    plan = MultiTensor().plan([(p,) for p in params if p.numel()], [Role(written=True)])
    assert plan == MultiTensorPlan((), tuple(range(FILLED)))


def test_guards_are_looked_at_one_by_one() -> None:
    need("vulkan:0")
    code = """
import dl4all as dl
params = [dl.tensor([1.0, 2.0], device="vulkan:0") for _ in range(3)]
for p in params:
    p.grad = dl.tensor([1.0, 1.0], device="vulkan:0")
optimizer = dl.optim.Adam(params, lr=0.5)
optimizer.step()
print(optimizer._plans._plans, [[round(x, 3) for x in p.tolist()] for p in params])
"""
    done = run_python(code, DL4ALL_MEMORY_DEBUG="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{} [[0.5, 1.5], [0.5, 1.5], [0.5, 1.5]]"


def test_memory_of_another_stream(place: dl.Device, launched: Counter[str]) -> None:
    """What lies around it may be in use there."""
    params = made(place)
    stream = place._backend.new_stream()
    p = dl.tensor(np.ones(5, np.float32), device=place)
    p.storage = place.pool.storage(20, "", stream)
    dl.ops.copy_(p, dl.tensor(np.ones(5, np.float32), device=place))
    params.append(p)
    give(params, 0)
    SGD(params, lr=0.1).step()
    assert launched == {"sgd": 1, "sgd+": 1}
    np.testing.assert_allclose(p.detach().numpy(), 1 - 0.1 * p.grad.numpy(), rtol=1e-6)
    dl.synchronize("vulkan:0")
    del p, params
    place.pool.trim()


# Clipping


def test_clipped_gradients(place: dl.Device, launched: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[dl.Tensor]:
        params = made(place)
        give(params, 0)
        versions = [p.grad.storage.version for p in params]
        norm = clip_grad_norm_(params, 1.0)
        changed = [p.grad.storage.version - v for p, v in zip(params, versions, strict=True)]
        assert changed == [int(p.numel() > 0) for p in params]
        return [norm, *(p.grad for p in params)]

    expected = [t.numpy().copy() for t in one_by_one(run, monkeypatch)]
    assert launched == {"squares": FILLED}
    launched.clear()
    for t, want in zip(run(), expected, strict=True):
        np.testing.assert_allclose(t.numpy(), want, rtol=1e-6)
    assert launched == {"squares+": 1, "scale": 1}


def test_clipped_gradients_of_many_kinds(place: dl.Device) -> None:
    """Those that cannot go together are clipped all the same, a shared one once for each parameter."""
    params = made(place, [(4, 3), (12,), (6,), (6,)])
    give(params, 0)
    params[0].grad = params[0].grad.T.contiguous().T
    params[2].grad = params[3].grad
    before = [p.grad.numpy().astype(np.float64) for p in params]
    length = np.sqrt(sum((g * g).sum() for g in before))
    assert clip_grad_norm_(params, 0.5).item() == pytest.approx(length, rel=1e-6)
    times = [1, 1, 2, 2]
    for p, g, n in zip(params, before, times, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), g * (0.5 / (length + 1e-6)) ** n, rtol=1e-5)
