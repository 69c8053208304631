"""What a tensor says of itself, its operators, and its ways to the host and to other devices."""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, UnknownDeviceError
from dl4all.runtime.cpu.backend import CpuBackend


def test_facts(device: str) -> None:
    x = dl.zeros(2, 3, 5, device=device)
    assert (x.ndim, x.numel(), len(x), x.size(), x.size(1), x.size(-1)) == (3, 30, 2, (2, 3, 5), 3, 5)
    assert x.is_contiguous()
    assert not x.T.is_contiguous()
    assert x[:, :1].permute(1, 0, 2).is_contiguous() is False
    assert x[:1].permute(1, 0, 2).is_contiguous()  # the stride of an axis of size 1 does not matter
    assert dl.zeros(0, 3, device=device).T.is_contiguous()


OPERATORS = (operator.add, operator.sub, operator.mul, operator.truediv)


@pytest.mark.parametrize("apply", OPERATORS, ids=lambda f: f.__name__)
def test_operators(apply: Any, device: str) -> None:
    a, b = np.array([[1.5, -2], [3, 4]], np.float32), np.array([0.5, 8], np.float32)
    x, y = dl.tensor(a, device=device), dl.tensor(b, device=device)
    for got, expected in (
        (apply(x, y), apply(a, b)),
        (apply(y, x), apply(b, a)),
        (apply(x, 2), apply(a, 2)),
        (apply(2, x), apply(2, a)),
        (apply(0.25, y), apply(0.25, b)),
        (apply(np.float64(0.25), y), apply(0.25, b)),
        (apply(y, np.float32(3)), apply(b, 3)),
    ):
        assert isinstance(got, dl.Tensor)
        assert got.dtype == np.float32
        # Each of these is exact or rounded once, and a GPU's division is good to 2.5 units in the last place.
        np.testing.assert_allclose(got.numpy(), expected, rtol=3e-7)


def test_other_operators(device: str) -> None:
    a = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)
    x = dl.tensor(a, device=device)
    np.testing.assert_array_equal((-x).numpy(), -a)
    np.testing.assert_array_equal((x @ x.T).numpy(), a @ a.T)
    kept = x
    x += 1
    assert x is kept
    assert x.tolist() == [[2, -1], [4, 5]]


def test_methods_are_the_functions(device: str) -> None:
    x = dl.tensor([[1.0, -2.0], [3.0, 0.5]], device=device)
    for method, function in (
        (x.add(x), dl.add(x, x)),
        (x.sub(2), dl.sub(x, 2)),
        (x.mul(x), dl.mul(x, x)),
        (x.div(3.0), dl.div(x, 3.0)),
        (x.neg(), dl.neg(x)),
        (x.relu(), dl.relu(x)),
        (x.clone(), dl.clone(x)),
        (x.matmul(x), dl.matmul(x, x)),
        (x.softmax(0), dl.softmax(x, 0)),
        (x.softmax(dim=-1), dl.softmax(x, -1)),
    ):
        np.testing.assert_array_equal(method.numpy(), function.numpy())
    assert x.clone().storage is not x.storage


@pytest.mark.parametrize("apply", [*OPERATORS, operator.matmul], ids=lambda f: f.__name__)
def test_arrays_and_lists_are_refused(apply: Any, device: str) -> None:
    x = dl.ones(2, 2, device=device)
    for other in (np.ones((2, 2), np.float32), [[1.0, 2.0], [3.0, 4.0]], "x", None):
        kind = type(other).__name__
        with pytest.raises(
            DTypeError, match=rf"expected a tensor for '\w+', got {kind}; make one with dl\.tensor"
        ):
            apply(x, other)
        with pytest.raises(
            DTypeError, match=rf"expected a tensor for '\w+', got {kind}; make one with dl\.tensor"
        ):
            apply(other, x)


# To the host


def test_numpy_on_the_cpu_is_the_memory() -> None:
    x = dl.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
    x.numpy()[0, 1] = 9
    x.T.numpy()[1, 1] = 8
    assert x.tolist() == [[1, 9], [3, 8]]
    assert np.shares_memory(np.asarray(x), x.numpy())
    assert not np.shares_memory(np.array(x), x.numpy())


def test_the_buffer_is_what_numpy_is() -> None:
    x = dl.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
    view = x.T.__buffer__(0)
    assert (view.shape, view.strides, view.format) == ((2, 2), (4, 8), "f")
    np.asarray(view)[1, 0] = 9
    assert x.tolist() == [[1, 9], [3, 4]]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes have buffers from Python 3.12 on")
def test_memoryview(device: str) -> None:
    assert memoryview(dl.tensor([1, 2, 3], device=device)).tolist() == [1, 2, 3]


def test_numpy_elsewhere_is_a_copy(device: str) -> None:
    x = dl.tensor([1.0, 2.0], device=device)
    if device != "cpu":
        x.numpy()[0] = 9
    assert x.tolist() == [1, 2]
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.stack([x, x]).tolist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize(("value", "kind"), [(2.5, float), (3, int), (True, bool)])
def test_item(value: Any, kind: type, device: str) -> None:
    for data in (value, [[value]]):
        x = dl.tensor(data, device=device)
        assert type(x.item()) is kind
        assert x.item() == value
        assert (float(x), int(x), bool(x)) == (float(value), int(value), True)
    assert not dl.tensor(0.0, device=device)


@pytest.mark.parametrize("shape", [(2,), (0,), (1, 2)])
def test_item_of_more_or_less_than_one(shape: tuple[int, ...], device: str) -> None:
    x = dl.zeros(*shape, device=device)
    for convert in (dl.Tensor.item, float, int, bool):
        with pytest.raises(ArgumentError, match=r"\[item\] expected one element, the shape is "):
            convert(x)


def test_length_of_a_number() -> None:
    with pytest.raises(TypeError, match="a 0-d tensor has no length"):
        len(dl.tensor(1.0, device="cpu"))


def test_repr(device: str) -> None:
    place = "" if device == "cpu" else f", device='{device}'"
    assert repr(dl.tensor([[1.0, -2.5], [3.0, 4.0]], device=device)) == (
        f"tensor([[ 1. , -2.5],\n        [ 3. ,  4. ]]{place})"
    )
    assert repr(dl.tensor([1, 2], device=device)) == f"tensor([1, 2], dtype=int64{place})"
    assert repr(dl.tensor(1.5, device=device)) == f"tensor(1.5{place})"
    assert "..." in repr(dl.zeros(100, 100, device=device))
    assert len(repr(dl.zeros(100, 100, device=device))) < 1000
    assert repr(dl.zeros(0, 5, device=device)) == f"tensor([], shape=(0, 5){place})"


# Elsewhere


def test_to_another_device(device: str) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = dl.tensor(array, device="cpu")
    there = x.to(device)
    assert there.device is dl.device(device)
    assert there.to(device) is there
    assert there.to(there.device) is there
    assert (x.cpu() is x) == (x.to(device) is x) or device != "cpu"
    for view, expected in ((there.T, array.T), (there[1:, ::2], array[1:, ::2]), (there[:0], array[:0])):
        back = view.cpu()
        assert str(back.device) == "cpu"
        np.testing.assert_array_equal(back.numpy(), expected)
    elsewhere = there.to(dl.Device.of_backend("elsewhere", CpuBackend()))
    assert str(elsewhere.device) == "elsewhere"
    np.testing.assert_array_equal(elsewhere.T.numpy(), array.T)


def test_to_another_dtype(device: str) -> None:
    x = dl.tensor([1.7, -2.2, 0.0], device=device)
    for target, expected in (
        ("int32", np.array([1, -2, 0])),
        (dl.bool_, np.array([True, True, False])),
        (float, np.array([1.7, -2.2, 0], np.float32)),
    ):
        made = x.to(target)
        assert made.dtype == np.dtype(target)
        assert made.device is x.device
        np.testing.assert_array_equal(made.numpy(), expected)
    assert x.to("float32") is x
    assert x.float() is x
    assert x.double().dtype == np.float64
    assert dl.tensor([1e300], dtype="float64", device=device).float().tolist() == [np.inf]
    turned = dl.tensor([[1.0, 2.0], [3.0, 4.0]], device=device).T.double()
    assert turned.tolist() == [[1, 3], [2, 4]]


def test_to_something_else(device: str) -> None:
    x = dl.ones(2, device=device)
    with pytest.raises(UnknownDeviceError, match="'tpu:0'"):
        x.to("tpu:0")
    with pytest.raises(DTypeError, match=r"\[to\] dtype complex64 is not supported"):
        x.to("complex64")
    with pytest.raises(DTypeError, match=r"\[to\] expected a device or a dtype, got None"):
        x.to(None)


# Empty tensors


def test_empty_tensors(device: str) -> None:
    x = dl.zeros(0, 5, device=device)
    for made, shape in (
        (x + 1, (0, 5)),
        (x + dl.ones(1, 5, device=device), (0, 5)),
        (x.T @ x, (5, 5)),
        (x @ dl.ones(5, 3, device=device), (0, 3)),
        (x.softmax(1), (0, 5)),
        (x[:, 3], (0,)),
        (x[:, 1:3].contiguous(), (0, 2)),
        (x.to("int64"), (0, 5)),
        (x.cpu(), (0, 5)),
    ):
        assert made.shape == shape
        assert made.numpy().shape == shape
    assert x.tolist() == []
    np.testing.assert_array_equal((x.T @ x).numpy(), np.zeros((5, 5)))  # a sum of nothing
