"""No kernel reads or writes beyond its operands, also where a driver would not stop it."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.op import REGISTRY, Example, Op
from dl4all.ops.linalg.integer_product import integer_product
from dl4all.ops.linalg.packed_product import int4_quantized, packed_product, unpacked_matrix
from dl4all.runtime.protocols import Dispatch
from dl4all.runtime.spirv import Shader, load
from dl4all.scheduler.device.current import device as open_device
from tests.conftest import need
from tests.support.buffer_indices import compared
from tests.support.operands import LAYOUTS, operands_of
from tests.support.subcases import each_example, is_usual

pytestmark = pytest.mark.vulkan

SCALED = """
#version 450
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { TYPE x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { int first; uint n; } p;
void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < p.n) y[i] = 2.0 * x[p.first + int(i)]COMPONENT;
}
"""


@pytest.fixture(autouse=True)
def within_buffers() -> None:
    """Instead of the one that compares in a whole run: these tests do so themselves."""


@each_example("layout", LAYOUTS, ops=filter(is_usual, REGISTRY.values()), most=2)
def test_every_op(op: Op[...], case: Example, layout: str) -> None:
    """And its gradients."""
    need("vulkan:0")
    with compared(open_device("vulkan:0")):
        tensors, _ = operands_of(op, case, LAYOUTS[layout], "vulkan:0")
        for tensor in tensors:
            if tensor is not None and kind_of(tensor.dtype) == "f" and op.grad is not None:
                tensor.requires_grad_()
        result = op(*tensors, **dict(case.arguments))
        if result.requires_grad:
            result.backward(dl.randn(*result.shape, device="vulkan:0"))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_linear_of_few_rows(rows: int) -> None:
    """A kernel takes four at a time."""
    need("vulkan:0")
    rng = np.random.default_rng(rows)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 13), (67, 13), (67,)))
    with compared(open_device("vulkan:0")):
        result = dl.nn.functional.linear(*(dl.tensor(a, device="vulkan:0") for a in (x, w, b)))
        np.testing.assert_allclose(result.numpy(), x @ w.T + b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 9])
def test_products_of_few_bits(rows: int) -> None:
    """Rows and columns that do not fill a workgroup."""
    need("vulkan:0")
    rng = np.random.default_rng(rows)
    a, b = rng.integers(-128, 128, (rows, 37), np.int8), rng.integers(-128, 128, (19, 37), np.int8)
    packed, scales = int4_quantized(rng.standard_normal((19, 96)).astype(np.float32), 32)
    x = rng.standard_normal((rows, 96)).astype(np.float32)
    with compared(open_device("vulkan:0")):
        exact = integer_product(*(dl.tensor(values, device="vulkan:0") for values in (a, b)))
        np.testing.assert_array_equal(exact.numpy(), a.astype(np.int64) @ b.T.astype(np.int64))
        w, s = (dl.tensor(values, device="vulkan:0") for values in (packed, scales))
        weight: Any = unpacked_matrix(w, s)
        result = packed_product(dl.tensor(x, device="vulkan:0"), w, s)
        np.testing.assert_allclose(result.numpy(), x @ weight.numpy().T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("side", [5, 16])
def test_a_compiled_training_step(side: int) -> None:
    """Fused kernels, an optimizer's and gradients' ones."""
    need("vulkan:0")
    with compared(open_device("vulkan:0")) as indices:
        model = dl.nn.Sequential(
            dl.nn.Conv2d(3, side, 3), dl.nn.BatchNorm2d(side), dl.nn.GELU(), dl.nn.Flatten(),
            dl.nn.Linear(9 * side, 7),
        ).to("vulkan:0")  # fmt: skip
        optimizer = dl.optim.AdamW(model.parameters(), lr=0.01)

        @dl.compile
        def step(x: dl.Tensor, y: dl.Tensor) -> dl.Tensor:
            loss = dl.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(5):
            x, y = dl.randn(3, 3, 5, 5, device="vulkan:0"), dl.randint(0, 7, (3,), device="vulkan:0")
            step(x, y).item()
        assert step.specializations
    assert {"optim/adam.comp"} < {name.split()[0] for name in indices.names}


@pytest.mark.parametrize(
    ("first", "components", "component"),
    [(1, 1, 0), (-1, 1, 0), (2**31 - 64, 1, 0), (24, 4, 3), (2**31 - 64, 4, 0)],
)
def test_what_is_beyond_is_found(first: int, components: int, component: int) -> None:
    """Behind the end by one element, or by many, and before the start."""
    need("vulkan:0")
    device = open_device("vulkan:0")
    source = SCALED.replace("TYPE", "float" if components == 1 else "vec4")
    source = source.replace("COMPONENT", "" if components == 1 else f"[{component}]")
    program = device._backend.program(load(Shader("scaled.comp", source=source)), ())
    x, y = dl.ones(100, device=device), dl.zeros(100, device=device)

    def run(first: int, n: int) -> None:
        spans = [tensor.storage.span._replace(nbytes=400) for tensor in (x, y)]
        device._backend.stream.dispatch(Dispatch(program, spans, (2, 1, 1), struct.pack("<iI", first, n)))

    with compared(device):
        run(0, 100 // components)
    np.testing.assert_array_equal(y.numpy()[: 100 // components], 2.0)
    expected = r"scaled\.comp uses number \d+ of 4 bytes of binding 0, to which 400"
    with pytest.raises(AssertionError, match=expected), compared(device):
        run(first, 100 if components == 1 else 2)
    program.free()


@pytest.mark.parametrize("count", [1, 3, 5, 6, 8, 11])
def test_the_last_vector_is_read_as_a_whole(count: int) -> None:
    """Of a span that ends within it, also where it is read as a texel."""
    need("vulkan:0")
    device = open_device("vulkan:0")
    source = SCALED.replace("TYPE", "vec4").replace("x[p.first + int(i)]COMPONENT", "x[i / 4][i % 4]")
    program = device._backend.program(load(Shader("vectors.comp", source=source)), ())
    x, y = dl.randn(64, device=device), dl.zeros(64, device=device)
    spans = [tensor.storage.span._replace(nbytes=4 * count) for tensor in (x, y)]
    device._backend.stream.dispatch(Dispatch(program, spans, (1, 1, 1), struct.pack("<iI", 0, count)))
    np.testing.assert_array_equal(y.numpy(), np.where(np.arange(64) < count, 2 * x.numpy(), 0))
    program.free()


@pytest.mark.parametrize("shape", [(3, 3, 5), (7, 7, 1), (3, 3, 9)])
def test_products_of_diagonals_in_compiled_functions(shape: tuple[int, int, int], device: str) -> None:
    """Rows apart by multiples of four, of which the last vector ends behind the operand."""
    compiled = dl.compile(lambda x, y: dl.einsum("iij,ik->jk", x * 2 + 1, y))
    x, y = dl.randn(*shape, device=device), dl.randn(shape[0], 7, device=device)
    expected = np.einsum("iij,ik->jk", x.numpy() * 2 + 1, y.numpy())
    for _ in range(5):
        np.testing.assert_allclose(compiled(x, y).numpy(), expected, rtol=1e-5, atol=1e-5)
