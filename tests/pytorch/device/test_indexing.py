"""Reading and writing by index and mask, and the gradients, against PyTorch's on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dl4all.errors import ArgumentError  # noqa: E402

Case = Callable[..., Any]


def index(*shape: int, below: int, seed: int = 5) -> Any:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


def mask(*shape: int) -> Any:
    return torch.rand(shape, generator=torch.Generator().manual_seed(7)) < 0.4


def assigned(x: Any, key: Any, value: Any) -> Any:
    result = x.clone()
    result[key] = value
    return result


# Of x (7, 5, 3), y (2, 5, 3) and indices of shapes (4,), (2, 5, 3) and masks of x and its first axis.
CASES: dict[str, Case] = {
    "rows": lambda x, y, i, j, m, r: x[i],
    "one axis": lambda x, y, i, j, m, r: x[:, i - 4],
    "two axes apart": lambda x, y, i, j, m, r: x[i, :, i % 3],
    "two axes beside each other": lambda x, y, i, j, m, r: x[:, i % 5, i[:, None] % 3],
    "mask": lambda x, y, i, j, m, r: x[m],
    "mask of rows": lambda x, y, i, j, m, r: x[r],
    "assigned numbers": lambda x, y, i, j, m, r: assigned(x, (slice(None), i % 5), 3.0),
    "assigned rows": lambda x, y, i, j, m, r: assigned(x, i[:2], y[:, :, :1]),
    "assigned by mask": lambda x, y, i, j, m, r: assigned(x, m, 2.0),
    "accumulated": lambda x, y, i, j, m, r: x.index_put((i % 2, i % 5), y[0, 0], accumulate=True),
    "index_select": lambda x, y, i, j, m, r: x.index_select(1, i % 5),
    "index_add": lambda x, y, i, j, m, r: x.index_add(0, i[:2], y, alpha=0.5),
    "index_copy": lambda x, y, i, j, m, r: x.index_copy(0, torch.unique(i)[:2], y),
    "index_fill": lambda x, y, i, j, m, r: x.index_fill(2, i % 3, 4.0),
    "index_reduce": lambda x, y, i, j, m, r: x.index_reduce(0, i[:2], y, "amax", include_self=False),
    "gather": lambda x, y, i, j, m, r: x.gather(0, j),
    "gather from no axis": lambda x, y, i, j, m, r: x[0, 0, 0].gather(0, i[0] * 0),
    "scatter": lambda x, y, i, j, m, r: x.scatter(0, j, 2.0),
    "scatter_add": lambda x, y, i, j, m, r: x.scatter_add(0, j, y),
    "scatter_add within": lambda x, y, i, j, m, r: x.scatter_add(0, j[:1, :4, 1:], y[:1, :4, 1:]),
    "scatter_reduce": lambda x, y, i, j, m, r: x.scatter_reduce(0, j, y, "mean", include_self=False),
    "take": lambda x, y, i, j, m, r: x.take(i[:, None] * 9 - 50),
    "put": lambda x, y, i, j, m, r: x.put(i * 3, y[0, :4, 0], accumulate=True),
    "masked_fill": lambda x, y, i, j, m, r: x.masked_fill(m, -1.5),
    "masked_fill along rows": lambda x, y, i, j, m, r: x.transpose(0, 2).masked_fill(r, 2.0),
    "masked_select": lambda x, y, i, j, m, r: x.masked_select(r[:, None, None]),
    "masked_scatter": lambda x, y, i, j, m, r: x.masked_scatter(m, x * 2),
    "where": lambda x, y, i, j, m, r: torch.where(m[:2], y, 0.5),
    "nonzero": lambda x, y, i, j, m, r: m.nonzero(),
    "nonzero_static": lambda x, y, i, j, m, r: r.nonzero_static(size=9),
    "isin": lambda x, y, i, j, m, r: torch.isin(j, i),
    "isin inverted": lambda x, y, i, j, m, r: torch.isin(i, 2, invert=True),
    "repeat_interleave": lambda x, y, i, j, m, r: y.repeat_interleave(i[:2], 0),
    "slice and select": lambda x, y, i, j, m, r: x[1:6:2, 2, -1],
    "unfold": lambda x, y, i, j, m, r: x.unfold(0, 3, 2),
    "diagonal": lambda x, y, i, j, m, r: x.diagonal(1, 0, 1),
}


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str, place: str, natively: None) -> None:
    torch.manual_seed(1)
    operands = [torch.randn(7, 5, 3), torch.randn(2, 5, 3)]
    indices = [index(4, below=7), index(2, 5, 3, below=7), mask(7, 5, 3), mask(7)]
    results = []
    for where in ("cpu", place):
        leaves = [one.to(where).requires_grad_() for one in operands]
        output = CASES[case](*leaves, *(one.to(where) for one in indices))
        gradients = []
        if output.requires_grad:
            gradients = torch.autograd.grad((output**2).sum(), leaves, allow_unused=True)
        results.append([output, *(one for one in gradients if one is not None)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8", "bool", "float16"])
def test_dtypes(dtype: str, place: str, natively: None) -> None:
    torch.manual_seed(2)
    host = torch.randint(0, 100, (5, 7)).to(getattr(torch, dtype))
    rows, places, chosen = index(3, below=5), index(2, 7, below=5), mask(5, 7)
    x, i, j, m = (one.to(place) for one in (host, rows, places, chosen))
    pairs = [
        (x[i], host[rows]),
        (x.gather(0, j), host.gather(0, places)),
        (x.scatter(0, j, 1), host.scatter(0, places, 1)),
        (x.masked_fill(m, 1), host.masked_fill(chosen, 1)),
        (x[m], host[chosen]),
        (torch.cat([x, x[:2]]), torch.cat([host, host[:2]])),
        (x.tril(1), host.tril(1)),
        (x.t().contiguous(), host.t().contiguous()),
        (x.flip(1), host.flip(1)),
    ]
    for got, expected in pairs:
        assert got.dtype == expected.dtype
        assert torch.equal(got.cpu(), expected)


def test_writing_in_place_reaches_views(place: str, natively: None) -> None:
    torch.manual_seed(3)
    host = torch.randn(6, 5)
    x = host.to(place)
    for one, where in ((host, "cpu"), (x, place)):
        view = one[1:5, ::2]
        view[index(2, below=4).to(where)] = 7.0
        view.masked_fill_(mask(4, 3).to(where), -1.0)
        view.index_add_(1, index(2, below=3).to(where), torch.ones(4, 2, device=where))
        view.scatter_(0, index(2, 3, below=4).to(where), 0.25)
    torch.testing.assert_close(x.cpu(), host)


def test_an_index_out_of_range(place: str) -> None:
    x = torch.randn(3, 2, device=place)
    with pytest.raises((IndexError, RuntimeError, ArgumentError), match="out of"):
        x[torch.tensor([0, 3], device=place)].cpu()


def test_tables(place: str, natively: None) -> None:
    torch.manual_seed(4)
    functional = torch.nn.functional
    table, rows = torch.randn(7, 5), index(11, below=7)
    starts, factors = torch.tensor([0, 3, 3, 8]), torch.randn(11)
    results = []
    for where in ("cpu", place):
        weight, scale = (one.to(where).requires_grad_() for one in (table, factors))
        i, o = rows.to(where), starts.to(where)
        outputs = [
            functional.embedding(i.view(1, -1), weight, padding_idx=2, scale_grad_by_freq=True),
            *(functional.embedding_bag(i, weight, o, mode=mode, padding_idx=1) for mode in ("mean", "max")),
            functional.embedding_bag(i, weight, o, mode="sum", per_sample_weights=scale),
        ]
        total = sum((output**2).sum() for output in outputs)
        results.append([*outputs, *torch.autograd.grad(total, [weight, scale])])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)
