"""Compiled matrix products of the CPU beside NumPy's and PyTorch's: shapes, layouts, forms, batches, bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.host_kernels.linalg import gemm
from dl4all.runtime.cpu.llvm import provider
from tests.conftest import run_python
from tests.support.host_launches import HostLaunches, poison_memory

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

SHAPES = [
    (1, 1, 1), (2, 1, 3), (1, 300, 1009), (5, 3, 211), (13, 7, 11), (25, 513, 77), (31, 64, 1),
    (97, 33, 130), (130, 300, 67), (200, 5003, 3), (7, 33, 16), (16, 784, 50), (173, 70, 200),
    (331, 257, 129), (33, 129, 17),
]  # fmt: skip
"""Rows, depth and columns."""

BATCHES = [
    ((3, 13, 37), (3, 37, 45)), ((70, 13, 37), (37, 45)), ((13, 37), (5, 37, 45)), ((2, 1, 5, 7), (3, 7, 4)),
    ((3, 2, 5, 7), (3, 1, 7, 4)), ((4, 1, 67), (67, 5)), ((2, 3, 70, 9), (2, 3, 9, 41)), ((5, 19), (19,)),
    ((19,), (19, 5)), ((3, 5, 19), (19,)), ((19,), (19,)), ((200, 40, 3), (200, 3, 50)),
]  # fmt: skip

TOLERANCES = {"float32": 2e-6, "float64": 1e-14}
NDArray = np.ndarray[Any, Any]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> HostLaunches:
    return HostLaunches(monkeypatch)


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> NDArray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def laid_out(array: NDArray, layout: str) -> tuple[dl.Tensor, NDArray]:
    """A tensor of the CPU that lies in memory as a layout says, and its elements."""
    if layout == "columns":
        return dl.tensor(array.swapaxes(-1, -2).copy(), device="cpu").transpose(-1, -2), array
    if layout == "gaps":
        wide = np.repeat(array, 2, axis=-1)
        return dl.tensor(wide, device="cpu")[..., ::2], array
    return dl.tensor(array, device="cpu"), array


def check(got: NDArray, expected: NDArray, depth: int, label: object) -> None:
    tolerance = TOLERANCES[got.dtype.name] * max(1.0, depth**0.5)
    assert got.shape == expected.shape, label
    np.testing.assert_allclose(got, expected, tolerance, tolerance, err_msg=str(label))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "layouts", [(a, b) for a in ("rows", "columns", "gaps") for b in ("rows", "columns", "gaps")]
)
def test_matrices(layouts: tuple[str, str], dtype: str, launches: HostLaunches) -> None:
    for m, k, n in SHAPES:
        a, left = laid_out(numbers((m, k), dtype), layouts[0])
        b, right = laid_out(numbers((k, n), dtype, 1), layouts[1])
        poison_memory(4 * m * n)
        count = launches.count
        result = dl.matmul(a, b).numpy()
        assert launches.count == count + 1, (m, k, n)
        check(result, np.matmul(left.astype(np.float64), right), k, (m, k, n))


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_every_form_computes_every_shape(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that another form computes faster."""
    forms = ["panels", "turned", "direct" if layout == "rows" else "rows"]
    for form in forms:
        monkeypatch.setattr(gemm, "_form", lambda problem, form=form: form)
        dl.device("cpu").plans.clear()
        for m, k, n in SHAPES:
            if n == 1:  # then the operands change places
                continue
            a = dl.tensor(numbers((m, k)), device="cpu")
            b, right = laid_out(numbers((k, n), seed=1), layout)
            poison_memory(4 * m * n)
            expected = np.matmul(a.numpy().astype(np.float64), right)
            check(dl.matmul(a, b).numpy(), expected, k, (form, m, k, n))
    dl.device("cpu").plans.clear()


@pytest.mark.parametrize("shapes", BATCHES)
def test_batches(shapes: tuple[tuple[int, ...], tuple[int, ...]], launches: HostLaunches) -> None:
    left, right = numbers(shapes[0]), numbers(shapes[1], seed=1)
    layouts = ["rows", "columns"] if min(map(len, shapes)) > 1 else ["rows"]
    for layout in layouts:
        a, _ = laid_out(left, layout)
        for other in layouts:
            b, _ = laid_out(right, other)
            count = launches.count
            result = dl.matmul(a, b).numpy()
            assert launches.count == count + 1, (layout, other)
            check(result, np.matmul(left.astype(np.float64), right), shapes[0][-1], (layout, other))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_beside_torch(bias: bool, dtype: str, launches: HostLaunches) -> None:
    for lead, k, n in [
        ((1,), 784, 37),
        ((3,), 7, 1),
        ((17,), 300, 33),
        ((2, 5, 3), 11, 70),
        ((130,), 257, 129),
        ((), 5, 4),
    ]:
        operands = [numbers((*lead, k), dtype), numbers((n, k), dtype, 1)]
        operands += [numbers((n,), dtype, 2)] if bias else []
        g = numbers((*lead, n), dtype, 3)
        own = [dl.tensor(x, device="cpu", requires_grad=True) for x in operands]
        other = [torch.tensor(x.astype(np.float64), requires_grad=True) for x in operands]
        count = launches.count
        result = dl.nn.functional.linear(*own)
        assert launches.count == count + 1, (lead, k, n)
        result.backward(dl.tensor(g, device="cpu"))
        expected = torch.nn.functional.linear(*other)
        expected.backward(torch.tensor(g.astype(np.float64)))  # type: ignore[no-untyped-call]
        check(result.detach().numpy(), expected.detach().numpy(), k, (lead, k, n))
        for x, y in zip(own, other, strict=True):
            assert x.grad is not None
            assert y.grad is not None
            check(x.grad.numpy(), y.grad.numpy(), max(n, g.size // n), (lead, k, n))


def test_special_numbers_go_where_they_belong() -> None:
    """nan and inf reach the rows and columns of their operands only, in whole tiles and in masked ones."""
    for m, k, n in [(37, 70, 53), (3, 70, 53), (300, 70, 150)]:
        for layout in ("rows", "columns"):
            left, right = numbers((m, k)), numbers((k, n), seed=1)
            left[m - 1, 5], right[k - 1, n - 1], right[0, 1] = np.nan, np.inf, -np.inf
            b, _ = laid_out(right, layout)
            with np.errstate(invalid="ignore"):
                expected = np.matmul(left, right)
            got = dl.matmul(dl.tensor(left, device="cpu"), b).numpy()
            np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
            np.testing.assert_array_equal(np.isposinf(got), np.isposinf(expected))
            np.testing.assert_allclose(
                got[np.isfinite(expected)], expected[np.isfinite(expected)], 1e-4, 1e-4
            )


def test_long_sums_keep_their_digits() -> None:
    """Sums of a million products of one sign: partial sums lose less than one running sum would."""
    k = 1_000_003
    left, right = abs(numbers((2, k))), abs(numbers((k, 3), seed=1))
    expected = np.matmul(left.astype(np.float64), right)
    for layout in ("rows", "columns"):
        b, _ = laid_out(right, layout)
        np.testing.assert_allclose(dl.matmul(dl.tensor(left, device="cpu"), b).numpy(), expected, 1e-5)


def test_large_products_pack_part_of_b_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "PACKED_ELEMENTS", 20_000)
    dl.device("cpu").plans.clear()
    for lead, m, k, n in [((), 170, 300, 333), ((7,), 170, 70, 100), ((2,), 200, 1000, 70)]:
        left, right = numbers((*lead, m, k)), numbers((*lead, k, n), seed=1)
        result = dl.matmul(dl.tensor(left, device="cpu"), dl.tensor(right, device="cpu")).numpy()
        check(result, np.matmul(left.astype(np.float64), right), k, (lead, m, k, n))
    dl.device("cpu").plans.clear()


BITS = """
import hashlib
import numpy as np
import dl4all as dl

rng = np.random.default_rng(4)
numbers = lambda *shape: dl.tensor(rng.standard_normal(shape).astype(np.float32), device="cpu")
digest = hashlib.sha256()

def note(*tensors):
    for tensor in tensors:
        digest.update(tensor.numpy().tobytes())
        dl.full(tensor.shape, np.nan, device="cpu")

for m, k, n in ((331, 700, 517), (33, 784, 256), (1, 784, 2560), (700, 64, 64), (7, 1000, 3000)):
    a, b, w, bias = numbers(m, k), numbers(k, n), numbers(n, k), numbers(n)
    note(a @ b, dl.nn.functional.linear(a, w, bias), a.T @ numbers(m, n), (w @ a.T).T)
note(numbers(64, 33, 47) @ numbers(64, 47, 65), numbers(9, 300) @ numbers(300, 700))
for causal in (False, True):
    q, k, v = (numbers(3, 2, size, 37).requires_grad_() for size in (150, 270, 270))
    result = dl.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    result.backward(numbers(3, 2, 150, 37))
    note(result.detach(), q.grad, k.grad, v.grad)
print(digest.hexdigest())
"""


def test_bits_do_not_depend_on_threads() -> None:
    digests = set()
    for threads in ("1", "2", "7"):
        ended = run_python(BITS, DL4ALL_THREADS=threads)
        assert ended.returncode == 0, ended.stderr
        digests.add(ended.stdout)
    assert len(digests) == 1
