"""Row kernels on rows of all lengths, with and without subgroups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.ops import REGISTRY
from dl4all.ops.reduce import row_kernels
from dl4all.runtime.device_info import DeviceInfo
from tests.support.operands import (
    TOLERANCE,
    close,
    compare,
    generator,
    numbers,
    operands_of,
    reference,
    strided,
)
from tests.support.subcases import each

NDArray = npt.NDArray[Any]
SPECIAL = (np.nan, np.inf, -np.inf)


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.vulkan) for name in ("vulkan:0", "kompute:0")])
def device(request: pytest.FixtureRequest) -> str:
    """Only devices that run kernels."""
    name = str(request.param)
    try:
        dl.device(name)
    except dl.Dl4allError as error:
        pytest.skip(str(error))
    return name


@pytest.fixture(params=("as chosen", "without subgroups", "on a GPU"))
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "as chosen":
        monkeypatch.setattr(DeviceInfo, "short_subgroups", property(lambda info: False))
    if request.param == "on a GPU":
        monkeypatch.setattr(row_kernels, "adds_in_subgroups", _has_subgroup_arithmetic)


def _has_subgroup_arithmetic(device: dl.Device) -> bool:
    return "subgroup_arithmetic" in device.info.features


def softmax(x: NDArray) -> NDArray:
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True))


def layer_norm(x: NDArray) -> NDArray:
    deviations = x - x.mean(-1, keepdims=True)
    return np.asarray(deviations / np.sqrt((deviations**2).mean(-1, keepdims=True) + 1e-5))


OPS: dict[str, tuple[Callable[[dl.Tensor], dl.Tensor], Callable[[NDArray], NDArray]]] = {
    "softmax": (lambda x: dl.nn.functional.softmax(x, -1), softmax),
    "log_softmax": (lambda x: dl.nn.functional.log_softmax(x, -1), lambda x: np.log(softmax(x))),
    "layer_norm": (lambda x: dl.nn.functional.layer_norm(x, x.shape[-1]), layer_norm),
    "sum": (lambda x: x.sum(-1), lambda x: x.sum(-1)),
    "amax": (lambda x: x.amax(-1), lambda x: x.max(-1)),
    "var": (lambda x: x.var(-1), lambda x: x.var(-1, ddof=1)),
    "logsumexp": (
        lambda x: x.logsumexp(-1),
        lambda x: np.asarray(np.log(np.exp(x - x.max()).sum(-1)) + x.max()),
    ),
    "cumsum": (lambda x: x.cumsum(-1), lambda x: x.cumsum(-1)),
}


ALONG_MIDDLE_AXIS: dict[str, Callable[[dl.Tensor], dl.Tensor]] = {
    "softmax": lambda x: dl.nn.functional.softmax(x, 1),
    "log_softmax": lambda x: dl.nn.functional.log_softmax(x, 1),
    "sum": lambda x: x.sum(1),
    "amax": lambda x: x.amax(1),
    "var": lambda x: x.var(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "cumsum": lambda x: x.cumsum(1),
}


# Rows for one invocation, a subgroup, a workgroup and several slices, read as vec4s and element by element.
@each("shape", [(2, 4), (5001, 8), (7, 68), (3, 516), (2, 8196), (1, 70004), (5001, 7), (7, 61), (3, 2053)])
@pytest.mark.parametrize("name", list(OPS))
@pytest.mark.usefixtures("variant")
def test_rows_of_all_lengths(name: str, shape: tuple[int, ...], device: str) -> None:
    op, reference = OPS[name]
    x = numbers(generator(name, shape), shape)
    close(
        op(dl.tensor(x, device=device)).numpy().astype(np.float64),
        reference(x.astype(np.float64)),
        TOLERANCE["float32"],
    )


@each("shape", [(3, 5, 40), (2, 300, 12), (2, 61, 3)])
@pytest.mark.parametrize("name", list(ALONG_MIDDLE_AXIS))
@pytest.mark.usefixtures("variant")
def test_reductions_along_a_middle_axis(name: str, shape: tuple[int, ...], device: str) -> None:
    op, reference = ALONG_MIDDLE_AXIS[name], OPS[name][1]
    x = numbers(generator(name, shape), shape)
    expected = reference(x.astype(np.float64).transpose(0, 2, 1))
    found = op(dl.tensor(x, device=device)).numpy().astype(np.float64)
    close(found, expected.transpose(0, 2, 1) if expected.ndim == 3 else expected, TOLERANCE["float32"])


@each("first", [0, 1, 2, 4])
@pytest.mark.parametrize("name", list(OPS))
@pytest.mark.usefixtures("variant")
def test_rows_at_any_offset(name: str, first: int, device: str) -> None:
    op, reference = OPS[name]
    x = numbers(generator(name, first), (6 * 20,))
    part = dl.tensor(x, device=device)[first : first + 100].reshape(5, 20)
    exact = x[first : first + 100].reshape(5, 20).astype(np.float64)
    close(op(part).numpy().astype(np.float64), reference(exact), TOLERANCE["float32"])


ROW_OPS = (
    "softmax", "softmax_backward", "log_softmax", "log_softmax_backward",
    "grouped_norm", "grouped_norm_backward", "grouped_norm_sums", "batch_norm_stats", "batch_norm_sums",
)  # fmt: skip


@pytest.mark.parametrize("name", ROW_OPS)
@pytest.mark.usefixtures("variant")
def test_every_row_op(name: str, device: str) -> None:
    """On the op's own examples, whose operands are views of larger tensors."""
    op = REGISTRY[name]
    for case in op.examples:
        tensors, elements = operands_of(op, case, strided, device)
        result = op(*tensors, **dict(case.arguments))
        compare(result, reference(op, list(elements), **dict(case.arguments)))


# An invocation keeps one to four vec4s or elements of a row, in workgroups of 64 to 512.
@each("length", [32, 132, 260, 513, 772, 1536, 2040, 2047, 4100, 6144, 8188])
@pytest.mark.usefixtures("variant")
def test_gradients_of_rows_of_all_lengths(length: int, device: str) -> None:
    x, g = (numbers(generator(name, length), (3, length)) for name in ("x", "g"))
    exact = x.astype(np.float64)
    y = softmax(exact)
    deviations = exact - exact.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((deviations**2).mean(-1, keepdims=True) + 1e-5)
    normal = deviations * scale
    means = g.mean(-1, keepdims=True, dtype=np.float64), (g * normal).mean(-1, keepdims=True)
    expected = {
        "softmax": y * (g - (g * y).sum(-1, keepdims=True)),
        "log_softmax": g - y * g.sum(-1, keepdims=True, dtype=np.float64),
        "layer_norm": scale * (g - means[0] - normal * means[1]),
    }
    for name, gradient in expected.items():
        leaf = dl.tensor(x, device=device).requires_grad_()
        OPS[name][0](leaf).backward(dl.tensor(g, device=device))
        close(leaf.grad.numpy().astype(np.float64), gradient, 1e-4)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "amax"])
@pytest.mark.parametrize("length", [12, 132])
@pytest.mark.usefixtures("variant")
def test_nan_and_infinity(name: str, length: int, device: str) -> None:
    """In each element of a vec4, alone and with others, against the host."""
    x = np.tile(numbers(generator(name), (length,)), (4 * len(SPECIAL) + 4, 1))
    for element in range(4):
        for i, special in enumerate(SPECIAL):
            x[len(SPECIAL) * element + i, 4 + element] = special
    x[-4], x[-3], x[-2, 1:], x[-1, ::2] = -np.inf, np.inf, -np.inf, -np.inf
    with np.errstate(all="ignore"):
        expected = OPS[name][0](dl.tensor(x, device="cpu")).numpy()
    found = OPS[name][0](dl.tensor(x, device=device)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


REDUCTIONS: dict[str, Callable[[dl.Tensor], dl.Tensor]] = {
    "sum": lambda x: x.sum(-1),
    "prod": lambda x: x.prod(-1),
    "count_nonzero": lambda x: x.count_nonzero(-1),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin(-1),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
}


# For one workgroup of one subgroup or more, for several slices, and of several axes.
@each("shape", [(5, 132), (3, 516), (2, 4096), (1, 70004), (3, 7, 260)])
@pytest.mark.parametrize("name", list(REDUCTIONS))
@pytest.mark.usefixtures("variant")
def test_reductions_of_special_values(name: str, shape: tuple[int, ...], device: str) -> None:
    """Against the host: nan and infinities anywhere, equal extremes, and zeros of both signs."""
    random = generator(name, shape)
    x = np.sign(numbers(random, shape)) * np.exp2(random.integers(-1, 2, shape)).astype(np.float32)
    rows = x.reshape(-1, shape[-1])
    rows[0] = np.where(rows[0] > 0, 0.0, np.float32(-0.0))
    if name not in ("sum", "prod", "var", "std"):  # nan, or the same everywhere
        for special, row in zip(SPECIAL, rows[1:], strict=False):
            row[random.integers(0, shape[-1], 2)] = special
    op = REDUCTIONS[name]
    with np.errstate(all="ignore"):
        expected = op(dl.tensor(x, device="cpu")).numpy()
    found = op(dl.tensor(x, device=device)).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-4 if name == "sum" else 0)


@pytest.mark.usefixtures("variant")
def test_layer_norm_far_from_zero(device: str) -> None:
    x = numbers(generator(), (5, 132)) + np.float32(4096)
    found = dl.nn.functional.layer_norm(dl.tensor(x, device=device), 132).numpy()
    np.testing.assert_allclose(found, layer_norm(x.astype(np.float64)), atol=2e-3)
