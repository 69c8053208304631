"""Elementwise nodes in the kernels of products and convolutions, against the same ops with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.fusion.epilogues import epilogues
from dl4all.ops.conv.algorithms import forced
from dl4all.ops.core.kernels import autotune
from dl4all.ops.linalg import gemm
from tests.support.device_traces import need_bindings, traced_on_device
from tests.support.operands import NDArray
from tests.support.subcases import FULL

F = dl.nn.functional
Function = Callable[..., Any]


def _random(*shapes: tuple[int, ...]) -> list[NDArray]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def _check(function: Function, arrays: list[NDArray], names: list[str], tolerance: float = 2e-5) -> None:
    """The graph of a function on a device gives what the function gives with NumPy, and has these nodes."""
    expected = function(*(dl.tensor(array, device="cpu") for array in arrays)).numpy()
    traced = traced_on_device(function, *arrays)
    merged = epilogues(traced.graph)
    assert [node.name for node in merged.nodes] == names
    verify(merged)
    got, scale = traced._replace(graph=merged).outcome, np.abs(expected).max()
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale)
    np.testing.assert_allclose(got, traced.result, rtol=1e-6, atol=1e-6 * scale)


# What convolutions and products take


CONV: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "direct": ((2, 3, 9, 8), (5, 3, 3, 3), {"padding": 1}),
    "direct, odd": ((2, 4, 9, 7), (6, 2, 3, 2), {"padding": (1, 0), "groups": 2, "stride": (1, 2)}),
    "implicit_gemm": ((2, 3, 7, 6), (9, 3, 3, 3), {"padding": 1, "stride": 2}),
    "implicit_gemm, odd": ((3, 4, 7, 5), (6, 2, 3, 3), {"groups": 2}),
    "winograd2": ((2, 3, 7, 9), (5, 3, 3, 3), {"padding": 1}),
    "winograd4": ((1, 3, 11, 9), (4, 3, 3, 3), {"padding": 1}),
    "im2col": ((2, 3, 9, 8), (5, 3, 3, 3), {"padding": 1}),
    "im2col, odd": ((3, 4, 7, 5), (6, 2, 3, 2), {"groups": 2}),
    "im2col, 1x1": ((2, 4, 5, 7), (6, 4, 1, 1), {}),
    "depthwise": ((2, 5, 7, 9), (10, 1, 3, 3), {"padding": 1, "groups": 5}),
}

EPILOGUES: dict[str, tuple[Function, list[str]]] = {
    "relu": (lambda y, *_: y.relu(), ["relu"]),
    "channels": (lambda y, c, *_: y * c + 0.5, ["mul", "add"]),
    "residual": (lambda y, c, r, _: (y + r).relu(), ["add", "relu"]),
    "each image": (lambda y, c, r, s: F.leaky_relu(y * s + c, 0.3), ["mul", "add", "leaky_relu"]),
    "divided": (lambda y, c, r, s: dl.sub(y, r, alpha=-2) / c, ["sub", "true_divide"]),
    "in place": (lambda y, c, r, _: y.add_(r).relu_().mul_(-1.5), ["add", "relu", "mul"]),
    "gate": (lambda y, *_: y * y.sigmoid(), ["sigmoid", "mul"]),
}


CONV_EPILOGUES = [
    (case, epilogue)
    for i, case in enumerate(CONV)
    for j, epilogue in enumerate(EPILOGUES)
    if FULL or (i + j) % 3 == 2
]
"""Each pair is a program to compile: the usual run takes a third of them."""


@pytest.mark.sampled(2)
@pytest.mark.vulkan
@pytest.mark.parametrize(("case", "epilogue"), CONV_EPILOGUES)
def test_convolutions(case: str, epilogue: str) -> None:
    need_bindings(8)
    shape, filters, arguments = CONV[case]
    x, w, bias = _random(shape, filters, filters[:1])
    y = F.conv2d(dl.tensor(x, device="cpu"), dl.tensor(w, device="cpu"), **arguments)
    channels, residual, scale = _random((y.shape[1], 1, 1), y.shape, (y.shape[0], 1, *y.shape[2:]))
    if epilogue == "each image":
        scale = scale[:, :, :1, :1].copy()
    after, names = EPILOGUES[epilogue]

    def function(x: Any, w: Any, bias: Any, *rest: Any) -> Any:
        return after(F.conv2d(x, w, bias, **arguments), *rest)

    with forced(case.split(",")[0]):
        _check(function, [x, w, bias, channels, residual, scale], ["conv2d_" + "_".join(names)])


SUMS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "one row": ((1, 67), (67, 5)),
    "rows of four": ((13, 20), (20, 8)),
    "odd rows": ((13, 20), (20, 7)),
    "batch": ((3, 5, 9), (3, 9, 4)),
    "odd batch": ((2, 3, 5, 7), (3, 7, 5)),
}


@pytest.mark.sampled(2)
@pytest.mark.vulkan
@pytest.mark.parametrize("form", ["", "plain 64x64", "shared 64x64", "words64 64x16", "shuffle 16x12"])
@pytest.mark.parametrize("case", SUMS)
def test_matrix_products(case: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_bindings(8)
    if form:
        _tune(monkeypatch, form)
    a, b = _random(*SUMS[case])
    shape = (a @ b).shape
    columns, rows, residual, matrix = _random(shape[-1:], (shape[-2], 1), shape, shape[-2:])

    def function(a: Any, b: Any, columns: Any, rows: Any, residual: Any, matrix: Any) -> Any:
        return ((a @ b + columns) * rows + residual).tanh() + matrix

    arrays = [a, b, columns, rows, residual, matrix]
    _check(function, arrays, ["matmul_add_mul_add_tanh_add"])


@pytest.mark.vulkan
@pytest.mark.parametrize("form", ["invocation", "workgroup", "tiles", "shared 32x32"])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 4, 9])
def test_linear(rows: int, has_bias: bool, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_bindings(8)
    _tune(monkeypatch, form)
    x, w, bias, residual, columns = _random((rows, 37), (11, 37), (11,), (rows, 11), (11,))

    def function(x: Any, w: Any, bias: Any, residual: Any, columns: Any, scale: Any) -> Any:
        return F.gelu(F.linear(x, w, bias if has_bias else None) * columns * scale) + residual

    scale = np.abs(residual[:, :1]) + 0.5
    names = ["linear_mul_mul_gelu_exact_add"]
    _check(function, [x, w, bias, residual, columns, scale], names)


@pytest.mark.vulkan
@pytest.mark.parametrize("form", ["", "plain 64x64", "shared 32x32"])
@pytest.mark.parametrize("shape", [(13, 20, 8), (67, 5, 4)])
def test_dropout(shape: tuple[int, int, int], form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same elements are dropped as in a launch of its own."""
    need_bindings(8)
    if form:
        _tune(monkeypatch, form)
    rows, inner, columns = shape
    a, b, residual = _random((rows, inner), (inner, columns), (rows, columns))

    def function(a: Any, b: Any, residual: Any) -> Any:
        return F.dropout((F.dropout(a @ b, 0.3) + residual).relu(), 0.5)

    traced = traced_on_device(function, a, b, residual)
    merged = epilogues(traced.graph)
    verify(merged)
    assert [node.name for node in merged.nodes] == ["matmul_random_dropout_add_relu_random_dropout"]
    np.testing.assert_array_equal(traced._replace(graph=merged).outcome, traced.result)


@pytest.mark.vulkan
def test_sums_of_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    need_bindings(8)
    monkeypatch.setattr(gemm, "slice_count", lambda *_: 4)
    a, b, columns, residual = _random((9, 1030), (1030, 7), (7,), (9, 7))
    function: Function = lambda a, b, columns, residual: (a @ b + columns).relu() + residual  # noqa: E731
    _check(function, [a, b, columns, residual], ["matmul_add_relu_add"])


@pytest.mark.vulkan
def test_sums_of_slots() -> None:
    need_bindings(8)
    x, w = _random((8, 3, 20, 20), (5, 3, 3, 3))
    g = np.ones((8, 5, 18, 18), np.float32)

    def function(x: Any, w: Any, g: Any) -> Any:
        return dl.ops.conv_weight(g, x, kernel_size=(3, 3)) * 0.1 + w

    with forced("direct"):
        _check(function, [x, w, g], ["conv_weight_mul_add"])


@pytest.mark.vulkan
def test_repairs_of_winograd() -> None:
    """Tiles that are computed again, and results that are nan by the epilogue."""
    need_bindings(8)
    x, w = _random((1, 3, 12, 12), (4, 3, 3, 3))
    x[0, 1, 5, 6] = np.inf
    x[0, 2, 0, 0] = np.nan

    def function(x: Any, w: Any) -> Any:
        return F.conv2d(x, w, padding=1).clamp(-1.0, 2.0).sqrt()

    for name in ("winograd2", "winograd4"):
        with forced(name), np.errstate(invalid="ignore"):
            traced = traced_on_device(function, x, w)
            got = traced._replace(graph=epilogues(traced.graph)).outcome
        np.testing.assert_array_equal(np.isnan(got), np.isnan(traced.result))
        np.testing.assert_allclose(got, traced.result, rtol=2e-5)


def _tune(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As if a candidate of this name had won."""

    def choose(space: autotune.TuningSpace[Any, Any], device: dl.Device, problem: Any) -> Any:
        return space.candidates.get(name, space.candidates[space.usual(device, space.key(problem))])

    monkeypatch.setattr(autotune, "choose", choose)


@pytest.mark.vulkan
@pytest.mark.parametrize("after", [lambda x, y: x - y, lambda x, y: x / (y + 40.0)])
def test_the_product_is_the_second_operand(after: Any) -> None:
    """Of ops whose operands differ in what they mean."""
    need_bindings(8)
    a, b, x = _random((13, 20), (20, 8), (13, 8))
    name = "sub" if after(5, 3) == 2 else "add_true_divide"

    def function(a: Any, b: Any, x: Any) -> Any:
        return after(x, a @ b)

    _check(function, [a, b, x], [f"matmul_{name}"])
