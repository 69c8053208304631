"""Reductions, scans and sorting on PyTorch's device compute what PyTorch's CPU does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the PyTorch device needs PyTorch")


import dl4all.torch  # noqa: E402

pytestmark = pytest.mark.usefixtures("natively")

Case = Callable[[Any], Any]


def _check(case: Case, place: str, x: Any) -> None:
    """Results of any number have the CPU's dtypes, shapes and elements."""
    want, got = (
        result if isinstance(result, tuple) else (result,) for result in (case(x), case(x.to(place)))
    )
    for one, other in zip(want, got, strict=True):
        assert str(other.device) == place
        torch.testing.assert_close(other.cpu(), one, rtol=1e-5, atol=1e-5, equal_nan=True)


OF_FLOATS: dict[str, Case] = {
    "sum": lambda x: (x.sum(), x.sum((0, 2)), x.sum(-1, keepdim=True)),
    "mean": lambda x: (x.mean(), x.mean(1), x.mean((0, -1), keepdim=True)),
    "prod": lambda x: (x.prod(1), x.prod(0, keepdim=True)),
    "nansum": lambda x: x.nansum((0, 1)),
    "moments": lambda x: (*torch.var_mean(x, (0, 2), correction=0), *torch.std_mean(x, 1), x.std(), x.var(2)),
    "extremes": lambda x: (*x.max(1), *x.min(0, keepdim=True), x.amax((0, 2)), x.amin(), x.max(), x.min()),
    "indices": lambda x: (x.argmax(), x.argmin(1, keepdim=True), x.argmax(0)),
    "aminmax": lambda x: (*x.aminmax(), *x.aminmax(dim=1)),
    "norms": lambda x: tuple(
        torch.linalg.vector_norm(x, p, dim=(0, 2)) for p in (0, 1, 2, 3.5, float("inf"))
    ),
    "truth": lambda x: ((x > 0).all(1), (x > 2).any((0, 2)), (x > 0).any(), (x == x).all(), (x > 0).sum(1)),
    "logsumexp": lambda x: (x.logsumexp((0, 1)), x.logcumsumexp(1)),
    "counts": lambda x: (x.round().count_nonzero(), x.round().count_nonzero((0, 1))),
    "medians": lambda x: (x.median(), *x.median(1), x.nanmedian(), *x.kthvalue(3, 1), x.round().mode(1)[0]),
    "scans": lambda x: (x.cumsum(1), x.cumprod(2), *x.cummax(1), *x.cummin(0)),
    "sorting": lambda x: (*x.sort(1, descending=True), *x.topk(3, 1, largest=False), x.argsort(0), x.msort()),
    "norm of slices": lambda x: torch.renorm(x, 2, 1, 1.5),
    "softmax": lambda x: (
        x.softmax(1),
        x.log_softmax(-1),
        torch._safe_softmax(x.masked_fill(x < 9, -1e999), 2),
    ),
}


@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats(name: str, place: str) -> None:
    x = torch.randn(5, 7, 11)
    _check(OF_FLOATS[name], place, x)
    _check(OF_FLOATS[name], place, x.permute(2, 0, 1)[:, 1:])
    _check(OF_FLOATS[name], place, torch.randn(3, 5, 2))


def _of_integers(x: Any) -> tuple[Any, ...]:
    indices = () if x.dtype == torch.bool else (x.argmax(1), x.argmin())
    return (x.sum(), x.sum(1), x.prod(0), x.amax(1), x.amin(), *indices, x.cumsum(0), *x.sort(1))


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_integers(dtype: str, place: str) -> None:
    low, high = {"uint8": (0, 256), "bool": (0, 2), "int32": (-(2**31), 2**31)}.get(dtype, (-(2**62), 2**62))
    x = torch.randint(low, high, (7, 13)).to(getattr(torch, dtype))
    _check(_of_integers, place, x)
    _check(lambda x: (x.sum(1), x.prod(1), x.sum(), x.cumsum(1)), place, x[:, :0])


def test_nothing_to_reduce(place: str) -> None:
    for shape in ((0, 5), (5, 0)):
        _check(
            lambda x: (x.sum(), x.sum(0), x.mean(1), x.prod(1), x.any(0), x.all(1)), place, torch.ones(shape)
        )
    dl4all.torch.set_fallback("silent")
    with pytest.raises(IndexError, match="Expected reduction dim"):
        torch.ones(0, 5).to(place).amax(0)


def test_members_and_places(place: str) -> None:
    x, boundaries = torch.randn(3, 37).round(decimals=1), torch.randn(41).round(decimals=1).sort().values
    _check(lambda x: torch.bucketize(x, boundaries.to(x.device), right=True, out_int32=True), place, x)
    _check(lambda x: torch.searchsorted(boundaries.to(x.device), x), place, x)
    for count in (3, 41):
        _check(lambda x: torch.isin(x, boundaries[:count].to(x.device)), place, x)  # noqa: B023
    assert torch.equal(x.to(place), x.to(place).clone())
    assert not torch.equal(x.to(place), (x + 1).to(place))


GRADIENTS: dict[str, Case] = {
    "var": lambda x: x.var((0, 2)),
    "std": lambda x: x.std(1),
    "norm": lambda x: x.norm(3, 1),
    "amax": lambda x: x.amax(1),
    "max": lambda x: x.max(2).values,
    "prod": lambda x: x.prod(1),
    "cumprod": lambda x: x.cumprod(1),
    "logsumexp": lambda x: x.logsumexp(0),
    "sort": lambda x: x.sort(1).values * x,
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(2),
    "median": lambda x: x.median(1).values,
    "cdist": lambda x: torch.cdist(x, x[:1] + 1),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, place: str) -> None:
    x = torch.randn(5, 7, 3)
    weight = torch.randn(GRADIENTS[name](x).shape)
    gradients = []
    for device in ("cpu", place):
        leaf = x.to(device, copy=True).requires_grad_()
        (GRADIENTS[name](leaf) * weight.to(device)).sum().backward()
        gradients.append(leaf.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


def test_unique_elements_and_slices(place: str) -> None:
    x = torch.randint(0, 2, (9, 3))
    for axis in (None, 0, 1):
        _check(lambda x: torch.unique(x, True, True, True, dim=axis), place, x)  # noqa: B023
        _check(lambda x: torch.unique_consecutive(x, True, True, axis), place, x)  # noqa: B023


def test_histograms(place: str) -> None:
    x = torch.randn(3, 47)
    _check(lambda x: (x.histc(17), x.histc(5, -1, 2)), place, x)
