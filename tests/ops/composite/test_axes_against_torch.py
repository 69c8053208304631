"""Functions along axes, of places and of order that are made of others, beside PyTorch's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, GradientError, ShapeError
from tests.support.compare_torch import NDArray, both, values

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")

Call = Callable[..., Any]  # of a library, dl4all or torch, and tensors

nan = float("nan")


def float32(numbers: list[float]) -> NDArray:
    return np.array(numbers, np.float32)


X = np.random.default_rng(5).permutation(105).reshape(3, 5, 7).astype(np.float32) / 20 - 2.6
HOLES = np.where(np.random.default_rng(6).random((3, 5, 7)) < 0.3, nan, X).astype(np.float32)
COUNTS = np.random.default_rng(7).integers(0, 4, (4, 6))
PLACES = np.array([[0, 2, 2, 1], [2, 2, 0, 0]])

ONE: dict[str, tuple[NDArray, Call]] = {
    "aminmax": (X, lambda m, x: tuple(m.aminmax(x, dim=1, keepdim=True))),
    "aminmax of all": (X, lambda m, x: tuple(m.aminmax(x))),
    "var_mean": (X, lambda m, x: m.var_mean(x, dim=(0, -1), keepdim=True)),
    "std_mean": (X, lambda m, x: m.std_mean(x, dim=1, correction=0)),
    "nansum": (HOLES, lambda m, x: m.nansum(x, dim=(0, 2))),
    "nanmean": (HOLES, lambda m, x: m.nanmean(x, dim=-1, keepdim=True)),
    "nansum of ints": (COUNTS, lambda m, x: m.nansum(x)),
    "median": (X, lambda m, x: m.median(x)),
    "median along": (X, lambda m, x: tuple(m.median(x, dim=-2))),
    "median with nan": (HOLES, lambda m, x: m.median(x, dim=1, keepdim=True).values),
    "median of ints": (COUNTS, lambda m, x: m.median(x, dim=0).values),
    "nanmedian": (HOLES, lambda m, x: m.nanmedian(x, dim=1).values),
    "nanmedian of all": (HOLES, lambda m, x: m.nanmedian(x)),
    "kthvalue": (X, lambda m, x: tuple(m.kthvalue(x, 3, dim=1, keepdim=True))),
    "mode": (COUNTS, lambda m, x: tuple(m.mode(x, dim=-1))),
    "mode along 0": (COUNTS, lambda m, x: tuple(m.mode(x, 0, True))),
    "msort": (X, lambda m, x: m.msort(x)),
    "quantile": (X, lambda m, x: m.quantile(x, 0.3)),
    "quantile, keepdim": (X, lambda m, x: m.quantile(x, 0.3, keepdim=True)),
    "quantile with nan": (HOLES, lambda m, x: m.quantile(x.detach(), 0.5, 0, interpolation="midpoint")),
    "cummax": (X, lambda m, x: tuple(m.cummax(x, 1))),
    "cummin": (X, lambda m, x: tuple(m.cummin(x, dim=-1))),
    "cummax with nan": (HOLES, lambda m, x: tuple(m.cummax(x, 2))),
    "cummin of ints": (COUNTS, lambda m, x: tuple(m.cummin(x, 0))),
    "logcumsumexp": (X * 5, lambda m, x: m.logcumsumexp(x, 1)),
    "diff": (X, lambda m, x: m.diff(x, n=2, dim=1)),
    "diff of bools": (COUNTS > 1, lambda m, x: m.diff(x)),
    "diff, joined": (X, lambda m, x: m.diff(x, prepend=x[..., :1] * 2, append=x[..., :2])),
    "trapezoid": (X, lambda m, x: m.trapezoid(x, dx=0.5, dim=1)),
    "trapezoid, places": (X, lambda m, x: m.trapezoid(x, x[0, :, 0] * 2, dim=1)),
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
    "vander, rising": (COUNTS[0], lambda m, x: m.vander(x, increasing=True)),
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


def beside(device: str, call: Call, *arrays: NDArray) -> None:
    both(device, functools.partial(call, dl), *arrays, g=functools.partial(call, torch))


@pytest.mark.parametrize("name", ONE)
def test_one_tensor(name: str, device: str) -> None:
    array, call = ONE[name]
    beside(device, call, array)


def ints(m: Any, device: str, array: NDArray) -> Any:
    return torch.from_numpy(array) if m is torch else dl.tensor(array, device=device)


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
                x[0], 1, i(PLACES), x[1, :2, :4] * 0.5, how, include_self=own
            ),
            how=how, own=own,
        )
        for how in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_INDEX)
def test_with_indices(name: str, device: str) -> None:
    call = WITH_INDEX[name]
    beside(device, lambda m, x: call(m, x, lambda array: ints(m, device, array)), X)


def test_equal_elements_share_the_gradient_of_an_extreme(device: str) -> None:
    beside(
        device,
        lambda m, x: m.scatter_reduce(x[0] * 0, 0, ints(m, device, np.array([0, 0, 1])), x[1] * 0, "amax"),
        values(2, 3),
    )


def test_nothing_along_an_axis(device: str) -> None:
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
        beside(device, call, np.zeros((3, 0), np.float32))


def test_a_single_element(device: str) -> None:
    calls: tuple[Call, ...] = (
        lambda m, x: tuple(m.median(x, 0)), lambda m, x: tuple(m.cummin(x, 0)), lambda m, x: m.nanmedian(x),
        lambda m, x: m.logcumsumexp(x, 0),
        lambda m, x: m.kthvalue(x, 1).values, lambda m, x: m.quantile(x, 0.5), lambda m, x: m.ravel(x),
        lambda m, x: m.scatter_reduce(x, 0, ints(m, device, np.array(0)), x * 2, "sum"), lambda m, x: m.t(x),
        lambda m, x: m.mode(x.detach())[0], lambda m, x: m.nanmean(x),
    )  # fmt: skip
    for call in calls:
        beside(device, call, np.array(1.5, np.float32))


def test_broadcasting(device: str) -> None:
    beside(device, lambda m, a, b: m.broadcast_tensors(a, b), values(3, 1), values(4))


PRODUCTS: dict[str, tuple[Call, tuple[NDArray, ...]]] = {
    "inner": (lambda m, a, b: m.inner(a, b), (values(2, 3, 5), values(4, 5))),
    "inner with a number": (lambda m, a, b: m.inner(a, b), (values(2, 3), values())),
    "vdot": (lambda m, a, b: m.vdot(a, b), (values(5), values(5) * 2)),
    "tensordot": (lambda m, a, b: m.tensordot(a, b), (values(2, 3, 5), values(3, 5, 4))),
    "tensordot along": (
        lambda m, a, b: m.tensordot(a, b, dims=([0, -1], [2, 0])), (values(2, 3, 5), values(5, 4, 2))),
    "tensordot of none": (lambda m, a, b: m.tensordot(a, b, 0), (values(2), values(3))),
    "kron": (lambda m, a, b: m.kron(a, b), (values(2, 3), values(4, 1, 5))),
    "cross": (lambda m, a, b: m.cross(a, b, dim=-1), (values(4, 3), values(1, 3))),
    "cross along": (lambda m, a, b: m.cross(a, b, dim=1), (values(2, 3, 4), values(2, 3, 4) * 2 + 1)),
    "addmv": (lambda m, a, b, c: m.addmv(a, b, c, beta=0.5, alpha=2), (values(3), values(3, 4), values(4))),
    "addr": (lambda m, a, b, c: m.addr(a, b, c, alpha=2), (values(3, 4), values(3), values(4))),
    "addbmm": (lambda m, *x: m.addbmm(*x, beta=2), (values(3, 5), values(2, 3, 4), values(2, 4, 5))),
    "ger": (lambda m, a, b: m.ger(a, b), (values(3), values(4))),
    "matrix_power": (lambda m, a: m.matrix_power(a, 5), (values(2, 3, 3) / 2,)),
    "matrix_power 0": (lambda m, a: m.matrix_power(a.detach(), 0), (values(2, 3, 3),)),
    "chain_matmul": (lambda m, *x: torch.linalg.multi_dot(x) if m is torch else m.chain_matmul(*x),
                     (values(3, 2), values(2, 5), values(5, 4), values(4, 1))),
    "dist": (lambda m, a, b: m.dist(a, b, 3), (values(3, 4), values(4))),
    "cdist": (lambda m, a, b: m.cdist(a, b), (values(2, 3, 5), values(4, 5))),
    "cdist 1": (lambda m, a, b: m.cdist(a, b, p=1.0), (values(3, 5), values(4, 5) * 1.1)),
    "cdist 3": (lambda m, a, b: m.cdist(a, b, p=3.0), (values(3, 5), values(4, 5) * 1.1)),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, device: str) -> None:
    call, arrays = PRODUCTS[name]
    beside(device, call, *arrays)


IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "unsqueeze_": lambda x, i: x.unsqueeze_(1),
    "squeeze_": lambda x, i: x.unsqueeze_(0).mul_(2).squeeze_(0),
    "t_": lambda x, i: x.t_().mul_(3),
    "transpose_": lambda x, i: x.transpose_(0, 1),
    "clip_": lambda x, i: x.clip_(-1, 1),
    "divide_": lambda x, i: x.divide_(3),
    "index_fill_": lambda x, i: x.index_fill_(0, i(np.array([1])), 5.0),
    "index_copy_": lambda x, i: x.index_copy_(0, i(np.array([1])), x.detach()[:1] * 2),
    "index_put_": lambda x, i: x.index_put_((i(np.array([1, 0])),), x.detach()[:2] * 2, accumulate=True),
    "masked_scatter_": lambda x, i: x.masked_scatter_(i(values(3, 4) > 0), x.detach() * 2),
    "fill_diagonal_": lambda x, i: x.fill_diagonal_(7.0),
    "multiply_": lambda x, i: x.multiply_(x.detach().clone()),
    "cumsum_": lambda x, i: x.cumsum_(1),
    "hypot_": lambda x, i: x.hypot_(x.detach() * 2),
    "frac_": lambda x, i: x.frac_(),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_changes_in_place(name: str, device: str) -> None:
    """Of what an op made, so that the change has a gradient."""
    call = IN_PLACE[name]
    beside(device, lambda m, x: call(x * 2, lambda array: ints(m, device, array)), values(3, 4))


def test_a_leaf_keeps_its_shape() -> None:
    x = dl.ones(2, 3, device="cpu").requires_grad_()
    with pytest.raises(GradientError, match=r"\[unsqueeze_\] a leaf"):
        x.unsqueeze_(0)
    assert x.detach().unsqueeze_(0).shape == (1, 2, 3)


def test_random_numbers_have_their_distribution(device: str) -> None:
    x = dl.zeros(20000, device=device)
    assert abs(x.exponential_(2.0).numpy().mean() - 0.5) < 0.02
    assert abs(np.log(x.log_normal_(0.5, 0.25).numpy()).mean() - 0.5) < 0.02
    assert abs(np.median(x.cauchy_(3.0, 0.5).numpy()) - 3.0) < 0.05
    assert abs(x.geometric_(0.25).numpy().mean() - 4) < 0.2
    found = x.random_(-2, 3).numpy()
    assert sorted(set(found.tolist())) == [-2.0, -1.0, 0.0, 1.0, 2.0]
    assert set(dl.zeros(1000, dtype="int64", device=device).random_(3).numpy().tolist()) == {0, 1, 2}
    assert set(dl.randint_like(x, 2, 4).numpy().tolist()) == {2.0, 3.0}
    assert x.bernoulli(0.25).numpy().mean() == pytest.approx(0.25, abs=0.02)


def test_facts_and_dtypes() -> None:
    x = dl.zeros(3, 4, dtype="float16", device="cpu")
    y = torch.zeros(3, 4, dtype=torch.float16)
    calls: tuple[Call, ...] = (
        lambda t: t.stride(), lambda t: t.t().stride(0), lambda t: t[1:].storage_offset(),
        lambda t: t.nelement(), lambda t: t.ndimension(), lambda t: t.itemsize,
        lambda t: t.is_complex(), lambda t: t.is_signed(),
    )  # fmt: skip
    for call in calls:
        assert call(x) == call(y)
    assert (dl.numel(x), dl.is_tensor(x), dl.is_tensor(1), dl.is_floating_point(x)) == (12, True, False, True)
    for first in ("bool", "uint8", "int8", "int64", "float16", "float64"):
        for second in ("bool", "int16", "int64", "float16", "float32"):
            one, other = getattr(torch, first), getattr(torch, second)
            assert f"torch.{dl.promote_types(first, second)}" == str(torch.promote_types(one, other))
            assert dl.can_cast(first, second) == torch.can_cast(one, other)
            pair = [torch.zeros(2, dtype=one), torch.zeros(2, dtype=other)]
            got = dl.result_type(dl.zeros(2, dtype=first), dl.zeros(2, dtype=second))
            assert f"torch.{got}" == str(torch.result_type(*pair))
    assert dl.finfo(dl.float32).eps == torch.finfo(torch.float32).eps
    assert dl.iinfo(dl.int32).max == torch.iinfo(torch.int32).max
    assert dl.result_type(1, 2.5) == np.dtype("float32")


def test_tensors_made_beside_others() -> None:
    array = np.ones((2, 3), np.float32)
    shared = dl.as_tensor(array, device="cpu")
    array[0, 0] = 5
    assert shared[0, 0].item() == 5
    assert dl.as_tensor(shared) is shared
    assert dl.as_tensor(shared, dtype="int64").dtype == np.dtype("int64")
    assert dl.asarray([1, 2], device="cpu").tolist() == [1, 2]
    assert shared.new_tensor([1, 2]).dtype == np.dtype("float32")
    assert shared.byte().dtype == np.dtype("uint8")
    for rows, columns, offset in ((3, 4, 0), (4, 3, -1), (3, 3, 2), (0, 3, 0)):
        for name in ("tril_indices", "triu_indices"):
            got, expected = (getattr(m, name)(rows, columns, offset) for m in (dl, torch))
            assert got.tolist() == expected.tolist()


REFUSED: tuple[tuple[type[Exception], str, Call], ...] = (
    (ArgumentError, r"\[kthvalue\] k must", lambda x: dl.kthvalue(x, 9)),
    (ArgumentError, r"\[median\] axis 0", lambda x: dl.median(x[:0], 0)),
    (ArgumentError, r"\[quantile\] q must", lambda x: dl.quantile(x, 1.5)),
    (ArgumentError, r"\[quantile\] interpolation", lambda x: dl.quantile(x, 0.5, interpolation="none")),
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
    (ArgumentError, r"\[scatter_reduce\] reduce", lambda x: dl.scatter_reduce(x, 0, x.long(), x, "or")),
    (ArgumentError, r"\[masked_scatter\]", lambda x: dl.masked_scatter(x, x == x, x[0])),
    (ArgumentError, r"\[as_strided\] .* beyond", lambda x: dl.as_strided(x, (100000,), (1,))),
    (ShapeError, r"\[inner\]", lambda x: dl.inner(x, x.T)),
    (ShapeError, r"\[tensordot\]", lambda x: dl.tensordot(x, x, 1)),
    (ArgumentError, r"\[cross\]", lambda x: dl.cross(x, x, dim=0)),
    (ShapeError, r"\[cdist\]", lambda x: dl.cdist(x, x.T)),
    (ShapeError, r"\[matrix_power\]", lambda x: dl.matrix_power(x, 2)),
    (ShapeError, r"\[addmv\]", lambda x: dl.addmv(dl.zeros(5), x, x[0])),
    (DTypeError, r"\[result_type\]", lambda x: dl.result_type(x, "a")),  # type: ignore[arg-type]
    (ShapeError, r"\[fill_diagonal_\]", lambda x: x[0].fill_diagonal_(1)),
    (ArgumentError, r"\[exponential_\]", lambda x: x.exponential_(0)),
    (ShapeError, r"\[sum_to_size\]", lambda x: x.sum_to_size(3, 3)),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[1])
def test_what_is_refused(case: tuple[type[Exception], str, Call], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_DEVICE", "cpu")
    kind, message, call = case
    with pytest.raises(kind, match=message):
        call(dl.tensor([[1.0, 2.0, 0.0, 3.0], [0.0, 1.0, 1.0, 0.0]], device="cpu"))
