"""Functions composed of ops that work along axes, reorder or index elements, against PyTorch's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from tests.support.compare_torch import LibraryCall, NDArray, compare_libraries, index_tensor, values

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")

nan = float("nan")


def float32(numbers: list[float]) -> NDArray:
    return np.array(numbers, np.float32)


X = np.random.default_rng(5).permutation(105).reshape(3, 5, 7).astype(np.float32) / 20 - 2.6
WITH_NAN = np.where(np.random.default_rng(6).random((3, 5, 7)) < 0.3, nan, X).astype(np.float32)
COUNTS = np.random.default_rng(7).integers(0, 4, (4, 6))
INDICES = np.array([[0, 2, 2, 1], [2, 2, 0, 0]])

OF_ONE_TENSOR: dict[str, tuple[NDArray, LibraryCall]] = {
    "aminmax": (X, lambda m, x: tuple(m.aminmax(x, dim=1, keepdim=True))),
    "aminmax of all": (X, lambda m, x: tuple(m.aminmax(x))),
    "var_mean": (X, lambda m, x: m.var_mean(x, dim=(0, -1), keepdim=True)),
    "std_mean": (X, lambda m, x: m.std_mean(x, dim=1, correction=0)),
    "nansum": (WITH_NAN, lambda m, x: m.nansum(x, dim=(0, 2))),
    "nanmean": (WITH_NAN, lambda m, x: m.nanmean(x, dim=-1, keepdim=True)),
    "nansum of ints": (COUNTS, lambda m, x: m.nansum(x)),
    "median": (X, lambda m, x: m.median(x)),
    "median along": (X, lambda m, x: tuple(m.median(x, dim=-2))),
    "median with nan": (WITH_NAN, lambda m, x: m.median(x, dim=1, keepdim=True).values),
    "median of ints": (COUNTS, lambda m, x: m.median(x, dim=0).values),
    "nanmedian": (WITH_NAN, lambda m, x: m.nanmedian(x, dim=1).values),
    "nanmedian of all": (WITH_NAN, lambda m, x: m.nanmedian(x)),
    "kthvalue": (X, lambda m, x: tuple(m.kthvalue(x, 3, dim=1, keepdim=True))),
    "mode": (COUNTS, lambda m, x: tuple(m.mode(x, dim=-1))),
    "mode along 0": (COUNTS, lambda m, x: tuple(m.mode(x, 0, True))),
    "msort": (X, lambda m, x: m.msort(x)),
    "quantile": (X, lambda m, x: m.quantile(x, 0.3)),
    "quantile, keepdim": (X, lambda m, x: m.quantile(x, 0.3, keepdim=True)),
    "quantile with nan": (WITH_NAN, lambda m, x: m.quantile(x.detach(), 0.5, 0, interpolation="midpoint")),
    "cummax": (X, lambda m, x: tuple(m.cummax(x, 1))),
    "cummin": (X, lambda m, x: tuple(m.cummin(x, dim=-1))),
    "cummax with nan": (WITH_NAN, lambda m, x: tuple(m.cummax(x, 2))),
    "cummin of ints": (COUNTS, lambda m, x: tuple(m.cummin(x, 0))),
    "logcumsumexp": (X * 5, lambda m, x: m.logcumsumexp(x, 1)),
    "diff": (X, lambda m, x: m.diff(x, n=2, dim=1)),
    "diff of bools": (COUNTS > 1, lambda m, x: m.diff(x)),
    "diff, prepend and append": (X, lambda m, x: m.diff(x, prepend=x[..., :1] * 2, append=x[..., :2])),
    "trapezoid": (X, lambda m, x: m.trapezoid(x, dx=0.5, dim=1)),
    "trapezoid, points": (X, lambda m, x: m.trapezoid(x, x[0, :, 0] * 2, dim=1)),
    "cumulative_trapezoid": (X, lambda m, x: m.cumulative_trapezoid(x, x * x)),
    "unique_consecutive": (np.sort(COUNTS.reshape(-1)), lambda m, x: m.unique_consecutive(x, True, True)),
    "unique_consecutive along": (np.repeat(COUNTS, 2, 1), lambda m, x: m.unique_consecutive(x, dim=1)),
    "histc": (X, lambda m, x: m.histc(x.detach(), bins=7, min=-1, max=2)),
    "histc of all": (X, lambda m, x: m.histc(x.detach(), 5)),
    "argwhere": (COUNTS, lambda m, x: m.argwhere(x)),
    "t": (X[0], lambda m, x: m.t(x)),
    "adjoint": (X, lambda m, x: m.adjoint(x)),
    "fliplr": (X, lambda m, x: m.fliplr(x)),
    "flipud": (X, lambda m, x: m.flipud(x)),
    "rot90": (X, lambda m, x: tuple(m.rot90(x, k, (0, 2)) for k in (-1, 0, 1, 2, 3))),
    "tensor_split": (X, lambda m, x: (*m.tensor_split(x, 3, dim=-1), *m.tensor_split(x, (1, 9, 3), dim=1))),
    "hsplit": (X, lambda m, x: (*m.hsplit(x, 5), *m.hsplit(x[0, 0], (2, 3)))),
    "vsplit": (X, lambda m, x: m.vsplit(x, 3)),
    "dsplit": (X, lambda m, x: m.dsplit(x, [2, 5])),
    "atleast": (X[0, 0], lambda m, x: (m.atleast_1d(x[0]), m.atleast_2d(x), m.atleast_3d(x))),
    "dstack": (X[0], lambda m, x: m.dstack([x, x * 2])),
    "column_stack": (X[0, 0], lambda m, x: m.column_stack([x, x * 2])),
    "block_diag": (X[0], lambda m, x: m.block_diag(x, x[0], x[:2] * 2)),
    "cartesian_prod": (X[0, 0], lambda m, x: m.cartesian_prod(x, x[:3], x[2:4])),
    "trace": (X[0], lambda m, x: m.trace(x)),
    "diagflat": (X[0, :2], lambda m, x: m.diagflat(x, offset=-2)),
    "vander": (X[0, 0], lambda m, x: m.vander(x.detach(), 4)),
    "vander, increasing": (COUNTS[0], lambda m, x: m.vander(x, increasing=True)),
    "renorm": (X, lambda m, x: m.renorm(x, 1.5, -2, 6.0)),
    "swapdims": (X, lambda m, x: m.swapdims(x, 0, 2)),
    "moveaxis": (X, lambda m, x: m.moveaxis(x, 0, -1)),
    "select_scatter": (X, lambda m, x: m.select_scatter(x, x[:, 1] * 2, 1, -1)),
    "slice_scatter": (X, lambda m, x: m.slice_scatter(x, x[..., :3] * 2, 2, 1, 6, 2)),
    "diagonal_scatter": (X, lambda m, x: m.diagonal_scatter(x, x[:, :4, 0] * 2, -1, 1, 2)),
    "as_strided": (X, lambda m, x: m.as_strided(x, (4, 3, 2), (3, 1, 7), 2)),
    "sum_to_size": (X, lambda m, x: x.sum_to_size(5, 1)),
    "type_as": (X, lambda m, x: x.type_as(x.double())),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_ONE_TENSOR)
def test_one_tensor(name: str, device: str) -> None:
    array, call = OF_ONE_TENSOR[name]
    compare_libraries(device, call, array)


WITH_INDEX: dict[str, Callable[[Any, Any, Callable[[NDArray], Any]], Any]] = {
    "index_copy": lambda m, x, i: m.index_copy(x, 1, i(np.array([4, 0])), x[:, 1:3] * 2),
    "index_fill": lambda m, x, i: m.index_fill(x, -1, i(np.array([1, 6, 1])), 2.5),
    "index_fill with a tensor": lambda m, x, i: m.index_fill(x, 0, i(np.array([1])), x[0, 0, 0]),
    "masked_scatter": lambda m, x, i: m.masked_scatter(x, i(X > 0.5), x.flip(0) * 2),
    "masked_scatter, broadcast": lambda m, x, i: m.masked_scatter(x, i(X[0, :, :1] > 0), x * 2),
    "index_put": lambda m, x, i: m.index_put(x, (i(np.array([2, 0])), i(np.array([1, 1]))), x[0, 0] * 3),
    "index_put of bools": lambda m, x, i: m.index_put(x, (i(X > 1),), x[0, 0, 0]),
    "index_put, accumulate": lambda m, x, i: m.index_put(
        x, (i(np.array([2, 0, 2])), i(np.array([[1], [-1]]))), x[0, 0] * 3, accumulate=True
    ),
    "quantiles": lambda m, x, i: m.quantile(x, i(float32([0.1, 0.5, 1.0])), dim=1, keepdim=True),
    "quantiles, nearest": lambda m, x, i: m.quantile(x, i(float32([0.1, 0.6])), interpolation="nearest"),
    "bucketize": lambda m, x, i: m.bucketize(x.detach(), i(float32([-1, 0, 0.5])), right=True),
    **{
        f"scatter_reduce {how} {own}": functools.partial(
            lambda m, x, i, how, own: m.scatter_reduce(
                x[0], 1, i(INDICES), x[1, :2, :4] * 0.5, how, include_self=own
            ),
            how=how, own=own,
        )
        for how in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_INDEX)
def test_with_indices(name: str, device: str) -> None:
    call = WITH_INDEX[name]
    compare_libraries(device, lambda m, x: call(m, x, lambda array: index_tensor(m, device, array)), X)


def test_equal_elements_share_the_gradient_of_an_extreme(device: str) -> None:
    compare_libraries(
        device,
        lambda m, x: m.scatter_reduce(
            x[0] * 0, 0, index_tensor(m, device, np.array([0, 0, 1])), x[1] * 0, "amax"
        ),
        values(2, 3),
    )


def test_empty_axis(device: str) -> None:
    for call in (
        lambda m, x: m.nansum(x, dim=1),
        lambda m, x: m.diff(x, dim=1),
        lambda m, x: m.cummax(x, 1).values,
        lambda m, x: m.logcumsumexp(x, 1),
        lambda m, x: m.trapezoid(x.detach(), dim=1),
        lambda m, x: m.fliplr(x),
        lambda m, x: m.tensor_split(x, 3, 1),
        lambda m, x: m.argwhere(x),
    ):
        compare_libraries(device, call, np.zeros((3, 0), np.float32))


def test_tensors_without_axes(device: str) -> None:
    calls: tuple[LibraryCall, ...] = (
        lambda m, x: tuple(m.median(x, 0)), lambda m, x: tuple(m.cummin(x, 0)), lambda m, x: m.nanmedian(x),
        lambda m, x: m.logcumsumexp(x, 0),
        lambda m, x: m.kthvalue(x, 1).values, lambda m, x: m.quantile(x, 0.5), lambda m, x: m.ravel(x),
        lambda m, x: m.scatter_reduce(x, 0, index_tensor(m, device, np.array(0)), x * 2, "sum"),
        lambda m, x: m.t(x),
        lambda m, x: m.mode(x.detach())[0], lambda m, x: m.nanmean(x),
    )  # fmt: skip
    for call in calls:
        compare_libraries(device, call, np.array(1.5, np.float32))


def test_broadcast_tensors(device: str) -> None:
    compare_libraries(device, lambda m, a, b: m.broadcast_tensors(a, b), values(3, 1), values(4))


INVALID: tuple[tuple[type[Exception], str, LibraryCall], ...] = (
    (ArgumentError, r"\[kthvalue\] k must", lambda x: dl.kthvalue(x, 9)),
    (ArgumentError, r"\[median\] axis 0", lambda x: dl.median(x[:0], 0)),
    (ArgumentError, r"\[quantile\] q must", lambda x: dl.quantile(x, 1.5)),
    (ArgumentError, r"\[quantile\] interpolation", lambda x: dl.quantile(x, 0.5, interpolation="none")),  # type: ignore[arg-type]
    (DTypeError, r"\[quantile\] expected floats", lambda x: dl.quantile(x.long(), 0.5)),
    (DTypeError, r"\[histc\]", lambda x: dl.histc(x.long())),
    (ArgumentError, r"\[bucketize\]", lambda x: dl.bucketize(x, x)),
    (ArgumentError, r"\[diff\]", lambda x: dl.diff(x, n=-1)),
    (ShapeError, r"\[t\]", lambda x: dl.t(dl.zeros(1, 2, 3))),
    (ArgumentError, r"\[rot90\]", lambda x: dl.rot90(x, 1, (0, 0))),
    (ArgumentError, r"\[hsplit\]", lambda x: dl.hsplit(x, 3)),
    (ArgumentError, r"\[tensor_split\]", lambda x: dl.tensor_split(x, 0)),
    (ShapeError, r"\[trace\]", lambda x: dl.trace(x[0])),
    (ShapeError, r"\[vander\]", dl.vander),
    (ShapeError, r"\[index_copy\]", lambda x: dl.index_copy(x, 0, dl.tensor([0]), x)),
    (DTypeError, r"\[index_copy\]", lambda x: dl.index_copy(x, 0, dl.tensor([0, 1]), x.long())),
    (ArgumentError, r"\[index_fill\] index 7", lambda x: dl.index_fill(x, 0, dl.tensor([7]), 0)),
    (ArgumentError, r"\[scatter_reduce\] reduce", lambda x: dl.scatter_reduce(x, 0, x.long(), x, "or")),  # type: ignore[arg-type]
    (ArgumentError, r"\[masked_scatter\]", lambda x: dl.masked_scatter(x, x == x, x[0])),
    (ArgumentError, r"\[as_strided\] .* beyond", lambda x: dl.as_strided(x, (100000,), (1,))),
)


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case[1])
def test_invalid_arguments(
    case: tuple[type[Exception], str, LibraryCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DL4ALL_DEVICE", "cpu")
    error, message, call = case
    with pytest.raises(error, match=message):
        call(dl.tensor([[1.0, 2.0, 0.0, 3.0], [0.0, 1.0, 1.0, 0.0]], device="cpu"))
