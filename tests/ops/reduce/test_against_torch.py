"""Reductions against PyTorch: arguments, dtypes, special values, ties, gradients, accuracy of long sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.reduce.sums import accurate_sum
from tests.support.numpy_bodies import device as device
from tests.support.operands import NDArray, close, generator, numbers

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")
TOLERANCE = 1e-5  # see tests/ops/test_every_op_in_torch.py

DIMS: list[tuple[tuple[int, ...], Any]] = [
    ((5, 7), 0), ((5, 7), -1), ((5, 7), (0, 1)), ((2, 3, 5, 7), (1, 3)), ((2, 3, 5, 7), (0, 2)),
    ((3, 1, 5), 1), ((), 0), ((129, 257), 0), ((129, 257), 1), ((8, 16, 14, 14), (0, 2, 3)), ((3000, 5), 1),
    ((3000, 5), 0), ((2, 5000), 1), ((130, 3, 40), 1),
]  # fmt: skip
SPECIAL = np.array(
    [
        [1, math.nan, 3, 4], [math.inf, 1, 2, 3], [-math.inf, 1, 2, 3], [math.inf, -math.inf, 0, 1],
        [math.nan, math.nan, 1, 2], [-math.inf] * 4, [math.inf] * 4, [0.0, -0.0, 0.0, 0.0], [1, 2, 2, 1],
    ],
    np.float32,
)  # fmt: skip


def check(
    device: str, f: Callable[..., Any], g: Callable[..., Any], array: NDArray, tolerance: float = TOLERANCE
) -> None:
    """Values, and the gradients of a weighted sum of them, where they are floats."""
    x = dl.tensor(array, device=device)
    t = torch.from_numpy(array.copy())
    floats = kind_of(array.dtype) == "f"
    got, expected = f(x.requires_grad_() if floats else x), g(t.requires_grad_() if floats else t)
    assert str(expected.dtype) == f"torch.{got.dtype}"
    assert got.shape == tuple(expected.shape)
    if kind_of(got.dtype) != "f":
        np.testing.assert_array_equal(got.numpy(), expected.numpy())
        return
    close(got.numpy().astype(np.float64), expected.detach().numpy().astype(np.float64), tolerance)
    if got.requires_grad:
        weights = numbers(generator(str(array.shape)), got.shape, got.dtype)
        got.backward(dl.tensor(weights, device=device))
        expected.backward(torch.from_numpy(np.asarray(weights)))
        close(x.grad.numpy().astype(np.float64), t.grad.numpy().astype(np.float64), tolerance)


def along(name: str, **arguments: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return (
        lambda x, **more: getattr(dl, name)(x, **arguments, **more),
        lambda x, **more: getattr(torch, name)(x, **arguments, **more),
    )


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(("shape", "dim"), DIMS, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "logsumexp"])
def test_axes(name: str, shape: tuple[int, ...], dim: Any, keepdim: bool, device: str) -> None:
    array = numbers(generator(name, shape), shape)
    f, g = along(name, dim=dim, keepdim=keepdim)
    check(device, f, g, array)


@pytest.mark.parametrize(("shape", "dim"), [(s, d) for s, d in DIMS if s], ids=str)
@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("correction", [0, 1, 2.5])
def test_variance(name: str, correction: float, shape: tuple[int, ...], dim: Any, device: str) -> None:
    if shape == (3, 1, 5) and correction:
        pytest.skip("the variance of one element is nan")
    f, g = along(name, dim=dim, correction=correction)
    check(device, f, g, numbers(generator(name, shape), shape))


def test_variance_far_from_zero(device: str) -> None:
    array = (generator("far").standard_normal((7, 5000)) + 1e4).astype(np.float32)
    got = dl.var(dl.tensor(array, device=device), dim=1).numpy()
    close(got.astype(np.float64), array.astype(np.float64).var(1, ddof=1), 1e-5)


@pytest.mark.parametrize("length", [3, 64, 67, 4096, 100_003])
def test_deviations_of_the_whole_range(length: int, device: str) -> None:
    """Squares of small and large numbers are no float32, but the root of their mean is."""
    rng = generator("range", length)
    for size in (1e-35, 1e-30, 1e-25, 1e-18, 1e-10, 1.0, 1e10, 1e18, 1e25, 1e30, 1e37):
        array = (rng.uniform(-1, 1, (2, length)) * size).astype(np.float32)
        tensor = dl.tensor(array, device=device)
        for got, wanted in ((dl.std(tensor, 1), array), (dl.std(tensor.T.clone(), 0), array)):
            exact = wanted.astype(np.float64).std(1, ddof=1)
            np.testing.assert_allclose(got.numpy(), exact, rtol=1e-5)
    apart = dl.tensor([[3.4e38, 3.4e38, -3.4e38], [1.0, 1.0, 1.0]], device=device)
    assert dl.var(apart, 1).tolist() == [math.inf, 0.0]


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_gradients_of_deviations_of_the_whole_range(size: float, device: str) -> None:
    array = numbers(generator("range"), (3, 7)) * np.float32(size)
    check(device, lambda x: dl.std(x, 1), lambda x: torch.std(x, 1), array)


@pytest.mark.parametrize("p", [0, 0.5, -1])
def test_gradients_of_norms_of_rows_with_zeros(p: float, device: str) -> None:
    x = dl.tensor([[1.0, 0.0, -4.0], [0.0, 0.0, 0.0]], device=device).requires_grad_()
    dl.norm(x, p, 1).sum().backward()
    if p == 0.5:
        np.testing.assert_allclose(x.grad.numpy(), [[3.0, 0.0, -1.5], [0.0, 0.0, 0.0]], rtol=1e-5)
    else:
        assert x.grad.tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, -1, -2.5, math.inf, -math.inf])
@pytest.mark.parametrize("dim", [None, 0, (0, 2)], ids=str)
def test_norms(p: float, dim: Any, device: str) -> None:
    array = numbers(generator("norm", p), (5, 7, 11))
    if p == 0:  # PyTorch has no gradient for it
        got = dl.norm(dl.tensor(array, device=device), p, dim)
        np.testing.assert_array_equal(got.numpy(), torch.linalg.vector_norm(torch.from_numpy(array), p, dim))
        return
    # PyTorch computes powers in float32, too.
    check(device, lambda x: dl.norm(x, p, dim), lambda x: torch.linalg.vector_norm(x, p, dim), array, 2e-5)


@pytest.mark.parametrize("p", [1, 2, 3, math.inf])
def test_norms_of_zeros_have_no_gradient(p: float, device: str) -> None:
    check(
        device,
        lambda x: dl.norm(x, p, 1),
        lambda x: torch.linalg.vector_norm(x, p, 1),
        np.zeros((2, 3), np.float32),
    )


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin", "max", "min", "var", "std"])
def test_all_elements(name: str, device: str) -> None:
    array = numbers(generator(name), (3, 5, 7))
    check(device, getattr(dl, name), getattr(torch, name), array)
    check(device, lambda x: getattr(x, name)(), lambda x: getattr(x, name)(), array)


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_products_with_zeros(zeros: int, device: str) -> None:
    array = numbers(generator("prod"), (5, 7))
    array[1, :zeros] = 0
    for dim in (0, 1, -1):
        check(device, *along("prod", dim=dim), array)
    check(device, dl.prod, torch.prod, array)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [(s, d) for s, d in DIMS if isinstance(d, int)], ids=str)
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_and_their_indices(
    name: str, shape: tuple[int, ...], dim: int, keepdim: bool, device: str
) -> None:
    array = np.asarray(generator(name, shape).integers(0, 9, shape), np.float32)  # many ties
    got = getattr(dl, name)(dl.tensor(array, device=device), dim, keepdim)
    expected = getattr(torch, name)(torch.from_numpy(array), dim, keepdim)
    np.testing.assert_array_equal(got.values.numpy(), expected.values.numpy())
    assert got.indices.dtype == np.int64
    assert got.indices.shape == tuple(expected.indices.shape)
    first = np.asarray(getattr(np, f"arg{name}")(array, axis=dim if shape else None, keepdims=keepdim))
    np.testing.assert_array_equal(got.indices.numpy(), first)
    distinct = generator(name, shape).permutation(math.prod(shape)).reshape(shape).astype(np.float32)
    check(
        device,
        lambda x: getattr(x, name)(dim, keepdim)[0],
        lambda x: getattr(x, name)(dim, keepdim)[0],
        distinct,
    )
    check(device, *along(f"arg{name}", dim=dim, keepdim=keepdim), distinct)
    check(device, *along(f"arg{name}"), distinct)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_two_tensors(name: str, device: str) -> None:
    a, b = (numbers(generator(name, i), (5, 7)) for i in range(2))
    got = getattr(dl, name)(dl.tensor(a, device=device), dl.tensor(b, device=device))
    np.testing.assert_array_equal(got.numpy(), getattr(torch, name)(torch.from_numpy(a), torch.from_numpy(b)))


def test_the_first_of_equal_elements_gets_the_gradient(device: str) -> None:
    x = dl.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], device=device).requires_grad_()
    x.max(1).values.backward(dl.tensor([1.0, 10.0], device=device))
    assert x.grad.tolist() == [[0, 1, 0], [10, 0, 0]]
    x.grad = None
    x.min().backward()
    assert x.grad.tolist() == [[1, 0, 0], [0, 0, 0]]
    x.grad = None
    x.amax(1).backward(dl.tensor([1.0, 3.0], device=device))
    assert x.grad.tolist() == [[0, 0.5, 0.5], [1, 1, 1]]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "logsumexp", "var", "std", "norm",
             "any", "all", "count_nonzero"],
)  # fmt: skip
def test_special_values(name: str, dim: int, device: str) -> None:
    f, g = along(name, dim=dim)
    x, t = dl.tensor(SPECIAL, device=device), torch.from_numpy(SPECIAL)
    got, expected = f(x).numpy(), g(t).numpy()
    if name.startswith("arg"):  # PyTorch promises no order among equals
        expected = getattr(np, name)(SPECIAL, axis=dim)
    close(got.astype(np.float64), expected.astype(np.float64), TOLERANCE)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize(("shape", "dim"), [(s, d) for s, d in DIMS if isinstance(d, int)], ids=str)
def test_softmax(name: str, shape: tuple[int, ...], dim: int, device: str) -> None:
    f, g = (getattr(home.nn.functional, name) for home in (dl, torch))
    array = np.asarray(numbers(generator(name, shape), shape) * 4, np.float32)
    check(device, lambda x: f(x, dim=dim), lambda x: g(x, dim=dim), array)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_special_values(name: str, device: str) -> None:
    f, g = (getattr(home.nn.functional, name) for home in (dl, torch))
    rows = np.concatenate(
        (SPECIAL, np.array([[1000, -1000, 1e30, 0], [-1e4, -1e4, -1e4 - 5, -2e4]], np.float32))
    )
    for dim in (0, 1):
        got, expected = f(dl.tensor(rows, device=device), dim=dim), g(torch.from_numpy(rows), dim=dim)
        close(got.numpy().astype(np.float64), expected.numpy().astype(np.float64), TOLERANCE)


DTYPES = ("float64", "float16", "int64", "int32", "int8", "uint8", "bool")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["sum", "prod", "amax", "amin", "argmax", "argmin", "any", "all", "count_nonzero", "max", "min"]
)
def test_dtypes(name: str, dtype: str, device: str) -> None:
    array = numbers(generator(name, dtype), (3, 5), dtype)
    if name.startswith("arg"):
        array = np.arange(15).reshape(5, 3).T.astype(dtype) if dtype != "bool" else np.eye(3, 5, dtype=bool)
        if dtype == "bool":
            got = getattr(dl, name)(dl.tensor(array, device=device), dim=1)
            np.testing.assert_array_equal(got.numpy(), getattr(np, name)(array, axis=1))
            return
    check(device, *along(name), array, 2e-3)
    if name not in ("max", "min"):
        check(device, *along(name, dim=1), array, 2e-3)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_long_axes_of_float16(name: str, device: str) -> None:
    """Along an axis whose elements are not adjacent, where NumPy adds them up one by one."""
    array, grad = (generator(name, part).standard_normal((2003, 3)).astype(np.float16) for part in "xg")
    x = dl.tensor(array, device=device).requires_grad_()
    exact = torch.from_numpy(array.astype(np.float64)).requires_grad_()
    got, expected = getattr(dl.nn.functional, name)(x, 0), getattr(torch, name)(exact, 0)
    got.backward(dl.tensor(grad, device=device))
    expected.backward(torch.from_numpy(grad.astype(np.float64)))
    close(got.numpy().astype(np.float64), expected.detach().numpy(), 2e-3)
    close(x.grad.numpy().astype(np.float64), exact.grad.numpy(), 2e-3)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "norm"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
@pytest.mark.parametrize("result_dtype", ["float32", "float64", "int64"])
def test_the_dtype_of_the_result(name: str, dtype: str, result_dtype: str, device: str) -> None:
    if (result_dtype == "int64" and name in ("mean", "norm")) or (dtype != "float32" and name == "norm"):
        pytest.skip("refused")
    array = numbers(generator(name), (5, 7), dtype)
    if dtype == "float32" and result_dtype == "int64":
        array = np.trunc(array * 2)
    f = getattr(dl, name)
    got = f(dl.tensor(array, device=device), dim=1, dtype=result_dtype)
    expected = getattr(torch, name)(torch.from_numpy(array), dim=1, dtype=getattr(torch, result_dtype))
    assert got.dtype == np.dtype(result_dtype)
    close(got.numpy().astype(np.float64), expected.numpy().astype(np.float64), TOLERANCE)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
@pytest.mark.parametrize(
    "name", ["sum", "prod", "mean", "var", "std", "any", "all", "logsumexp", "norm", "count_nonzero"]
)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_reductions_of_no_elements(name: str, shape: tuple[int, ...], device: str) -> None:
    array = np.empty(shape, np.float32)
    for dim in range(len(shape)):
        f, g = along(name, dim=dim)
        np.testing.assert_array_equal(
            f(dl.tensor(array, device=device)).numpy(), g(torch.from_numpy(array)).numpy()
        )


@pytest.mark.parametrize("name", ["amax", "amin", "max", "min", "argmax", "argmin"])
def test_extremes_of_no_elements_are_refused(name: str, device: str) -> None:
    x = dl.zeros(3, 0, device=device)
    f = getattr(dl, name)
    op = name if name.startswith(("am", "arg")) else f"a{name}"
    for arguments in ({}, {"dim": 1}):
        with pytest.raises(ShapeError, match=rf"\[{op}\] expected elements along axis 1"):
            f(x, **arguments)
    assert (f(x, dim=0)[0] if op != name else f(x, dim=0)).shape == (0,)


def test_wrong_arguments_are_refused(device: str) -> None:
    x = dl.zeros(3, 5, device=device)
    two_axes: Any = (0, 1)
    wrong_dim: Any = "x"
    wrong_order: Any = "max"
    with pytest.raises(ArgumentError, match=r"\[sum\] axis 2 is out of range for 2 axes"):
        dl.sum(x, 2)
    with pytest.raises(ArgumentError, match=r"\[amax\] dim \(0, -2\) names an axis twice"):
        dl.amax(x, (0, -2))
    with pytest.raises(ArgumentError, match=r"\[mean\] dim must be an int, a tuple of ints or None, got 'x'"):
        dl.mean(x, wrong_dim)
    with pytest.raises(ArgumentError, match=r"\[argmax\] dim must be an int, got \(0, 1\)"):
        dl.argmax(x, two_axes)
    with pytest.raises(ArgumentError, match=r"\[max\] expected one axis, got dim=\(0, 1\)"):
        dl.max(x, two_axes)
    with pytest.raises(ArgumentError, match=r"\[norm\] p must be a number, inf, -inf or 'fro', got 'max'"):
        dl.norm(x, wrong_order)
    wrong_order = "nuc"
    with pytest.raises(ArgumentError, match=r"\[norm\] the nuclear norm is one of matrices: use dl4all"):
        dl.norm(x, wrong_order)
    with pytest.raises(DTypeError, match=r"\[mean\] expected floats of one dtype, got int64"):
        dl.mean(dl.tensor([1, 2], device=device))
    with pytest.raises(DTypeError, match=r"\[sum\] data type 'colour' not understood"):
        dl.sum(x, dtype="colour")
    with pytest.raises(ShapeError, match=r"\[sum_to\] shape \(2,\) does not broadcast to the input"):
        dl.ops.sum_to(x, (2,))
    with pytest.raises(ShapeError, match=r"\[norm\] expected elements, .* no norm of order inf"):
        dl.norm(dl.zeros(0, device=device), math.inf)


@pytest.mark.parametrize("shape", [(10_000_000,), (2_500_000, 4), (4, 2_500_000), (20_000, 500)], ids=str)
@pytest.mark.sampled(2)
def test_long_sums_lose_no_more_than_pytorchs(shape: tuple[int, ...], device: str) -> None:
    """Positive numbers, whose rounding errors do not cancel; 2e-7 is two roundings."""
    array = generator("long", shape).random(shape, np.float32)
    dims: tuple[Any, ...] = (0,) if len(shape) == 1 else (0, 1, None)
    x = dl.tensor(array, device=device)
    for dim in dims:
        exact = array.sum(dim, dtype=np.float64)
        for got in (x.sum(dim).numpy(), x.mean(dim).numpy() * (array.size / exact.size)):
            error = np.abs(got / exact - 1).max()
            torch_error = np.abs(torch.from_numpy(array).sum(dim).numpy() / exact - 1).max()
            assert error <= max(torch_error, 4e-7), f"{dim}: {error:.1e}, PyTorch {torch_error:.1e}"


def test_sums_are_the_same_each_time(device: str) -> None:
    x = dl.tensor(numbers(generator("same"), (1000, 1000)), device=device)
    for dim in (None, 0, 1):
        first = x.sum(dim).numpy()
        for _ in range(3):
            np.testing.assert_array_equal(x.sum(dim).numpy(), first)


@pytest.mark.parametrize(("shape", "dim"), [(s, d) for s, d in DIMS if isinstance(d, int)], ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_cumulative_sums_and_products(name: str, shape: tuple[int, ...], dim: int, device: str) -> None:
    array = numbers(generator(name, shape), shape)
    if name == "cumprod":
        array = np.asarray(1 + array / 1000, np.float32)  # a product of thousands stays in range
    check(device, *along(name, dim=dim), array)


@pytest.mark.parametrize("zeros", [(), (3,), (0, 5), (6,)], ids=str)
def test_cumulative_products_with_zeros(zeros: tuple[int, ...], device: str) -> None:
    array = numbers(generator("cumprod"), (5, 7))
    array[1, list(zeros)] = 0
    for dim in (0, 1):
        check(device, *along("cumprod", dim=dim), array)


def test_cumulative_sums_of_other_dtypes(device: str) -> None:
    for name in ("cumsum", "cumprod"):
        for dtype in DTYPES:
            check(device, *along(name, dim=1), numbers(generator(name), (3, 5), dtype), 2e-3)
        f, g = along(name, dim=0, dtype="float64")[0], along(name, dim=0, dtype=torch.float64)[1]
        check(device, f, g, numbers(generator(name), (3, 5)))


@pytest.mark.parametrize("size", [1, 13, 1_000_003])
def test_dot(size: int, device: str) -> None:
    a, b = (generator("dot", i).random(2 * size, np.float32) for i in range(2))
    x, y = (dl.tensor(v, device=device) for v in (a, b))
    exact = np.dot(a[::2].astype(np.float64), b[1::2].astype(np.float64))
    assert abs(dl.dot(x[::2], y[1::2]).item() / exact - 1) < 3e-7
    check(device, lambda v: v.dot(v * 2), lambda v: v.dot(v * 2), a[:size])


def test_dot_of_vectors_of_other_lengths_is_refused(device: str) -> None:
    with pytest.raises(
        ShapeError, match=r"\[dot\] expected two vectors of one length, got shapes \(3,\) and \(5,\)"
    ):
        dl.dot(dl.zeros(3, device=device), dl.zeros(5, device=device))
    assert dl.dot(dl.tensor([1, 2], device=device), dl.tensor([3, 4], device=device)).item() == 11


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_by_numpy_of_odd_numbers_of_rows(axis: int) -> None:
    """The bodies that run where there are no kernels fold long axes in halves."""
    x = np.random.default_rng(axis).standard_normal((70_001, 3) if axis == 0 else (3, 70_001))
    expected = [math.fsum(row) for row in (x.T if axis == 0 else x)]
    got = accurate_sum(x, (axis,), False, x.dtype)
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-11)
