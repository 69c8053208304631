"""What goes into an epilogue and what does not, on a device that computes nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.codegen.epilogue import COORDINATES, Place, epilogue_of, number, place_of
from dl4all.graph.ir.graph import BoundLaunch, Operand, Value
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.fusion import epilogues as module
from dl4all.graph.passes.fusion.epilogues import epilogues
from dl4all.graph.tracing.trace import trace
from dl4all.ops import all_shaders
from dl4all.ops.conv.algorithms import forced
from dl4all.shaders import ROOT

F = dl.nn.functional
ROWS, COLUMNS, INNER = 6, 5, 4


@pytest.fixture(autouse=True)
def _many_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The null device allows four buffers, which leaves no room for operands."""
    monkeypatch.setattr(module, "max_bindings", lambda _: 8)


def _random(*shape: int) -> dl.Tensor:
    return dl.tensor(np.random.default_rng(0).random(shape, np.float32), device="null:0")


def _names(function: Callable[..., Any], *tensors: dl.Tensor) -> list[str]:
    """The names of a graph's nodes after the pass; the last value is the result."""
    with dl.no_grad():
        graph = trace(function, *tensors)
    merged = epilogues(graph)
    verify(merged)
    assert merged.outputs == graph.outputs
    return [node.name for node in merged.nodes]


@pytest.fixture
def x() -> dl.Tensor:
    return _random(ROWS, INNER)


@pytest.fixture
def w() -> dl.Tensor:
    return _random(INNER, COLUMNS)


@pytest.fixture
def r() -> dl.Tensor:
    return _random(ROWS, COLUMNS)


# What is taken


def test_a_node_keeps_the_others_as_its_parts(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> None:
    graph = trace(lambda x, w, r: (x @ w + r).relu(), x, w, r)
    [node] = epilogues(graph).nodes
    assert node.parts == graph.nodes
    assert node.result == graph.nodes[-1].result
    assert [operand.value for operand in node.tensors] == [Value(number, 0) for number in graph.inputs]
    [command] = node.commands
    assert isinstance(command, BoundLaunch)
    assert command.writes == (False, False, False, True, False)
    assert command.bindings[-1].buffer == graph.inputs[-1]
    defines = dict(command.launch.shader.defines)
    assert defines["EPILOGUE"] == (
        "const float t0 = v + 1.0 * x0; const float t1 = t0 < 0.0 ? 0.0 : t0; return t1;"
    )


def test_what_a_product_has_of_its_own_is_no_size(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> None:
    """One program serves all sizes."""

    def shader(*tensors: dl.Tensor) -> Any:
        [node] = epilogues(trace(lambda x, w, r: x @ w * r[:1] - r, *tensors)).nodes
        [command] = node.commands
        assert isinstance(command, BoundLaunch)
        return command.launch.shader

    sizes = [(ROWS, INNER), (INNER, COLUMNS), (ROWS, COLUMNS)], [(9, INNER), (INNER, 7), (9, 7)]
    first, second = (shader(*(_random(*shape) for shape in shapes)) for shapes in sizes)
    assert first == second


def test_operands_that_come_later_move_the_product(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> None:
    def function(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
        product = x @ w
        return product * r.cumsum(1)

    assert _names(function, x, w, r) == ["cumsum", "matmul_mul"]


def test_of_two_products_the_later_one_takes_their_sum(x: dl.Tensor, w: dl.Tensor) -> None:
    def function(x: dl.Tensor, w: dl.Tensor) -> dl.Tensor:
        first, second = (x @ w).relu(), (-x) @ w
        return (first + second).relu()

    assert _names(function, x, w) == ["matmul_relu", "neg", "matmul_add_relu"]


def test_views_of_the_result(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> None:
    def function(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
        product = (x @ w).reshape(2, 3, COLUMNS)
        return (product + r.reshape(2, 3, COLUMNS)).relu()

    assert _names(function, x, w, r) == ["matmul_add_relu"]


def test_an_operand_of_several_nodes_is_bound_once(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> None:
    [node] = epilogues(trace(lambda x, w, r: (x @ w + r) * r, x, w, r)).nodes
    [command] = node.commands
    assert isinstance(command, BoundLaunch)
    assert len(command.bindings) == 5


# What is left


def _read_twice(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> tuple[dl.Tensor, ...]:
    product = x @ w
    return product.relu(), product.softmax(1)


def _returned(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> tuple[dl.Tensor, ...]:
    product = x @ w
    return product, product.relu()


def _transposed_operand(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
    return x @ w + r.reshape(COLUMNS, ROWS).T


def _transposed_result(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
    return (x @ w).T.relu()


def _part_of_the_result(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
    return (x @ w)[1:].relu()


def _part_of_an_operand(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
    return x @ w + r[2]


def _larger(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
    return x @ w + r.reshape(1, ROWS, COLUMNS).expand(2, -1, -1)


def _comparison(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
    return x @ w > r


def _into_an_operand(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
    return r.exp().add_(x @ w)


def _overwritten_input(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
    x = x.exp()
    product = x @ w
    x.fill_(1.0)
    return product + x.sum()


@pytest.mark.parametrize(
    "function",
    [
        _read_twice,
        _returned,
        _transposed_operand,
        _transposed_result,
        _part_of_the_result,
        _part_of_an_operand,
        _larger,
        _comparison,
        _into_an_operand,
        _overwritten_input,
    ],
)
def test_other_nodes_stay(function: Callable[..., Any], x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> None:
    with dl.no_grad():
        assert _names(function, x, w, r) == [node.name for node in trace(function, x, w, r).nodes]


def test_a_sum_in_several_launches_stays() -> None:
    """Its launches add to what the ones before have stored."""
    a, b = _random(2, 40_000), _random(40_000, 3)
    assert _names(lambda a, b: (a @ b).relu(), a, b) == ["matmul", "relu"]


def test_kernels_without_epilogues_stay() -> None:
    x, w = _random(1, 2, 30, 30), _random(3, 2, 11, 11)
    with forced("fft"):
        assert _names(lambda x, w: F.conv2d(x, w).relu(), x, w) == ["conv2d", "relu"]


def test_limits_of_a_device(
    x: dl.Tensor, w: dl.Tensor, r: dl.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
        return (x @ w).relu() + r

    assert _names(function, x, w, r) == ["matmul_relu_add"]
    monkeypatch.undo()  # the null device allows four buffers
    assert _names(function, x, w, r) == ["matmul_relu", "add"]


def test_five_operands_are_one_too_many(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> None:
    def function(x: dl.Tensor, w: dl.Tensor, *others: dl.Tensor) -> dl.Tensor:
        result = x @ w
        for other in others:
            result = result + other
        return result

    operands = [_random(ROWS, COLUMNS) for _ in range(5)]
    assert _names(function, x, w, *operands) == ["matmul_add_add_add_add", "add"]


@pytest.mark.parametrize("columns", [5, 6, 7])
def test_dropout_of_results_that_are_not_stored_in_fours_stays(x: dl.Tensor, columns: int) -> None:
    w = _random(INNER, columns)
    assert _names(lambda x, w: F.dropout(x @ w, 0.5), x, w) == ["matmul", "random_dropout"]


def test_dropout_of_channels_stays(x: dl.Tensor) -> None:
    w = _random(INNER, 8)
    assert _names(lambda x, w: F.dropout1d(x @ w, 0.5), x, w) == ["matmul", "random_dropout"]


def test_numbers_of_dropout_vary_where_they_are_now(x: dl.Tensor) -> None:
    w, r = _random(INNER, 8), _random(ROWS, 8)

    def function(x: dl.Tensor, w: dl.Tensor, r: dl.Tensor) -> dl.Tensor:
        return F.dropout(F.dropout(x @ w, 0.5) + r, 0.25)

    graph = trace(function, x, w, r)
    [node] = epilogues(graph).nodes
    [command] = node.commands
    assert isinstance(command, BoundLaunch)
    words = [
        (word.source, word.number, word.half, _word(before, word.offset))
        for part in graph.nodes
        for before in part.commands
        if isinstance(before, BoundLaunch)
        for word in before.varying
    ]
    assert len(words) >= 4
    assert words == [
        (word.source, word.number, word.half, _word(command, word.offset)) for word in command.varying
    ]


def _word(command: BoundLaunch, offset: int) -> bytes:
    return command.launch.push[offset : offset + 4]


# Pieces


@pytest.mark.parametrize(
    ("shape", "strides", "place"),
    [
        ((2, 3, 4, 5), (60, 20, 5, 1), Place(1, 120)),
        ((3, 1, 1), (1, 1, 1), Place(20, 3)),
        ((2, 3, 1, 1), (3, 1, 1, 1), Place(20, 6)),
        ((5,), (1,), Place(1, 5)),
        ((4, 1), (1, 1), Place(5, 4)),
        ((1, 3, 4, 5), (60, 20, 5, 1), Place(1, 60)),
        ((1,), (1,), Place(120, 1)),
        ((), (), Place(120, 1)),
        ((2, 1, 1, 5), (5, 5, 5, 1), None),
        ((2, 3, 4, 5), (60, 20, 1, 4), None),
        ((3, 1, 1), (2, 1, 1), None),
        ((6,), (1,), None),
        ((1, 2, 3, 4, 5), (120, 60, 20, 5, 1), None),
    ],
)
def test_places(shape: tuple[int, ...], strides: tuple[int, ...], place: Place | None) -> None:
    result = (2, 3, 4, 5)
    assert place_of(Operand(Value(0, 1), shape, "float32", strides), result) == place
    if place is not None:
        elements = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        at = np.arange(120)
        expected = np.broadcast_to(elements, result).ravel()
        np.testing.assert_array_equal(at // place.inner % place.period, expected)


@pytest.mark.parametrize("value", [0.1, -3, 1e-30, -1e30, 2**24 + 1, True, np.float32(0.3)])
def test_numbers_keep_all_bits(value: float) -> None:
    text = number(value)
    assert text is not None
    assert np.float32(float(text.strip("()"))) == np.float32(value)
    assert "." in text or "e" in text  # an int would not be converted everywhere


@pytest.mark.parametrize(
    ("value", "expected"), [(np.inf, np.inf), (-np.inf, -np.inf), (np.nan, np.nan), (1e300, np.inf)]
)
def test_numbers_that_are_not_finite(value: float, expected: float) -> None:
    text = number(value)
    assert text is not None
    bits = int(text.removeprefix("uintBitsToFloat(").removesuffix("u)"), 16)
    assert struct.unpack("<f", struct.pack("<I", bits)) == pytest.approx((expected,), nan_ok=True)


def test_what_is_no_number() -> None:
    assert number(None) is None
    assert number("1") is None


def test_no_nodes_are_no_epilogue() -> None:
    assert epilogue_of(Operand(Value(0, 1), (3,), "float32", (1,)), []) is None


def test_every_shader_with_an_epilogue_is_known() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.comp")}
    having = {path for path in files if "EPILOGUE_PUSH" in _text(path)}
    assert having == set(COORDINATES)
    assert {shader.path for shader in all_shaders()} >= having


def _text(path: str) -> str:
    text = (ROOT / path).read_text("utf-8")
    return text + (ROOT / "linalg" / "operands.glsl").read_text("utf-8") * ("operands.glsl" in text)
