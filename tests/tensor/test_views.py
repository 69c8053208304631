"""Indexing and changes of shape beside NumPy's, and the values that ops read through such views."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, Dl4allError, ShapeError

NDArray = npt.NDArray[Any]


def check(view: dl.Tensor, expected: NDArray) -> None:
    """Raise unless the view reads like the array, directly, copied by a kernel and through an op."""
    assert view.shape == expected.shape
    np.testing.assert_array_equal(view.numpy(), expected)
    packed = view.contiguous()
    assert packed.is_contiguous()
    np.testing.assert_array_equal(packed.numpy(), expected)
    np.testing.assert_array_equal((view + 1).numpy(), expected + 1)


def counted(rng: random.Random, axes: int, most: int = 5) -> NDArray:
    shape = tuple(rng.randint(1, most) for _ in range(axes))
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def random_entry(rng: random.Random, size: int) -> Any:
    """An int or a slice for an axis."""
    if size and rng.random() < 0.3:
        return rng.randint(-size, size - 1)
    ends: list[int | None] = [rng.choice((None, rng.randint(-size - 2, size + 2))) for _ in range(2)]
    return slice(ends[0], ends[1], rng.choice((None, 1, 2, 3)))


def random_key(rng: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index that NumPy takes as well: entries for the first axes, and sometimes ... and the last ones."""
    front = rng.randint(0, len(shape))
    key = [random_entry(rng, size) for size in shape[:front]]
    if rng.random() < 0.4:
        back = rng.randint(front, len(shape))
        key += [..., *(random_entry(rng, size) for size in shape[back:])]
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        key.insert(rng.randint(0, len(key)), None)
    return tuple(key)


def test_random_indices(device: str) -> None:
    rng = random.Random(3)
    for _ in range(60):
        array = counted(rng, rng.randint(1, 5))
        key = random_key(rng, array.shape)
        view = dl.tensor(array, device=device)[key]
        check(view, array[key])
        further = random_key(rng, view.shape)  # an index into a view
        check(view[further], array[key][further])


@pytest.mark.parametrize(
    "key",
    [
        0, -1, (1, 2), (..., 1), (0, ..., 2), (None, 0), (slice(None), None, 1), slice(1, 3), slice(3, 1),
        slice(None, None, 2), (slice(2, None), slice(4, None), 0), (slice(5, None), 1), (..., slice(0, 0), 2),
        np.int64(2), (), ..., (1, 2, 3),
    ],
    ids=repr,
)  # fmt: skip
def test_indices(key: Any, device: str) -> None:
    array = np.arange(60, dtype=np.float32).reshape(3, 5, 4)
    check(dl.tensor(array, device=device)[key], array[key])


def test_a_view_shares_memory() -> None:
    x = dl.tensor(np.zeros((3, 4), np.float32), device="cpu")
    x[1, 1:3].numpy()[:] = 5
    x.T[0].numpy()[2] = 7
    assert x.tolist() == [[0, 0, 0, 0], [0, 5, 5, 0], [7, 0, 0, 0]]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (3, r"3 is out of range for axis 0 of shape \(3, 5\)"),
        ((0, -6), r"-6 is out of range for axis 1"),
        ((0, 0, 0), r"selects more axes than shape \(3, 5\) has"),
        ((..., ...), "selects more axes"),
        (slice(None, None, -1), "a slice's step must be positive, got -1"),
        (slice(None, None, 0), "slice step cannot be zero"),
        (slice(1.0, None), "slice indices must be integers"),
        ("a", "'a' is not an int"),
        (1.0, r"1\.0 is not an int"),
    ],
)
def test_indices_that_are_refused(key: Any, message: str, device: str) -> None:
    with pytest.raises(ArgumentError, match=rf"\[index\].*{message}"):
        dl.zeros(3, 5, device=device)[key]


def test_iteration(device: str) -> None:
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    rows = list(dl.tensor(array, device=device))
    assert [row.tolist() for row in rows] == array.tolist()
    (a, b), *_ = dl.tensor(array, device=device)
    assert (a.item(), b.item()) == (0, 1)
    with pytest.raises(TypeError, match="a 0-d tensor has no length"):
        list(dl.tensor(1.0, device=device))


# Shapes


def test_random_shapes(device: str) -> None:
    rng = random.Random(5)
    for _ in range(60):
        array = counted(rng, rng.randint(0, 5))
        x = dl.tensor(array, device=device)
        order = rng.sample(range(array.ndim), array.ndim)
        turned, expected = x.permute(*order), array.transpose(order)
        check(turned, expected)
        check(turned.T, expected.T)
        check(turned.reshape(-1), expected.reshape(-1))
        check(turned.reshape(*reversed(expected.shape)), expected.reshape(expected.shape[::-1]))
        if array.ndim:
            first, second = rng.randrange(array.ndim), rng.randrange(-array.ndim, 0)
            check(turned.transpose(first, second), np.swapaxes(expected, first, second))
            low, high = sorted((first, second % array.ndim))
            merged = (*expected.shape[:low], -1, *expected.shape[high + 1 :])
            check(turned.flatten(low, high), expected.reshape(merged))
            check(turned.flatten(low - array.ndim, high), expected.reshape(merged))


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((1, 3), (4, 3)), ((3,), (2, 4, 3)), ((2, 1, 5), (2, 7, 5)), ((), (2, 3)), ((2, 1), (-1, 3)),
        ((1, 2), (5, -1)), ((1,), (0,)), ((3, 1), (3, 0)), ((2, 3), (2, 3)), ((1, 2), (3, 5, -1)),
    ],
)  # fmt: skip
def test_expand(shape: tuple[int, ...], wanted: tuple[int, ...], device: str) -> None:
    array = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    padded = (1,) * (len(wanted) - len(shape)) + shape
    full = tuple(old if new == -1 else new for new, old in zip(wanted, padded, strict=True))
    view = dl.tensor(array, device=device).expand(*wanted)
    check(view, np.broadcast_to(array, full))
    assert view.storage.nbytes == array.nbytes


@pytest.mark.parametrize("axes", [6, 8, 9, 11])
def test_more_axes_than_kernels_have(axes: int, device: str) -> None:
    array = np.arange(2**axes, dtype=np.float32).reshape((2,) * axes)
    x = dl.tensor(array, device=device).T
    check(x, array.T)
    np.testing.assert_array_equal((x * x.contiguous()).numpy(), array.T**2)
    np.testing.assert_array_equal((-x).numpy(), -array.T)


def test_reshape_is_a_view_wherever_strides_allow_it(device: str) -> None:
    x = dl.zeros(4, 6, device=device)
    assert x.reshape(3, 8).storage is x.storage
    assert x[2:].reshape(-1).storage is x.storage
    assert x.contiguous() is x
    x[:, 1].flatten().fill_(5.0)
    x.t().reshape(3, 2, 4)[0, 0].add_(2.0)
    x.T.reshape(-1).fill_(9.0)  # a copy
    assert x.tolist() == [[2.0, 5.0, 0.0, 0.0, 0.0, 0.0]] * 4
    assert x[:, :2].reshape(8).storage is not x.storage
    assert x.reshape((2, -1)).shape == x.reshape(2, -1).shape == (2, 12)


def test_reshape_of_nothing(device: str) -> None:
    assert dl.zeros(0, 3, device=device).reshape(3, 0).shape == (3, 0)
    assert dl.zeros(2, 0, device=device).reshape(5, -1).shape == (5, 0)
    assert dl.tensor(3.0, device=device).reshape(1, 1).tolist() == [[3]]
    assert dl.tensor([3.0], device=device).reshape(()).tolist() == 3
    assert dl.tensor(3.0, device=device).flatten().tolist() == [3]
    assert dl.zeros(2, 0, 3, device=device).flatten(1).shape == (2, 0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x: x.reshape(4, 2), ShapeError, r"\[reshape\] 6 elements of shape \(2, 3\) do not"),
        (lambda x: x.reshape(4, -1), ShapeError, r"\[reshape\] 6 elements .* \(4, -1\)"),
        (lambda x: x.reshape(-1, -1), ShapeError, r"\[reshape\]"),
        (lambda x: x.reshape(-2, -3), ShapeError, r"\[reshape\]"),
        (lambda x: x[:0].reshape(0, -1), ShapeError, r"\[reshape\]"),
        (lambda x: x.reshape(2.0, 3), ArgumentError, r"\[reshape\] expected ints"),
        (lambda x: x.permute(0), ArgumentError, r"\[permute\] \(0,\) does not name each axis of \(2, 3\)"),
        (lambda x: x.permute(0, 0), ArgumentError, r"\[permute\]"),
        (lambda x: x.permute(0, 2), ArgumentError, r"\[permute\] axis 2 is out of range for 2 axes"),
        (lambda x: x.transpose(0, 2), ArgumentError, r"\[transpose\] axis 2 is out of range"),
        (lambda x: x.flatten(1, 0), ArgumentError, r"\[flatten\] start_dim 1 comes after end_dim 0"),
        (lambda x: x.flatten(0, 2), ArgumentError, r"\[flatten\] axis 2 is out of range"),
        (lambda x: x.expand(4, 3), ShapeError, r"\[expand\] shape \(2, 3\) does not expand to \(4, 3\)"),
        (lambda x: x.expand(3), ShapeError, r"\[expand\]"),
        (lambda x: x.expand(-1, 2, 3), ShapeError, r"\[expand\]"),
        (lambda x: x[:1].expand(-2, 3), ShapeError, r"\[expand\]"),
        (lambda x: x.size(2), ArgumentError, r"\[size\] axis 2 is out of range for 2 axes"),
    ],
)  # fmt: skip
def test_shapes_that_are_refused(change: Any, error: type[Dl4allError], message: str, device: str) -> None:
    with pytest.raises(error, match=message):
        change(dl.ones(2, 3, device=device))
