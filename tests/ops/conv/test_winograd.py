"""Convolutions by Winograd's algorithm: values, errors, and the cache of transformed filters."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.errors import Dl4allError
from dl4all.ops.conv import algorithms, filter_cache, im2col, winograd
from dl4all.ops.conv.on_host import convolution as conv_host
from dl4all.ops.conv.problem import Problem
from dl4all.ops.conv.window import Window
from dl4all.ops.core.op import empty
from dl4all.runtime.null.backend import NullBackend
from dl4all.tensor.tensor import Tensor
from tests.conftest import need
from tests.ops.test_on_null import KINDS
from tests.support.operands import shifted
from tests.support.subcases import each

NDArray = npt.NDArray[Any]
TILES = {f"winograd{tile}": tile for tile in winograd.TILES}
ALGORITHMS = tuple(TILES)
conv2d: Any = dl.nn.functional.conv2d
conv_input: Any = dl.ops.conv_input
conv_weight: Any = dl.ops.conv_weight
host: Any = conv_host.forward
host_input: Any = conv_host.input_gradient

# Images, channels, filters, height, width and padding.
CASES = (
    (1, 1, 1, 1, 1, 1),
    (2, 5, 7, 1, 1, 1),
    (1, 2, 3, 3, 3, 0),
    (3, 17, 13, 11, 5, 0),
    (1, 4, 4, 2, 13, 2),
    (2, 3, 5, 7, 7, 1),
    (1, 31, 67, 14, 14, 1),
    (1, 6, 5, 4, 4, 4),
    (2, 7, 65, 23, 19, (2, 0)),
    (3, 64, 64, 8, 8, 1),
    (1, 13, 11, 61, 2, (0, 1)),
)


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.vulkan) for name in ("vulkan:0", "kompute:0")])
def device(request: pytest.FixtureRequest) -> str:
    """Only devices that run kernels."""
    need(request.param)
    return str(request.param)


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fresh_device(device: str) -> dl.Device:
    """A device with an empty cache."""
    return dl.Device.of_backend(device, dl.device(device)._backend)


def numbers(rng: np.random.Generator, *shape: int) -> NDArray:
    return rng.standard_normal(shape, np.float32)


def window(padding: tuple[int, int], behind: tuple[int, int] | None = None) -> Window:
    return Window((3, 3), (1, 1), padding, padding if behind is None else behind, (1, 1))


def agree(got: NDArray, expected: NDArray, scale: NDArray) -> None:
    """A result is a sum; `scale` is the same sum of absolute values, of which each term may lose some bits.

    The transforms of 4x4 tiles make their terms about ten times as large as those of the plain sum.
    """
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 2e-6 * scale.max()


def wide(*arrays: NDArray) -> tuple[NDArray, ...]:
    return tuple(array.astype(np.float64) for array in arrays)


@each("case, bias, offset", itertools.product(CASES, (True, False), (0, 3)))
def test_forward(device: str, algorithm: str, case: Any, bias: bool, offset: int) -> None:
    images, channels, filters, height, width, padding = case
    rng = np.random.default_rng(sum(case[:5]))
    x, w, b = (
        numbers(rng, images, channels, height, width),
        numbers(rng, filters, channels, 3, 3),
        numbers(rng, filters),
    )
    win = window(padding if isinstance(padding, tuple) else (padding, padding))
    tensors = [shifted(array, device, offset) for array in (x, w, b)]
    with algorithms.forced(algorithm):
        got = conv2d(*tensors[:2], tensors[2] if bias else None, padding=padding).numpy()
    x, w, b = wide(x, w, b)
    expected = host(x, w, b if bias else None, win, 1)
    agree(got, expected, host(np.abs(x), np.abs(w), np.abs(b), win, 1))


@each("case, offset", itertools.product(CASES, (0, 3)))
def test_the_gradient_of_the_input(device: str, algorithm: str, case: Any, offset: int) -> None:
    images, channels, filters, height, width, padding = case
    rng = np.random.default_rng(sum(case[:5]))
    win = window(padding if isinstance(padding, tuple) else (padding, padding))
    g = numbers(rng, images, filters, *win.output_size((height, width)))
    w = numbers(rng, filters, channels, 3, 3)
    with algorithms.forced(algorithm):
        size = (height, width)
        got = conv_input(*(shifted(a, device, offset) for a in (g, w)), size, padding=padding).numpy()
    g, w = wide(g, w)
    expected = host_input(g, w, size, win, 1)
    agree(got, expected, host_input(np.abs(g), np.abs(w), size, win, 1))


@each("case, offset", itertools.product(CASES, (0, 3)))
def test_the_gradient_of_the_filters(device: str, algorithm: str, case: Any, offset: int) -> None:
    images, channels, filters, height, width, padding = case
    rng = np.random.default_rng(sum(case[:5]))
    win = window(padding if isinstance(padding, tuple) else (padding, padding))
    g = numbers(rng, images, filters, *win.output_size((height, width)))
    x = numbers(rng, images, channels, height, width)
    with algorithms.forced(algorithm):
        got = conv_weight(*(shifted(a, device, offset) for a in (g, x)), (3, 3), padding=padding).numpy()
    g, x = wide(g, x)
    expected = conv_host.weight_gradient(g, x, win, 1)
    agree(got, expected, conv_host.weight_gradient(np.abs(g), np.abs(x), win, 1))


@each("before, behind", [((0, 0), (2, 1)), ((2, 1), (0, 3)), ((1, 0), (0, 2)), ((-1, 0), (0, -2))])
def test_padding_that_differs_on_two_sides(
    device: str, algorithm: str, before: tuple[int, int], behind: tuple[int, int]
) -> None:
    """Negative padding leaves out a part of the image; the gradient of the input has it."""
    rng = np.random.default_rng(5)
    x, w = numbers(rng, 2, 5, 13, 9), numbers(rng, 7, 5, 3, 3)
    win = window(before, behind)
    height, width = win.output_size((13, 9))
    out = empty(Tensor, (2, 7, height, width), np.dtype(np.float32), dl.device(device))
    problem = Problem(2, 5, 7, 1, (1, 13, 9), (1, height, width), win.three_axes)
    tile = TILES[algorithm]
    winograd.forward(out, dl.from_numpy(x, device), dl.from_numpy(w, device), None, problem, tile=tile)
    top, left = (max(0, -low) for low in before)
    bottom, right = (size + min(0, high) for size, high in zip((13, 9), behind, strict=True))
    x, w = wide(x[:, :, top:bottom, left:right], w)
    inside = window(*(tuple(max(0, p) for p in padding) for padding in (before, behind)))  # type: ignore[arg-type]
    agree(
        out.numpy(),
        host(x, w, None, inside, 1),
        host(abs(x), abs(w), None, inside, 1),
    )


@each("nbytes", [1, 36 * 4 * 64, 36 * 4 * 16 * 28, 36 * 4 * 16 * 84])
def test_tiles_in_portions(device: str, algorithm: str, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With memory for only a few transformed tiles; portions do not end where images do."""
    monkeypatch.setattr(winograd, "TILE_BYTES", nbytes)
    rng = np.random.default_rng(nbytes)
    x, w, b = numbers(rng, 5, 6, 23, 19), numbers(rng, 16, 6, 3, 3), numbers(rng, 16)
    g = numbers(rng, 5, 16, 23, 19)
    win = window((1, 1))
    with algorithms.forced(algorithm):
        tensors = [dl.from_numpy(a, device) for a in (x, w, b, g)]
        got = conv2d(*tensors[:3], padding=1).numpy()
        got_weight = conv_weight(tensors[3], tensors[0], (3, 3), padding=1).numpy()
    x, w, b, g = wide(x, w, b, g)
    agree(got, host(x, w, b, win, 1), host(abs(x), abs(w), abs(b), win, 1))
    scale = conv_host.weight_gradient(abs(g), abs(x), win, 1)
    agree(got_weight, conv_host.weight_gradient(g, x, win, 1), scale)


@pytest.mark.parametrize("shape", [(2, 5, 9, 7), (0, 5, 9, 7)], ids=str)
def test_gradients_of_gradients(device: str, algorithm: str, shape: tuple[int, ...]) -> None:
    """All three functions agree with im2col."""
    rng = np.random.default_rng(7)
    x, w, b = numbers(rng, *shape), numbers(rng, 6, 5, 3, 3), numbers(rng, 6)

    def run(name: str) -> list[NDArray]:
        leaves = [dl.tensor(a, device=device, requires_grad=True) for a in (x, w, b)]
        with algorithms.forced(name):
            y = conv2d(*leaves, padding=1)
            first = dl.autograd.grad((y * y).sum(), leaves, create_graph=True)
            second = dl.autograd.grad(sum((g * g).sum() for g in first), leaves)
        return [tensor.numpy() for tensor in (y, *first, *second)]

    for got, expected in zip(run(algorithm), run("im2col"), strict=True):
        largest = np.abs(expected).max(initial=1e-30)
        np.testing.assert_allclose(got / largest, expected / largest, atol=1e-5)


@each("value, bias", itertools.product((np.nan, np.inf, -np.inf), (True, False)))
def test_infinity_and_nan_spread_as_in_a_plain_sum(
    device: str, algorithm: str, value: float, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transform would spread it over whole tiles."""
    monkeypatch.setattr(winograd, "TILE_BYTES", 36 * 4 * 8 * 28)
    rng = np.random.default_rng(11)
    x, w, b = numbers(rng, 2, 5, 13, 11), numbers(rng, 7, 5, 3, 3), numbers(rng, 7)
    for index in ((0, 0, 0, 0), (0, 2, 5, 6), (1, 4, 12, 10), (1, 1, 3, 4)):
        x[index] = value
    with algorithms.forced(algorithm), np.errstate(all="ignore"):
        tensors = [dl.from_numpy(a, device) for a in (x, w, b)]
        got = conv2d(*tensors[:2], tensors[2] if bias else None, padding=1).numpy()
        expected = host(x, w, b if bias else None, window((1, 1)), 1)
        g = np.ascontiguousarray(expected[:, :7])
        got_input = conv_input(dl.from_numpy(g, device), tensors[1], (13, 11), padding=1).numpy()
        expected_input = conv_host.input_gradient(g, w, (13, 11), window((1, 1)), 1)
        got_weight = conv_weight(dl.from_numpy(g, device), tensors[0], (3, 3), padding=1).numpy()
        expected_weight = conv_host.weight_gradient(g, x, window((1, 1)), 1)
    for one, other in ((got, expected), (got_input, expected_input), (got_weight, expected_weight)):
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
        largest = np.abs(other[np.isfinite(other)]).max(initial=0.0)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.parametrize("channels", [61, 1031])
def test_one_infinite_number_in_the_last_channel(device: str, algorithm: str, channels: int) -> None:
    """All products before it are finite, and the sum goes on to the end."""
    rng = np.random.default_rng(14)
    x, w = numbers(rng, 1, channels, 6, 5), numbers(rng, 2, channels, 3, 3)
    x[0, -1, 2, 2] = np.inf
    with algorithms.forced(algorithm):
        got = conv2d(dl.from_numpy(x, device), dl.from_numpy(w, device), padding=1).numpy()
    expected = host(x, w, None, window((1, 1)), 1)
    assert 0 < np.isinf(expected).sum() < expected.size
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)


def test_gradients_of_filters_with_one_infinite_number(
    device: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tap of the filter does not meet it at the border; sums take several launches."""
    monkeypatch.setattr(winograd, "ROUNDS_PER_LAUNCH", 100)
    rng = np.random.default_rng(15)
    x, g = numbers(rng, 3, 4, 11, 9), numbers(rng, 3, 5, 11, 9)
    x[1, 2, 0, 3] = np.inf
    g[2, 4, 10, 8] = np.nan  # the zeros around the image meet it too
    with algorithms.forced(algorithm):
        got = conv_weight(dl.from_numpy(g, device), dl.from_numpy(x, device), (3, 3), padding=1).numpy()
    expected = conv_host.weight_gradient(g, x, window((1, 1)), 1)
    assert 0 < np.isinf(expected).sum() < np.isfinite(expected).sum()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_sums_that_only_transforms_overflow(device: str, algorithm: str) -> None:
    rng = np.random.default_rng(12)
    x, w = (
        numbers(rng, 1, 5, 9, 9).clip(-2, 2) * np.float32(1.2e38),
        numbers(rng, 4, 5, 3, 3) * np.float32(1e-3),
    )
    with algorithms.forced(algorithm):
        got = conv2d(dl.from_numpy(x, device), dl.from_numpy(w, device), padding=1).numpy()
    x, w = wide(x, w)
    win = window((1, 1))
    agree(got, host(x, w, None, win, 1), host(abs(x), abs(w), None, win, 1))


RESNET = ((64, 56), (128, 28), (256, 14), (512, 7))


@pytest.mark.parametrize(("channels", "size"), RESNET)
def test_errors_are_near_those_of_the_plain_sum(device: str, channels: int, size: int) -> None:
    """As docs/performance.md says."""
    rng = np.random.default_rng(channels)
    x, w = numbers(rng, 1, channels, size, size), numbers(rng, 32, channels, 3, 3)
    expected = host(*wide(x, w), None, window((1, 1)), 1)
    errors = {}
    for name in algorithms.BY_NAME:
        with algorithms.forced(name):
            got = conv2d(dl.from_numpy(x, device), dl.from_numpy(w, device), padding=1).numpy()
        errors[name] = float(np.sqrt(((got - expected) ** 2).mean() / (expected**2).mean()))
    assert errors["winograd2"] < errors["im2col"] < 1.5e-6
    assert errors["winograd4"] < 3 * errors["im2col"]


# The cache of transformed filters


def convolved(x: dl.Tensor, w: dl.Tensor) -> NDArray:
    with algorithms.forced("winograd4"), dl.no_grad():
        return np.asarray(conv2d(x, w, padding=1).numpy())


def cached_bytes(fresh_device: dl.Device) -> int:
    return dl.memory.stats(fresh_device).by_tag.get("conv filters", 0)


def cached_weight(fresh_device: dl.Device, *shape: int) -> tuple[dl.Tensor, dl.Tensor]:
    """An image, and filters whose transforms are cached."""
    rng = np.random.default_rng(3)
    shape = shape or (6, 4, 3, 3)
    x, w = (
        dl.from_numpy(numbers(rng, 1, shape[1], 7, 7), fresh_device),
        dl.from_numpy(numbers(rng, *shape), fresh_device),
    )
    before = cached_bytes(fresh_device)
    for _ in range(filter_cache.MIN_USES):
        assert cached_bytes(fresh_device) == before
        convolved(x, w)
    assert cached_bytes(fresh_device) == before + 36 * shape[0] * (-(-shape[1] // 4) * 4) * 4
    return x, w


def test_filters_are_cached_until_their_memory_is_freed(fresh_device: dl.Device) -> None:
    x, w = cached_weight(fresh_device)
    view = w.reshape(6, 36)
    other = cached_weight(fresh_device, 5, 3, 3, 3)[1]
    del w, other
    assert cached_bytes(fresh_device) == 36 * 6 * 4 * 4  # the view holds the memory
    del view
    assert cached_bytes(fresh_device) == 0
    del x
    assert dl.memory.stats(fresh_device).allocated == 0


def test_cached_filters_give_the_same_bits(fresh_device: dl.Device) -> None:
    x, w = cached_weight(fresh_device)
    np.testing.assert_array_equal(convolved(x, w), convolved(x, w.clone()))


def test_filters_in_one_memory_are_told_apart(fresh_device: dl.Device) -> None:
    rng = np.random.default_rng(4)
    x = dl.from_numpy(numbers(rng, 1, 4, 7, 7), fresh_device)
    both = dl.from_numpy(numbers(rng, 12, 4, 3, 3), fresh_device)
    parts = both[:6], both[6:], both
    for _ in range(filter_cache.MIN_USES + 1):
        for part in parts:
            np.testing.assert_array_equal(convolved(x, part), convolved(x, part.clone()))


ARGUMENTS: dict[str, Callable[[dl.Tensor], tuple[Any, ...]]] = {
    **dict.fromkeys(
        ("add_", "sub_", "div_", "mul_", "fmod_", "remainder_", "fill_", "pow_"), lambda w: (0.7,)
    ),
    **dict.fromkeys(("clamp_max_", "clamp_min_"), lambda w: (0.1,)),
    **dict.fromkeys(("addcmul_", "addcdiv_"), lambda w: (w * 0.5 + 1.5, w.abs() + 2.0)),
    **dict.fromkeys(("logical_and_", "logical_or_", "logical_xor_"), lambda w: (w - 0.5,)),
    "copy_": lambda w: (w * 3.0,),
    "clamp_": lambda w: (-0.1, 0.2),
    "lerp_": lambda w: (w + 1.0, 0.5),
    "masked_fill_": lambda w: (w > 0.0, 4.0),
    "index_add_": lambda w: (0, dl.tensor([1], device=w.device), w[:1] + 2.0),
    "scatter_": lambda w: (0, dl.zeros(1, *w.shape[1:], dtype="int64", device=w.device), w[:1] + 2.0),
    "scatter_add_": lambda w: (0, dl.zeros(1, *w.shape[1:], dtype="int64", device=w.device), w[:1] + 2.0),
}
METHODS = [
    name
    for name in dir(dl.Tensor)
    if name.endswith("_") and not name.startswith("_") and hasattr(dl.Tensor, name)
]
NO_FLOATS = ("bitwise_and_", "bitwise_not_", "bitwise_or_", "bitwise_xor_")
OF_SHAPE = (
    "requires_grad_",
    "squeeze_",
    "swapaxes_",
    "swapdims_",
    "t_",
    "transpose_",
    "unsqueeze_",
    "tril_",
    "triu_",
)


def complete(name: str) -> bool:
    """Whether a method needs no arguments, or has some above."""
    w = dl.ones(2, 2, device="cpu")
    try:
        getattr(w, name)(*(ARGUMENTS[name](w) if name in ARGUMENTS else ()))
    except (TypeError, Dl4allError):
        return name in ARGUMENTS
    return True


OF_INIT = [name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")]


def check_change(x: dl.Tensor, w: dl.Tensor, change: Callable[[], object]) -> None:
    before, weight = convolved(x, w), w.clone().numpy()
    with dl.no_grad():
        change()
    after = convolved(x, w)
    np.testing.assert_array_equal(after, convolved(x, w.clone()))
    assert not np.array_equal(after, before) or np.array_equal(w.clone().numpy(), weight)


@each("name", [name for name in METHODS if complete(name) and name not in (*NO_FLOATS, *OF_SHAPE)])
def test_changes_in_place_are_seen(fresh_device: dl.Device, name: str) -> None:
    x, w = cached_weight(fresh_device)
    w.abs_().add_(0.25)  # where all of them are defined
    if name in ("abs_", "clamp_min_", "relu_"):
        w.neg_()
    for _ in range(filter_cache.MIN_USES):
        convolved(x, w)
    arguments = ARGUMENTS[name](w) if name in ARGUMENTS else ()
    check_change(x, w, lambda: getattr(w, name)(*arguments))


@each("name", [name for name in OF_INIT if name not in ("eye_", "orthogonal_", "sparse_")])
def test_initialisation_is_seen(fresh_device: dl.Device, name: str) -> None:
    x, w = cached_weight(fresh_device)
    check_change(x, w, lambda: getattr(nn.init, name)(w, *((0.3,) if name == "constant_" else ())))


def test_changes_of_a_part_are_seen(fresh_device: dl.Device) -> None:
    x, w = cached_weight(fresh_device)

    def assign() -> None:
        w[2, 1:3] = 1.5

    check_change(x, w, assign)
    for _ in range(filter_cache.MIN_USES):
        convolved(x, w)
    check_change(x, w, lambda: w[1].mul_(2.0))
    for _ in range(filter_cache.MIN_USES):
        convolved(x, w)
    check_change(x, w, lambda: w.reshape(6, 36).T.add_(1.0))


@each("name", ["Adadelta", "Adagrad", "Adam", "AdamW", "Lion", "RMSprop", "SGD"])
def test_steps_of_optimizers_are_seen(fresh_device: dl.Device, name: str) -> None:
    x, w = cached_weight(fresh_device)
    w.requires_grad_()
    optimizer = getattr(dl.optim, name)([w], lr=0.1)
    for _ in range(3):
        w.grad = dl.ones_like(w)
        check_change(x, w, optimizer.step)


def test_averages_of_parameters_are_seen(fresh_device: dl.Device) -> None:
    x, w = cached_weight(fresh_device)
    average = dl.optim.EMA([w], 0.5)
    w.mul_(2.0)
    average.update()
    for _ in range(filter_cache.MIN_USES):
        convolved(x, w)
    before = convolved(x, w)
    with average.averaged():
        inside = convolved(x, w)
        np.testing.assert_array_equal(inside, convolved(x, w.clone()))
        assert not np.array_equal(inside, before)
    np.testing.assert_array_equal(convolved(x, w), before)
    check_change(x, w, average.copy_to)


def test_loading_a_state_is_seen(fresh_device: dl.Device) -> None:
    net = nn.Conv2d(4, 6, 3, padding=1, bias=False).to(fresh_device)
    x = cached_weight(fresh_device)[0]
    for _ in range(filter_cache.MIN_USES):
        convolved(x, net.weight)
    state = {"weight": np.random.default_rng(9).standard_normal((6, 4, 3, 3), np.float32)}
    check_change(x, net.weight, lambda: net.load_state_dict(state))


@pytest.mark.vulkan
def test_filters_that_the_host_may_change_are_not_cached() -> None:
    need("vulkan:0")
    fresh_device = dl.Device.of_backend("vulkan:0", dl.device("vulkan:0")._backend)
    x, w = cached_weight(fresh_device)
    if w.storage.buffer.mapped is None:
        pytest.skip("this device has memory of its own")
    view = dl.memory.host_view(w)
    for number in range(filter_cache.MIN_USES + 2):
        view[0, 0] = number
        np.testing.assert_array_equal(convolved(x, w), convolved(x, w.clone()))


def test_cached_filters_make_room(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are freed before memory runs out, and kept again after more uses than at first."""
    monkeypatch.setenv("DL4ALL_ALLOCATOR", "pool")
    fresh_device = dl.Device.of_backend(device, dl.device(device)._backend)
    x, w = cached_weight(fresh_device, 64, 64, 3, 3)
    expected = convolved(x, w)
    dl.memory.trim(fresh_device)
    dl.memory.limit(fresh_device, dl.memory.stats(fresh_device).reserved)
    big = dl.zeros(cached_bytes(fresh_device) // 4, device=fresh_device)
    assert cached_bytes(fresh_device) == 0
    dl.memory.limit(fresh_device, None)
    for _ in range(4 * filter_cache.MIN_USES):
        assert cached_bytes(fresh_device) == 0
        np.testing.assert_array_equal(convolved(x, w), expected)
    assert cached_bytes(fresh_device) == big.numel() * 4


@each("offset, groups", itertools.product((0, 1), (1, 2)))
def test_rows_of_filters_are_aligned(
    device: str, offset: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For products with columns; they are cached too."""
    monkeypatch.setattr(im2col, "MIN_ALIGNED_TERMS", 1)
    rng = np.random.default_rng(13)
    x, w, b = numbers(rng, 2, 6, 9, 8), numbers(rng, 8, 6 // groups, 3, 5), numbers(rng, 8)
    tensors = [shifted(array, device, offset) for array in (x, w, b)]
    win = Window((3, 5), (2, 1), (1, 2), (1, 2), (1, 1))
    for change in (1.0, 2.0):
        with dl.no_grad():
            tensors[1].mul_(change)
        w = w * np.float32(change)
        for _ in range(filter_cache.MIN_USES + 2):
            got = conv2d(*tensors, stride=(2, 1), padding=(1, 2), groups=groups).numpy()
            expected, scale = (
                host(*operands, win, groups) for operands in (wide(x, w, b), map(np.abs, wide(x, w, b)))
            )
            agree(got, expected, scale)


# Launches


@each("case, kind", itertools.product(CASES, KINDS))
def test_launches_on_every_kind_of_device(algorithm: str, case: Any, kind: str) -> None:
    images, channels, filters, height, width, padding = case
    backend = NullBackend(*KINDS[kind])
    null_device = dl.Device.of_backend("null:0", backend)
    x, w = (
        dl.zeros(images, channels, height, width, device=null_device),
        dl.zeros(filters, channels, 3, 3, device=null_device),
    )
    with algorithms.forced(algorithm):
        y = conv2d(x, w, padding=padding)
        conv_input(y, w, (height, width), padding=padding)
        conv_weight(y, x, (3, 3), padding=padding)
    assert backend.counts["dispatch"] >= 12
    del x, w, y
    assert null_device.pool.stats.allocated == 0
    backend.close()
