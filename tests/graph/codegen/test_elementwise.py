"""Generated elementwise kernels: the same bits as the ops' own kernels, for every op and in every layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.codegen import elementwise
from dl4all.graph.codegen.elementwise_kernel import DTYPES, HALVES, combine
from dl4all.graph.ir.graph import Graph
from dl4all.graph.tracing.trace import trace
from dl4all.ops import REGISTRY
from dl4all.ops.elementwise.declare import Elementwise
from tests.conftest import need
from tests.graph.replay import replay, same_bits
from tests.support.operands import LAYOUTS, Layout, completed, draw, generator, numbers

pytestmark = pytest.mark.vulkan
NAME = "vulkan:0"
DECLARED = [
    (op, dtype)
    for op in REGISTRY.values()
    if isinstance(op, Elementwise)
    for dtype in (*op.by_dtype, *(HALVES if "float32" in op.by_dtype else ()))
    if dtype in DTYPES
]
IDS = [f"{op.name}-{dtype}" for op, dtype in DECLARED]


@pytest.fixture(autouse=True)
def vulkan() -> None:
    """Without a Vulkan device there is nothing to compare with."""
    need(NAME)


def generated(graph: Graph) -> Graph | None:
    """The graph with one kernel for all of its nodes, or None where there can be none."""
    outputs = {operand.value for operand in graph.outputs}
    bound = elementwise.launch(graph.nodes, outputs, graph, dl.device(NAME))
    if bound is None:
        return None
    return replace(graph, nodes=(replace(graph.nodes[-1], commands=(bound,)),))


def compare(function: Any, *inputs: dl.Tensor) -> Graph:
    """Trace a function, and compare its kernels with one generated kernel."""
    graph = trace(function, *inputs)
    one = generated(graph)
    assert one is not None
    same_bits(replay(one, *inputs), replay(graph, *inputs))
    return one


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("op", "dtype"), DECLARED, ids=IDS)
def test_every_op(op: Elementwise[...], dtype: str) -> None:
    rng = generator("generated", op.name, dtype)
    arguments = completed(op, {"beta": 1.5} if op.name.startswith("smooth") else {}, dtype)
    tensors = [dl.tensor(draw(op, name, rng, (6, 10, 4), dtype), device=NAME) for name in op.arrays]
    compare(lambda *operands: op(*operands, **arguments), *tensors)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_every_conversion(source: str, target: str) -> None:
    values = np.array([0, 1, 2.75, 100, -3, -0.5, 250, 7], np.float32)
    values = np.abs(values) if source in ("uint8", "bool") or target == "uint8" else values
    x = dl.tensor(values.astype(source), device=NAME)
    # Twice, as a cast to the same dtype is no command.
    compare(lambda x: dl.ops.cast(dl.ops.clone(x), target), x)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(
    "shape", [(3, 5, 7), (2, 3, 4, 8), (12, 68), (6, 1, 5), (4,), (1,), (2, 3, 2, 3, 2, 4)]
)
def test_layouts(layout: Layout, shape: tuple[int, ...]) -> None:
    rng = generator("layouts", shape)
    x, _ = layout(numbers(rng, shape), NAME)
    y, _ = layout(numbers(rng, shape[-1:]), NAME)
    z = dl.tensor(numbers(rng, (shape[0], *(1,) * (len(shape) - 1))), device=NAME)
    compare(lambda x, y, z: ((x * y).relu() - z).tanh() + x, x, y, z)


def test_dtypes_together() -> None:
    rng = generator("dtypes")
    x = dl.tensor(numbers(rng, (4, 8)), device=NAME)
    i = dl.tensor(numbers(rng, (4, 8), "int32"), device=NAME)
    b = dl.tensor(numbers(rng, (8,), "bool"), device=NAME)
    u = dl.tensor(numbers(rng, (4, 8), "uint8"), device=NAME)
    compare(lambda x, i, b, u: dl.where(b, x * i, x) + (u & 3) + (i > 2), x, i, b, u)
    compare(lambda x, i, b, u: (b & (x > 0)) | ~(i < 0), x, i, b, u)
    compare(lambda x, i, b, u: dl.ops.cast(~u, "float32"), x, i, b, u)


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_rounded_after_each_op(dtype: str) -> None:
    info = dl.finfo(dtype)
    ends = [info.max, info.tiny, info.tiny / 8, info.smallest_subnormal, 1 + info.eps, np.inf, np.nan, 0]
    values = np.array(ends, np.float64).astype(np.float32)
    x = dl.tensor(np.concatenate([values, -values]), device=NAME).to(dtype)
    f = dl.tensor(numbers(generator("halves", dtype), (16,)), device=NAME)
    h = f.to(dtype)
    compare(lambda x: (x * 1.001 + 0.0) * 0.5 - 1e-7, x)
    compare(lambda x, h: dl.where(h > 0, x, -h).relu() * 3.0 + abs(h), x, h)
    compare(lambda h: h.clamp(-0.301, 0.701) * 3.0, h)  # numbers that it does not hold
    compare(lambda h, f: (h.float() * f + h).to(dtype) * h, h, f)  # float32 on the way
    compare(lambda h: h.to("int32") + (h > 0.5), h)
    other = HALVES[dtype == HALVES[0]]
    compare(lambda h, f: f.to(other).to(dtype) * h + 1, h, f)


def test_several_results() -> None:
    rng = generator("several")
    x, y = (dl.tensor(numbers(rng, (5, 12)), device=NAME) for _ in range(2))

    def function(x: dl.Tensor, y: dl.Tensor) -> tuple[dl.Tensor, ...]:
        product = x * y
        return product, product + x, (product > 0)

    one = compare(function, x, y)
    assert sum(one.nodes[0].commands[0].writes) == 3  # type: ignore[union-attr]


def test_products_are_rounded_before_sums() -> None:
    # A product that a sum takes in unrounded gives another result than 0 here.
    x = dl.tensor(np.array([1 + 2**-12] * 8, np.float32), device=NAME)
    y = dl.tensor(np.array([-(1 + 2**-11)] * 8, np.float32), device=NAME)
    one = compare(lambda x, y: x * x + y, x, y)
    # Not all devices join a product and a sum, so the text is looked at, too.
    assert "precise float mul_1 = x0 * x0;" in one.nodes[0].commands[0].launch.shader.source  # type: ignore[union-attr]


def test_what_one_kernel_cannot_compute() -> None:
    x = dl.tensor(numbers(generator("refused"), (8, 8)), device=NAME)
    assert generated(trace(lambda x: (x + 1).t() * (x + 2), x)) is None  # reads a result transposed
    assert generated(trace(lambda x: (x + 1)[:1] * x, x)) is None  # another number of elements
    assert generated(trace(lambda x: x[:3, :3] > 0, x)) is None  # 9 bools do not fill words
    assert generated(trace(lambda x: (x.add_(x.t()), x)[1], x)) is None  # would read what it writes

    def more_than_8_buffers(x: dl.Tensor) -> dl.Tensor:
        total = x
        for row in range(8):
            total = total + x[row]
        return total

    assert generated(trace(more_than_8_buffers, x)) is None


def test_the_text_serves_other_shapes_and_numbers() -> None:
    def text(shape: tuple[int, ...], number: float) -> Any:
        x, y = dl.zeros(*shape, device=NAME), dl.zeros(shape[-1], device=NAME)
        graph = generated(trace(lambda x, y: (x * number + y).sigmoid(), x, y))
        assert graph is not None
        return graph.nodes[0].commands[0].launch.shader  # type: ignore[union-attr]

    assert text((5, 8), 2.0) == text((9, 64), 3.5)
    assert text((5, 8), 2.0).path == "generated/fused_mul_add_sigmoid.comp"
    assert text((5, 8), 2.0) != text((5, 9), 2.0)  # no vectors of four


def test_combine_says_what_is_kept() -> None:
    x = dl.zeros(4, 4, device="null:0")
    graph = trace(lambda x: ((x + 1) * 2).relu(), x)
    kernel = combine(graph.nodes, {graph.outputs[0].value})
    assert kernel is not None
    assert [step.name for step in kernel.steps] == ["add_1", "mul_2", "relu_3"]
    assert (len(kernel.loads), len(kernel.stores), kernel.nbytes) == (1, 1, 128)
    assert combine(graph.nodes, set()) is None
