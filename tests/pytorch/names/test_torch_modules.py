"""Modules that scripts import by path or ask first: accelerator, cuda, backends, amp, jit, linalg, ..."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import (
    ArgumentError,
    BackendMissingError,
    DataError,
    GradientError,
    UnknownDeviceError,
)

torch = pytest.importorskip("torch", reason="compared with PyTorch")


@pytest.mark.parametrize(
    "name",
    [
        "accelerator", "amp", "backends.cuda", "backends.cudnn", "backends.mkl", "backends.mkldnn",
        "backends.mps", "backends.openmp", "compiler", "cuda", "cuda.amp", "distributed", "fft", "jit",
        "linalg", "mps", "multiprocessing", "onnx", "random", "special", "version", "xpu",
    ],
)  # fmt: skip
def test_modules_are_imported_by_their_paths(name: str) -> None:
    module = importlib.import_module(f"dl4all.{name}")
    found: Any = dl
    for word in name.split("."):
        found = getattr(found, word)
    assert found is module
    assert all(hasattr(module, public) for public in getattr(module, "__all__", ()))


# Devices


@pytest.mark.parametrize("space", [dl.cuda, dl.mps, dl.xpu, dl.backends.cudnn])
def test_what_is_not_here_says_no(space: Any) -> None:
    assert space.is_available() is False


def test_questions_about_cuda() -> None:
    """As PyTorch answers without CUDA."""
    assert (dl.cuda.device_count(), dl.cuda.is_initialized(), dl.cuda.memory_allocated()) == (0, False, 0)
    for ignored in (dl.cuda.manual_seed, dl.cuda.manual_seed_all):
        ignored(3)
    dl.cuda.empty_cache()
    dl.cuda.reset_peak_memory_stats()
    for refused in (dl.cuda.synchronize, dl.cuda.current_device, dl.cuda.get_device_name):
        with pytest.raises(BackendMissingError, match="no device is called cuda"):
            refused()
    with pytest.raises(BackendMissingError, match="set_default_device"):
        dl.cuda.set_device(0)


@pytest.mark.vulkan
def test_the_accelerator_is_where_new_tensors_go() -> None:
    with dl.device("vulkan:0") as place:
        assert dl.accelerator.is_available()
        assert dl.accelerator.current_accelerator() is place
        assert dl.accelerator.device_count() >= 1
        assert dl.accelerator.current_device_index() == 0
        dl.accelerator.reset_peak_memory_stats()
        before = dl.accelerator.memory_allocated()
        x = dl.ones(101, 101, device=dl.accelerator.current_accelerator())
        dl.accelerator.synchronize()
        assert dl.accelerator.memory_allocated() - before >= x.nbytes
        assert dl.accelerator.max_memory_allocated(0) >= dl.accelerator.memory_allocated()
        dl.accelerator.empty_cache()


def test_without_an_accelerator() -> None:
    with dl.device("cpu"):
        assert not dl.accelerator.is_available()
        assert dl.accelerator.current_accelerator() is None
        assert dl.accelerator.device_count() == 0
        dl.accelerator.synchronize()
        for asked in (dl.accelerator.current_device_index, lambda: dl.accelerator.set_device_index(0)):
            with pytest.raises(UnknownDeviceError, match="no accelerator"):
                asked()


def test_settings_of_libraries_that_are_not_here() -> None:
    from dl4all.pytorch.names.backends import cudnn

    before = cudnn.benchmark, dl.backends.cuda.matmul.allow_tf32
    cudnn.benchmark, dl.backends.cuda.matmul.allow_tf32 = True, True
    assert dl.backends.cudnn.benchmark
    with cudnn.flags(benchmark=False):
        assert not cudnn.benchmark
    assert cudnn.benchmark
    cudnn.benchmark, dl.backends.cuda.matmul.allow_tf32 = before
    assert dl.backends.cudnn.version() is None
    assert dl.backends.cuda.is_built() is False
    assert dl.backends.cpu.get_cpu_capability()


# Mixed precision


def test_autocast() -> None:
    x = dl.rand(3)
    for switched_off in (dl.autocast("cpu", enabled=False), dl.amp.autocast("vulkan", enabled=False)):
        with switched_off:
            assert (x * 2).dtype == dl.float32
    with pytest.warns(UserWarning, match="no cuda devices"), dl.cuda.amp.autocast():
        assert (x * 2).dtype == dl.float32
    assert not dl.is_autocast_enabled()
    assert dl.amp.is_autocast_available("cpu")


def test_scaler_for_cuda_does_nothing() -> None:
    with pytest.warns(UserWarning, match="no cuda devices"):
        scaler = dl.cuda.amp.GradScaler()
    w = dl.nn.Parameter(dl.rand(3))
    optimizer = dl.optim.SGD([w], lr=1.0)
    loss = (w * w).sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    before = w.detach().clone()
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_allclose(w.detach().numpy(), before.numpy() - 2 * before.numpy(), rtol=1e-6)
    assert (scaler.get_scale(), scaler.state_dict()) == (1.0, {})


def _scaled_training(lib: Any, scaler: Any, place: dict[str, Any], layout: Any) -> Iterator[tuple[Any, ...]]:
    """Weights and scales of steps, one of which has an infinite gradient."""
    start = np.random.default_rng(0).random((3, 5)).astype(np.float32)
    w = lib.nn.Parameter(layout(lib.tensor(start, **place)))
    optimizer = lib.optim.SGD([w], lr=0.1)
    for factor in (1.0, 2.0, float("inf"), 1.0, 3.0, 0.5):
        optimizer.zero_grad()
        scaler.scale((w * w * factor).sum()).backward()
        scaler.unscale_(optimizer)
        lib.nn.utils.clip_grad_norm_([w], 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield w.detach().cpu().numpy().copy(), scaler.get_scale()


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.T], ids=["rows", "columns"])
def test_scaled_training_is_pytorchs(device: str, layout: Any) -> None:
    options: dict[str, Any] = {"init_scale": 64.0, "growth_interval": 2}
    ours = dl.amp.GradScaler(device, **options)
    theirs = torch.amp.GradScaler("cpu", **options)
    steps = zip(
        _scaled_training(dl, ours, {"device": device}, layout),
        _scaled_training(torch, theirs, {}, layout),
        strict=True,
    )
    for (weights, scale), (wanted, wanted_scale) in steps:
        np.testing.assert_allclose(weights, wanted, rtol=1e-5)
        assert scale == wanted_scale
    assert ours.state_dict() == theirs.state_dict()
    other = dl.amp.GradScaler(device)
    other.load_state_dict(theirs.state_dict())
    assert other.get_scale() == theirs.get_scale()


def test_scalers_refuse_a_wrong_order() -> None:
    w = dl.nn.Parameter(dl.rand(2))
    scaler, optimizer = dl.amp.GradScaler("cpu"), dl.optim.SGD([w], lr=0.1)
    with pytest.raises(GradientError, match="no gradients were unscaled"):
        scaler.update()
    scaler.scale(w.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(GradientError, match="since the last"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(GradientError, match="since the last"):
        scaler.step(optimizer)
    with pytest.raises(ArgumentError):
        scaler.load_state_dict({})
    with pytest.raises(ArgumentError, match="growth_factor"):
        dl.amp.GradScaler(growth_factor=0.5)


# Random numbers, settings, processes


def test_random_states() -> None:
    assert dl.manual_seed(7) is dl.random.default_generator
    state = dl.random.get_rng_state()
    first = dl.rand(5).tolist()
    with dl.random.fork_rng(devices=[]):
        dl.rand(3)
    second = dl.rand(5).tolist()
    dl.random.set_rng_state(state)
    assert (dl.rand(5).tolist(), dl.rand(5).tolist()) == (first, second)
    assert dl.initial_seed() == dl.random.initial_seed() == 7
    assert dl.Generator("cpu").manual_seed(3).get_state() == dl.Generator(3).get_state()
    assert dl.Generator(device="cpu").device == "cpu"


def test_gradients_are_switched_by_a_statement() -> None:
    w = dl.rand(2, requires_grad=True)
    try:
        dl.set_grad_enabled(False)
        assert not (w * 2).requires_grad
        with dl.set_grad_enabled(True):
            assert (w * 2).requires_grad
        assert not (w * 2).requires_grad
    finally:
        dl.set_grad_enabled(True)

    @dl.set_grad_enabled(False)
    def tripled() -> dl.Tensor:
        return w * 3

    assert (w * 2).requires_grad
    assert not tripled().requires_grad
    assert (w * 2).requires_grad


def test_settings_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_THREADS", str(dl.get_num_threads()))
    dl.set_num_threads(dl.get_num_threads())
    dl.set_num_interop_threads(2)
    assert dl.get_num_interop_threads() == 1
    with pytest.raises(ArgumentError):
        dl.set_num_threads(0)
    dl.use_deterministic_algorithms(True, warn_only=True)
    assert dl.are_deterministic_algorithms_enabled()
    assert dl.is_deterministic_algorithms_warn_only_enabled()
    dl.use_deterministic_algorithms(False)
    assert not dl.are_deterministic_algorithms_enabled()
    assert dl.set_flush_denormal(True) is False
    with dl.device("cpu"):
        assert dl.get_default_device() == "cpu"
    assert dl.version.__version__ == dl.__version__
    assert (dl.version.cuda, dl.version.hip) == (None, None)
    assert (dl.pi, dl.e, dl.inf, dl.newaxis) == (math.pi, math.e, math.inf, None)
    assert math.isnan(dl.nan)


def _exits(number: int, code: int) -> None:
    raise SystemExit(code if number else 0)


def test_processes() -> None:
    context = dl.multiprocessing.get_context("spawn")
    assert context.Process is not None
    assert dl.multiprocessing.cpu_count() >= 1
    dl.multiprocessing.spawn(_exits, (0,), nprocs=1, start_method="fork")
    with pytest.raises(DataError, match="process 1: exit code 3"):
        dl.multiprocessing.spawn(_exits, (3,), nprocs=2, start_method="fork")


def test_code_that_also_runs_without_scripts() -> None:
    assert not dl.jit.is_scripting()
    assert not dl.jit.is_tracing()
    assert not dl.compiler.is_compiling()

    def twice(x: float) -> float:
        return 2 * x

    jit = dl.jit
    marks = (
        jit.export,
        jit.unused,
        jit.ignore,
        jit.ignore(),
        jit.script,
        jit.script_method,
        jit.script_if_tracing,
    )
    assert all(mark(twice) is twice for mark in marks)
    layer = dl.nn.ReLU()
    assert jit.script(layer) is layer
    assert issubclass(jit.ScriptModule, dl.nn.Module)
    assert dl.jit.annotate(list[int], [3]) == [3]
    with pytest.raises(AttributeError, match=r"use dl\.compile"):
        _ = dl.jit.trace  # type: ignore[attr-defined]


# Linear algebra and special functions


@pytest.mark.parametrize(
    ("ord", "keepdim"),
    [(None, True), ("fro", False), (1, False), (-1, True), (math.inf, True), (-math.inf, False)],
)
def test_norms_are_pytorchs(ord: Any, keepdim: bool, device: str) -> None:
    array = np.random.default_rng(0).normal(size=(3, 5, 7)).astype(np.float32)
    ours, theirs = dl.tensor(array, device=device), torch.from_numpy(array)
    cases: list[tuple[str, dict[str, Any]]] = [("norm", {"dim": (0, 2)})]
    cases += [("matrix_norm", {"dim": (-3, 1)})] if ord is not None else []
    cases += [("norm", {"dim": 1}), ("vector_norm", {"dim": (0, 1)})] if ord not in (None, "fro") else []
    for name, options in cases:
        got = getattr(dl.linalg, name)(ours, ord, keepdim=keepdim, **options)
        want = getattr(torch.linalg, name)(theirs, ord, keepdim=keepdim, **options)
        assert got.shape == want.shape
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)


def test_products_are_pytorchs(device: str) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in ((2,), (2, 3), (3, 5), (5, 3), (3,))]
    ours, theirs = [dl.tensor(a, device=device) for a in arrays], [torch.from_numpy(a) for a in arrays]
    for part in (slice(0, 5), slice(1, 4), slice(0, 3), slice(1, 3), slice(3, 5)):
        want = torch.linalg.multi_dot(theirs[part])
        got = dl.linalg.multi_dot(ours[part])
        assert got.shape == want.shape
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    x, y = ours[3], ours[3] * 2 + 1
    for name in ("cross", "vecdot"):
        want = getattr(torch.linalg, name)(theirs[3], theirs[3] * 2 + 1)
        np.testing.assert_allclose(getattr(dl.linalg, name)(x, y).numpy(), want.numpy(), rtol=1e-4, atol=1e-4)
    want = torch.linalg.diagonal(theirs[3], offset=-1)
    np.testing.assert_array_equal(dl.linalg.diagonal(x, offset=-1).numpy(), want.numpy())
    with pytest.raises(ArgumentError):
        dl.linalg.matrix_norm(x, "max")


def test_special_functions_are_pytorchs() -> None:
    x = np.random.default_rng(2).random((3, 5)).astype(np.float32) * 0.9 + 0.05
    of_more = "softmax log_softmax logsumexp xlogy xlog1py zeta polygamma multigammaln"
    for name in sorted({*dl.special.__all__} - {*of_more.split()}):
        want = getattr(torch.special, name)(torch.from_numpy(x)).numpy()
        got = getattr(dl.special, name)(dl.tensor(x)).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=name)


def test_importing_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(importlib.import_module("dl4all.cuda"))
