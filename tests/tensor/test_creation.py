"""Making tensors: what they hold, of which element type, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, UnknownDeviceError
from dl4all.ops.core.dtypes import DTYPES
from tests.support.subcases import each

torch = pytest.importorskip("torch", reason="defaults are compared with PyTorch's")


@pytest.mark.parametrize(
    "data",
    [
        1,
        -2.5,
        True,
        [1, 2],
        [1.0, 2],
        [True, False],
        [True, 2],
        [[1, 2], [3, 4]],
        [],
        [[]],
        ((1.5,), (2,)),
        2**40,
    ],
    ids=repr,
)
def test_python_numbers_have_pytorch_s_dtypes(data: Any, device: str) -> None:
    made, expected = dl.tensor(data, device=device), torch.tensor(data)
    assert f"torch.{made.dtype}" == str(expected.dtype)
    assert made.shape == tuple(expected.shape)
    assert made.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_keep_their_dtype(dtype: np.dtype[Any], device: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    for data in (array, array[1, 2], dl.tensor(array, device=device)):
        made = dl.tensor(data, device=device)
        assert made.dtype == dtype
        np.testing.assert_array_equal(made.numpy(), np.asarray(data))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_given_dtype_converts(dtype: np.dtype[Any], device: str) -> None:
    made = dl.tensor([0, 1, 3.7], dtype=dtype, device=device)
    assert made.dtype == dtype
    np.testing.assert_array_equal(made.numpy(), np.array([0, 1, 3.7]).astype(dtype))


def test_tensor_copies(device: str) -> None:
    array = np.array([1.0, 2.0], np.float32)
    made = dl.tensor(array, device=device)
    again = dl.tensor(made, device=device)
    array[0] = 9
    assert made.tolist() == [1, 2]
    if device == "cpu":
        made.numpy()[0] = 7
    assert again.tolist() == [1, 2]


def test_a_tensor_of_tensors(device: str) -> None:
    rows = [dl.tensor([1.0, 2.0], device=device), dl.tensor([3.0, 4.0], device=device)]
    assert dl.tensor(rows, device=device).tolist() == [[1, 2], [3, 4]]


def test_what_is_too_large_becomes_infinite(device: str) -> None:
    assert dl.tensor([1e300, -1e300], device=device).tolist() == [np.inf, -np.inf]
    assert dl.tensor([7e4], dtype="float16", device=device).tolist() == [np.inf]


@pytest.mark.parametrize(
    ("data", "dtype", "message"),
    [
        ([[1, 2], [3]], None, r"\[tensor\] the data is not rectangular"),
        ("abc", None, r"\[tensor\] expected numbers, got elements of dtype <U3"),
        (["1"], "float32", r"\[tensor\] expected numbers, got elements of dtype <U1"),
        ([None], "float32", r"\[tensor\] expected numbers, got elements of dtype object"),
        ([1 + 2j], None, r"\[tensor\] expected numbers, got elements of dtype complex128"),
        (2**63, None, r"\[tensor\] dtype uint64 is not supported; use one of float32, "),
        (np.zeros(2, np.uint16), None, r"\[tensor\] dtype uint16 is not supported"),
        (np.zeros(2, ">f4"), None, r"\[tensor\] dtype >f4 is not supported"),
        ([1.0], "complex64", r"\[tensor\] dtype complex64 is not supported"),
        ([1.0], "floaty", r"\[tensor\] data type 'floaty' not understood; use one of float32, "),
    ],
)
def test_tensor_refuses(data: Any, dtype: Any, message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        dl.tensor(data, dtype=dtype, device="cpu")


def test_devices() -> None:
    assert str(dl.tensor([1.0]).device) == str(dl.device("auto"))
    assert dl.tensor([1.0], device=dl.device("cpu")).device is dl.device("cpu")
    with pytest.raises(UnknownDeviceError, match="'tpu'"):
        dl.tensor([1.0], device="tpu")


# Filled tensors


@pytest.mark.parametrize("shape", [(2, 3), (), (0,), (0, 5), (1,), (7, 1, 3)], ids=str)
def test_filled(shape: tuple[int, ...], device: str) -> None:
    for made, value in (
        (dl.zeros(*shape, device=device), 0),
        (dl.ones(*shape, device=device), 1),
        (dl.zeros(shape, device=device), 0),
        (dl.full(shape, -2.5, device=device), -2.5),
    ):
        assert (made.shape, str(made.dtype), str(made.device)) == (shape, "float32", device)
        np.testing.assert_array_equal(made.numpy(), np.full(shape, value))
    uninitialised = dl.empty(*shape, device=device)
    assert (uninitialised.shape, uninitialised.numpy().shape) == (shape, shape)


@pytest.mark.parametrize("value", [7, 2.5, True, np.inf, -3])
def test_full_has_the_value_s_kind(value: Any, device: str) -> None:
    made, expected = dl.full((2,), value, device=device), torch.full((2,), value)
    assert f"torch.{made.dtype}" == str(expected.dtype)
    assert made.tolist() == expected.tolist()
    assert dl.full((2,), 7, "float32", device).dtype == np.float32


@each("value, dtype", [(2.5, None), (True, None), (7, "int64"), (-1.5, "float16")])
def test_full_is_compiled(value: Any, dtype: Any, device: str) -> None:
    def f(x: Any) -> Any:
        return dl.where(x > 1, dl.full((3,), value, dtype, device), dl.full((3,), 0, dtype, device))

    compiled: Any = dl.compile(f)
    x = dl.tensor([0.0, 2.0, 3.0], device=device)
    results = [compiled(x).tolist() for _ in range(5)]
    assert results == [[0, value, value]] * 5
    assert compiled.specializations


def test_dtypes_of_filled(device: str) -> None:
    assert dl.zeros(2, dtype=dl.int64, device=device).dtype == np.int64
    assert dl.ones(2, dtype="bool", device=device).tolist() == [True, True]
    assert dl.empty(2, dtype=np.uint8, device=device).dtype == np.uint8


@pytest.mark.parametrize("make", [dl.zeros, dl.ones, dl.empty, dl.rand, dl.randn], ids=lambda f: f.__name__)
def test_sizes_are_checked(make: Any) -> None:
    name = make.__name__
    with pytest.raises(ArgumentError, match=rf"\[{name}\] sizes must be at least 0, got \(2, -1\)"):
        make(2, -1, device="cpu")
    with pytest.raises(ArgumentError, match=rf"\[{name}\] expected ints, got \(2.5,\)"):
        make(2.5, device="cpu")
    with pytest.raises(ArgumentError, match=rf"\[{name}\] shape .* is larger than any memory"):
        make(2**30, 2**30, device="cpu")
    assert make(np.int64(3), device="cpu").shape == (3,)


# Random numbers


def test_seeds(device: str) -> None:
    dl.manual_seed(5)
    first = dl.rand(3, 4, device=device).numpy(), dl.randn(2, 5, device=device).numpy()
    later = dl.rand(3, 4, device=device).numpy()
    dl.manual_seed(5)
    again = dl.rand(3, 4, device=device).numpy(), dl.randn(2, 5, device="cpu").numpy()
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(first[0], later)
    dl.manual_seed(6)
    assert not np.array_equal(first[0], dl.rand(3, 4, device=device).numpy())


def test_distributions(device: str) -> None:
    dl.manual_seed(1)
    uniform, normal = dl.rand(10_000, device=device), dl.randn(10_000, device=device)
    assert uniform.dtype == normal.dtype == np.float32
    # Five standard errors of a mean of 10 000 numbers: 5 * 0.29 / 100 and 5 / 100.
    assert abs(uniform.numpy().mean() - 0.5) < 0.015
    assert 0 <= uniform.numpy().min() < 0.01
    assert 0.99 < uniform.numpy().max() < 1
    assert abs(normal.numpy().mean()) < 0.05
    assert abs(normal.numpy().std() - 1) < 0.04


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(ArgumentError, match=r"\[manual_seed\] the seed must not be negative, got -1"):
        dl.manual_seed(-1)


# NumPy arrays


def test_from_numpy_shares_memory_on_the_cpu() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = dl.from_numpy(array)
    array[0, 0] = 42
    assert made[0, 0].item() == 42
    made.numpy()[1, 2] = 43
    assert array[1, 2] == 43


def test_from_numpy_of_other_memory(device: str) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    frozen = array.copy()
    frozen.flags.writeable = False
    for given in (
        array.T,
        array[::2, ::-1],
        np.broadcast_to(array[0], (3, 6)),
        frozen,
        array[:0],
        array[1, 1:2],
    ):
        made = dl.from_numpy(given, device)
        assert made.is_contiguous()
        np.testing.assert_array_equal(made.numpy(), given)
        np.testing.assert_array_equal((made + 1).numpy(), given + 1)
    scalar = dl.from_numpy(np.array(3, np.int64), device)
    assert (scalar.shape, scalar.item()) == ((), 3)


@pytest.mark.parametrize("given", [[1.0], 2.0, np.float32(1), None], ids=repr)
def test_from_numpy_refuses(given: Any) -> None:
    with pytest.raises(
        DTypeError, match=rf"\[from_numpy\] expected a NumPy array, got {type(given).__name__}"
    ):
        dl.from_numpy(given)
