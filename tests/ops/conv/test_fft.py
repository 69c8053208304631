"""Convolution by Fourier transforms, on the host and on devices, agrees with the other algorithms."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.ops.conv import algorithms, fft
from dl4all.ops.conv.fft_plan import FftPlan, best_plan
from dl4all.ops.conv.on_host import convolution as host
from dl4all.ops.conv.on_host import fft as host_fft
from dl4all.ops.conv.problem import Direction, Problem
from dl4all.ops.conv.window import Window
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.null.backend import NullBackend
from tests.conftest import need
from tests.ops.test_on_null import KINDS
from tests.support.operands import shifted
from tests.support.subcases import each

NDArray = npt.NDArray[Any]
conv2d: Any = dl.nn.functional.conv2d
conv_input: Any = dl.ops.conv_input
conv_weight: Any = dl.ops.conv_weight

CASES = [  # input, weight, stride, before, behind, dilation, groups
    ((2, 3, 40), (4, 3, 17), (1,), (8,), (8,), (1,), 1),
    ((3, 4, 29), (6, 2, 5), (3,), (0,), (2,), (2,), 2),
    ((2, 3, 19, 23), (5, 3, 7, 9), (1, 1), (3, 4), (3, 4), (1, 1), 1),
    ((2, 6, 17, 13), (6, 1, 5, 3), (2, 1), (2, 0), (1, 1), (1, 2), 6),
    ((1, 2, 9, 8, 7), (4, 1, 3, 4, 2), (1, 2, 1), (1, 0, 0), (1, 0, 1), (1, 1, 1), 2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transforms_and_products_agree(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, weight, stride, before, behind, dilation, groups = case
    win = Window(weight[2:], stride, before, behind, dilation)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape), rng.standard_normal(weight)
    g = rng.standard_normal((shape[0], weight[0], *win.output_size(shape[2:])))
    monkeypatch.setattr(host_fft, "IMAGE_BYTES", 1)  # an image at a time
    monkeypatch.setattr(host_fft, "worthwhile", lambda *_: False)
    pairs = (
        (host_fft.forward(x, w, win, groups), host.forward(x, w, None, win, groups)),
        (
            host_fft.input_gradient(g, w, shape[2:], win, groups),
            host.input_gradient(g, w, shape[2:], win, groups),
        ),
        (host_fft.weight_gradient(g, x, win, groups), host.weight_gradient(g, x, win, groups)),
    )
    for result, expected in pairs:
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


def test_large_filters_are_transformed_and_small_ones_are_not() -> None:
    one, stride = (1, 1), (1, 1)

    def chosen(x: tuple[int, ...], w: tuple[int, ...], groups: int) -> bool:
        pad = tuple(k // 2 for k in w[2:])
        return host_fft.worthwhile(x, w, Window(w[2:], stride, pad, pad, one), groups)

    assert chosen((8, 64, 56, 56), (64, 1, 31, 31), 64)
    assert chosen((1, 1, 512, 512), (1, 1, 63, 63), 1)
    assert chosen((4, 16, 64, 64), (16, 16, 31, 31), 1)
    assert not chosen((8, 64, 56, 56), (64, 64, 3, 3), 1)
    assert not chosen((8, 64, 56, 56), (64, 1, 5, 5), 64)
    assert not chosen((1, 3, 7, 7), (2, 3, 7, 7), 1)
    assert not chosen((0, 3, 64, 64), (2, 3, 31, 31), 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_spreads_no_further_than_in_a_plain_sum(bad: float) -> None:
    """The clean image is transformed, and agrees with PyTorch; the other one is not."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 1, 128, 128), (1, 1, 41, 41)))
    clean = dl.nn.functional.conv2d(
        dl.tensor(x, device="cpu"), dl.tensor(w, device="cpu"), padding=20
    ).numpy()
    expected = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=20).numpy()
    np.testing.assert_allclose(clean, expected, rtol=1e-4, atol=1e-4)
    x[0, 0, 0, 0] = bad
    spoilt = dl.nn.functional.conv2d(
        dl.tensor(x, device="cpu"), dl.tensor(w, device="cpu"), padding=20
    ).numpy()
    assert not np.isfinite(spoilt[0, 0, 0, 0])
    np.testing.assert_allclose(spoilt[0, 0, 60:], clean[0, 0, 60:], rtol=1e-4, atol=1e-4)


# On devices

ON_DEVICES = [  # input, weight, stride, padding, dilation, groups
    ((2, 3, 41), (4, 3, 37), (1,), (18,), (1,), 1),
    ((3, 4, 83), (6, 2, 41), (2,), (3,), (1,), 2),
    ((1, 1, 1, 67), (1, 1, 1, 61), (1, 1), (0, 30), (1, 1), 1),
    ((1, 1, 61, 2), (1, 1, 37, 1), (1, 1), (7, 1), (1, 1), 1),
    ((2, 3, 19, 23), (5, 3, 7, 9), (1, 1), (3, 4), (1, 1), 1),
    ((2, 6, 17, 13), (6, 1, 9, 5), (2, 1), (2, 0), (1, 2), 6),
    ((2, 4, 31, 37), (8, 1, 7, 6), (1, 3), (0, 5), (3, 1), 4),
    ((3, 6, 29, 11), (4, 3, 11, 7), (1, 1), (9, 9), (1, 1), 2),
    ((1, 7, 7, 7), (5, 7, 7, 7), (1, 1), (0, 0), (1, 1), 1),
    ((1, 2, 149, 71), (3, 2, 31, 33), (1, 1), (15, 16), (1, 1), 1),
]
DIRECTIONS: tuple[Direction, ...] = ("forward", "input_gradient", "weight_gradient")
EPSILON = float(np.finfo(np.float32).eps)


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.vulkan) for name in ("vulkan:0", "kompute:0")])
def device(request: pytest.FixtureRequest) -> str:
    """Only devices that run kernels."""
    need(request.param)
    return str(request.param)


def drawn(rng: np.random.Generator, *shape: int) -> NDArray:
    return rng.standard_normal(shape, np.float32)


def on_device(
    case: Any, device: Any, x: NDArray, w: NDArray, b: NDArray | None, g: NDArray, offset: int = 0
) -> tuple[NDArray, ...]:
    """The convolution and its two gradients by transforms."""
    _, _, stride, padding, dilation, groups = case
    tx, tw, tg = (shifted(array, device, offset) for array in (x, w, g))
    tb = None if b is None else shifted(b, device, offset)
    arguments = (stride, padding, dilation, groups)
    conv: Any = getattr(dl.nn.functional, f"conv{x.ndim - 2}d")
    with algorithms.forced("fft"):
        return (
            conv(tx, tw, tb, *arguments).numpy(),
            conv_input(tg, tw, x.shape[2:], *arguments).numpy(),
            conv_weight(tg, tx, w.shape[2:], *arguments).numpy(),
        )


def on_host(case: Any, x: NDArray, w: NDArray, b: NDArray | None, g: NDArray) -> tuple[NDArray, ...]:
    _, _, stride, padding, dilation, groups = case
    win = Window(w.shape[2:], stride, padding, padding, dilation)
    return (
        host.forward(x, w, b, win, groups),
        host.input_gradient(g, w, x.shape[2:], win, groups),
        host.weight_gradient(g, x, win, groups),
    )


def operands(case: Any) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    shape, weight, stride, padding, dilation, _ = case
    rng = np.random.default_rng(sum((*shape, *weight)))
    size = Window(weight[2:], stride, padding, padding, dilation).output_size(shape[2:])
    return (
        drawn(rng, *shape),
        drawn(rng, *weight),
        drawn(rng, weight[0]),
        drawn(rng, shape[0], weight[0], *size),
    )


def check(case: Any, device: Any, bias: bool = True, offset: int = 0) -> None:
    """An error is relative to the largest of all results: each number of a tile takes part in each transform.

    docs/performance.md has what it is for larger ones.
    """
    x, w, b, g = operands(case)
    results = on_device(case, device, x, w, b if bias else None, g, offset)
    x, w, b, g = (array.astype(np.float64) for array in (x, w, b, g))
    expected = on_host(case, x, w, b if bias else None, g)
    for got, reference in zip(results, expected, strict=True):
        assert got.shape == reference.shape
        assert np.abs(got - reference).max() <= 10 * EPSILON * np.abs(reference).max()


@each("case, bias, offset", itertools.product(ON_DEVICES, (True, False), (0, 3)))
def test_devices_agree_with_float64(device: str, case: Any, bias: bool, offset: int) -> None:
    check(case, device, bias, offset)


@pytest.mark.vulkan
@each("case", ON_DEVICES)
def test_transforms_with_barriers(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As GPUs do."""
    need("vulkan:0")
    monkeypatch.setattr(DeviceInfo, "short_subgroups", property(lambda info: False))
    check(case, "vulkan:0")


@pytest.mark.sampled(2)
@pytest.mark.vulkan
@pytest.mark.parametrize("length", [2**n for n in range(3, 11)])
@pytest.mark.parametrize("subgroups", [True, False])
def test_every_transform_length(length: int, subgroups: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    if not subgroups:
        monkeypatch.setattr(DeviceInfo, "short_subgroups", property(lambda info: False))
    for case in (
        ((1, 1, 13, length), (1, 1, 6, 6), (1, 1), (0, 0), (1, 1), 1),
        ((1, 1, length, 13), (1, 1, 6, 6), (1, 1), (0, 0), (1, 1), 1),
    ):
        size = (8, length) if case[0][2] == 13 else (length, 8)
        whole = FftPlan(size, (size[0] - 5, size[1] - 5), (8 // size[0] * 3 or 1, 8 // size[1] * 3 or 1))
        monkeypatch.setattr(fft, "best_plan", lambda *_, plan=whole: plan)
        check(case, "vulkan:0")


@pytest.mark.vulkan
@each("case, maps", itertools.product(ON_DEVICES[4:8], (1, 3, 7, 13)))
def test_maps_in_portions(case: Any, maps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With memory for only a few transforms, of tiles, of filters, or of groups."""
    need("vulkan:0")
    shape, weight, stride, padding, dilation, groups = case
    win = Window(weight[2:], stride, padding, padding, dilation)
    size = win.output_size(shape[2:])
    problem = Problem(shape[0], shape[1], weight[0], groups, (1, *shape[2:]), (1, *size), win.three_axes)
    monkeypatch.setitem(algorithms.BY_NAME, "fft", fft.ALGORITHM._replace(supports=lambda *_: True))
    monkeypatch.setattr(fft, "MAP_BYTES", maps * best_plan(problem, "forward").nbytes)
    monkeypatch.setattr(fft, "ROUNDS_PER_LAUNCH", 29)
    monkeypatch.setattr(fft, "STRIDED_GRID_CAP", 3)
    check(case, "vulkan:0")


@pytest.mark.vulkan
def test_gradients_of_gradients() -> None:
    """All three functions agree with im2col."""
    need("vulkan:0")
    rng = np.random.default_rng(7)
    x, w, b = drawn(rng, 2, 4, 19, 17), drawn(rng, 6, 2, 7, 7), drawn(rng, 6)

    def run(name: str) -> list[NDArray]:
        leaves = [dl.tensor(a, device="vulkan:0", requires_grad=True) for a in (x, w, b)]
        with algorithms.forced(name):
            y = conv2d(*leaves, padding=3, groups=2)
            first = dl.autograd.grad((y * y).sum(), leaves, create_graph=True)
            second = dl.autograd.grad(sum((g * g).sum() for g in first), leaves)
        return [tensor.numpy() for tensor in (y, *first, *second)]

    for got, expected in zip(run("fft"), run("im2col"), strict=True):
        largest = np.abs(expected).max()
        np.testing.assert_allclose(got / largest, expected / largest, atol=1e-5)


@pytest.mark.vulkan
@each("value, case", itertools.product((np.nan, np.inf, -np.inf), ON_DEVICES[4:8]))
def test_infinity_and_nan_spread_as_in_a_plain_sum(
    value: float, case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transform would spread it over whole tiles."""
    need("vulkan:0")
    monkeypatch.setattr(fft, "ROUNDS_PER_LAUNCH", 29)
    x, w, b, g = operands(case)
    x[0, 0, 0, 0] = x[-1, -1, 9, 6] = g[-1, -1, g.shape[2] // 2, g.shape[3] // 2] = value
    with np.errstate(all="ignore"):
        expected = on_host(case, x, w, b, g)
    for got, reference in zip(on_device(case, "vulkan:0", x, w, b, g), expected, strict=True):
        finite = np.isfinite(reference)
        assert 0 < finite.sum() < finite.size
        np.testing.assert_array_equal(got[~finite], reference[~finite])
        largest = np.abs(reference[finite]).max()
        np.testing.assert_allclose(got[finite] / largest, reference[finite] / largest, atol=1e-5)


@pytest.mark.vulkan
def test_infinity_in_filters() -> None:
    need("vulkan:0")
    case = ON_DEVICES[4]
    x, w, b, g = operands(case)
    w[1, 2, 3, 4] = np.inf
    with np.errstate(all="ignore"):
        expected = on_host(case, x, w, b, g)
    for got, reference in zip(on_device(case, "vulkan:0", x, w, b, g), expected, strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(reference))
        np.testing.assert_allclose(got, reference, rtol=1e-4, atol=1e-4)


@pytest.mark.vulkan
def test_numbers_near_the_end_of_the_range() -> None:
    """Results that overflow in a transform are computed again by plain sums."""
    need("vulkan:0")
    case = ON_DEVICES[4]
    x, w, b, g = operands(case)
    x = x.clip(-2, 2) * np.float32(1.2e38)
    w *= np.float32(1e-3)
    g *= np.float32(1e-3)
    wide = [array.astype(np.float64) for array in (x, w, b, g)]
    for got, reference in zip(on_device(case, "vulkan:0", x, w, b, g), on_host(case, *wide), strict=True):
        assert np.abs(got - reference).max() <= 10 * EPSILON * np.abs(reference).max()


def test_devices_transform_large_filters() -> None:
    software, discrete = (KINDS[kind][0] for kind in ("shuffle", "discrete"))

    def chosen(
        info: Any, shape: tuple[int, ...], weight: tuple[int, ...], groups: int, stride: int = 1
    ) -> set[str]:
        pad = tuple(k // 2 for k in weight[2:])
        win = Window(weight[2:], (stride, stride), pad, pad, (1, 1))
        size = (1, *shape[2:]), (1, *win.output_size(shape[2:]))
        problem = Problem(shape[0], shape[1], weight[0], groups, *size, win.three_axes)
        return {algorithms.cheapest(info, problem, direction).name for direction in DIRECTIONS}

    for info in (software, discrete):
        assert chosen(info, (8, 64, 56, 56), (64, 1, 31, 31), 64) == {"fft"}
        assert chosen(info, (1, 1, 512, 512), (1, 1, 63, 63), 1) == {"fft"}
        assert chosen(info, (8, 16, 64, 64), (16, 16, 15, 15), 1) == {"fft"}
        assert chosen(info, (8, 32, 56, 56), (32, 32, 11, 11), 1) == {"fft"}
        assert "fft" not in chosen(info, (1, 3, 224, 224), (64, 3, 7, 7), 1, 2)
        assert chosen(info, (8, 64, 56, 56), (64, 1, 5, 5), 64) == {"depthwise"}
        assert chosen(info, (0, 3, 64, 64), (2, 3, 31, 31), 1) == {"im2col"}
    assert chosen(discrete, (8, 64, 56, 56), (64, 1, 7, 7), 64) == {"depthwise"}


def test_unsupported_problems() -> None:
    info = KINDS["shuffle"][0]
    flat = Window((1, 9, 9), (1, 1, 1), (0, 4, 4), (0, 4, 4), (1, 1, 1))
    problem = Problem(1, 2, 3, 1, (1, 20, 20), (1, 20, 20), flat)
    deep = Window((2, 9, 9), (1, 1, 1), (0, 4, 4), (0, 4, 4), (1, 1, 1))
    wide = Window((1, 9, 9), (1, 1, 1), (0, 4, 4), (0, 4, 4), (1, 1, 200))
    assert fft.supports(info, problem, "forward")
    for other in (
        problem._replace(channels=0),
        problem._replace(size=(3, 20, 20), out_size=(3, 20, 20)),
        problem._replace(size=(2, 20, 20), win=deep),
        problem._replace(size=(1, 20, 1700), out_size=(1, 20, 108), win=wide),
        problem._replace(channels=2**20),
    ):
        assert not fft.supports(info, other, "forward")


@each("case, kind", itertools.product(ON_DEVICES, KINDS))
def test_launches_on_every_kind_of_device(case: Any, kind: str) -> None:
    backend = NullBackend(*KINDS[kind])
    null_device = dl.Device.of_backend("null:0", backend)
    on_device(case, null_device, *operands(case))
    assert backend.counts["dispatch"] >= 24
    assert null_device.pool.stats.allocated == 0
    backend.close()
