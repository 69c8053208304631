"""Copies between dtypes and strides, padding, joining and what is made of numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


F = torch.nn.functional
DTYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
OTHERS = ("complex64", "complex128", "bfloat16")


@pytest.mark.parametrize("dtype", [*DTYPES, *OTHERS])
def test_any_strides(dtype: str, place: str, natively: None) -> None:
    torch.manual_seed(1)
    host = (torch.randn(7, 5, 6) * 50).abs().to(getattr(torch, dtype))
    x = host.to(place)
    views: tuple[Callable[[Any], Any], ...] = (
        lambda t: t.permute(2, 0, 1), lambda t: t[1:, ::2, 3], lambda t: t[:, :, None, :].expand(7, 5, 2, 6),
    )  # fmt: skip
    for view in views:
        assert torch.equal(view(x).contiguous().cpu(), view(host).contiguous())
    x[1:6:2, ::2, 1:] = x[:3, :3, :5].clone()
    host[1:6:2, ::2, 1:] = host[:3, :3, :5].clone()
    assert torch.equal(x.cpu(), host)
    x[2, 3:].zero_()
    host[2, 3:].zero_()
    assert torch.equal(x.cpu(), host)


@pytest.mark.parametrize("source", DTYPES)
def test_conversions(source: str, place: str, natively: None) -> None:
    torch.manual_seed(2)
    host = (torch.randn(5, 13) * 60).abs().to(getattr(torch, source))
    x = host.to(place)
    for name in DTYPES:
        if (source, name) != ("float64", "float16"):  # which the host rounds
            target = getattr(torch, name)
            assert torch.equal(x.t().to(target).cpu(), host.t().to(target))


def test_conjugates_and_negatives(place: str) -> None:
    torch.manual_seed(3)
    host = torch.randn(3, 5, dtype=torch.complex64)
    x = host.to(place)
    assert torch.equal(x.conj().resolve_conj().cpu(), host.conj().resolve_conj())
    assert torch.equal(x.conj().imag.clone().cpu(), host.conj().imag)
    target = torch.zeros_like(x)
    target.conj().copy_(x)
    assert torch.equal(target.cpu(), host.conj())
    target.conj().fill_(1 + 2j)
    assert torch.equal(target.cpu(), torch.full_like(host, 1 - 2j))


def test_moves_that_do_not_block(place: str, natively: None) -> None:
    host = torch.randn(5, 3)
    assert torch.equal(host.to(place, non_blocking=True).to("cpu", non_blocking=True), host)


# Of x (2, 3, 7, 5)
SHAPED: dict[str, Callable[[Any], Any]] = {
    "cat": lambda x: torch.cat([x, x[:, 1:], x.new_empty(0)], 1),
    "stack": lambda x: torch.stack([x, x * 2], -1),
    "flip": lambda x: x.flip(0, -1),
    "roll": lambda x: x.roll((2, -1), (2, 0)),
    "roll all": lambda x: x.roll(4),
    "repeat": lambda x: x.repeat(2, 1, 3, 1, 1),
    "tile": lambda x: x.tile(3),
    "rot90": lambda x: x.rot90(1, (1, 3)),
    "tril": lambda x: x.tril(-1),
    "triu": lambda x: x.triu(2),
    "constant": lambda x: F.pad(x, (1, -2, 0, 3), value=0.5),
    "reflect": lambda x: F.pad(x, (1, 4, 2, 0), mode="reflect"),
    "replicate": lambda x: F.pad(x, (3, 0, 1, 9), mode="replicate"),
    "circular": lambda x: F.pad(x, (2, 1, 0, 3), mode="circular"),
    "split": lambda x: torch.cat(x.split([3, 4], 2)[::-1], 2),
    "diag_embed": lambda x: torch.diag_embed(x[0, 0], 1),
}


@pytest.mark.parametrize("case", SHAPED)
def test_shapes(case: str, place: str, natively: None) -> None:
    torch.manual_seed(4)
    host = torch.randn(2, 3, 5, 7)
    results = []
    for where in ("cpu", place):
        leaf = host.to(where).requires_grad_()
        output = SHAPED[case](leaf.transpose(2, 3))
        results.append([output, *torch.autograd.grad((output**2).sum(), leaf)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)


MADE: dict[str, Callable[[str], Any]] = {
    "arange": lambda d: torch.arange(-3, 19, 4, device=d),
    "arange of fractions": lambda d: torch.arange(0.5, 3.3, 0.3, device=d),
    "arange, empty": lambda d: torch.arange(0, device=d),
    "linspace": lambda d: torch.linspace(-2, 7.5, 13, device=d),
    "logspace": lambda d: torch.logspace(-1, 2, 7, base=2, device=d),
    "eye": lambda d: torch.eye(5, 3, dtype=torch.int32, device=d),
    "full": lambda d: torch.full((3, 5), 2.5, dtype=torch.float16, device=d),
    "full bools": lambda d: torch.full((3, 5), True, device=d),
    "tril_indices": lambda d: torch.tril_indices(3, 5, 1, device=d),
    "triu_indices": lambda d: torch.triu_indices(4, 3, -1, device=d),
}


@pytest.mark.parametrize("case", MADE)
def test_made_of_numbers(case: str, place: str, natively: None) -> None:
    got, expected = MADE[case](place), MADE[case]("cpu")
    assert got.device == torch.device(place)
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-6, atol=1e-7)


def test_set_keeps_the_offset_of_its_source(place: str) -> None:
    host, y = torch.arange(6.0), torch.arange(6.0).to(place)
    x = torch.empty(0, device=place)
    x.set_(y[2:])
    assert (x.storage_offset(), x.tolist()) == (2, host[2:].tolist())
    y[3] = 9.0
    assert x.tolist() == [2.0, 9.0, 4.0, 5.0]


def test_tensors_of_dl4all_keep_their_offset(place: str) -> None:
    import dl4all as dl
    from dl4all.torch import from_dl4all

    own = dl.arange(6.0, device=str(dl.tensor([]).device))
    seen = from_dl4all(own[2:])
    assert (seen.storage_offset(), seen.tolist()) == (2, [2.0, 3.0, 4.0, 5.0])
    own[3] = 9.0
    assert seen.tolist() == [2.0, 9.0, 4.0, 5.0]


def test_each_write_counts_a_change(place: str) -> None:
    """Whoever keeps something made of a tensor asks for that, in the first calls and in those with a plan."""
    from dl4all.pytorch.device.storage.memory import tensor

    x, y, index = (torch.ones(6, device=place), torch.rand(6, device=place), torch.tensor([1]).to(place))
    host = torch.rand(6)
    writes: dict[str, Callable[[], Any]] = {
        "copy_": lambda: x.copy_(y), "copy_ from the host": lambda: x.copy_(host),
        "fill_": lambda: x.fill_(2), "zero_": x.zero_,
        "a slice": lambda: x.__setitem__(slice(1, 3), 5.0), "mul_": lambda: x.mul_(2),
        "add_": lambda: x.add_(y), "clamp_": lambda: x.clamp_(0, 1), "uniform_": x.uniform_,
        "masked_fill_": lambda: x.masked_fill_(y > 0, 3.0),
        "index_fill_": lambda: x.index_fill_(0, index, 3.0),
        "index_put_": lambda: x.index_put_((index,), y[:1]), "scatter_": lambda: x.scatter_(0, index, y[:1]),
    }  # fmt: skip
    for name, write in writes.items():
        for _ in range(5):
            before = tensor(x).storage.version
            write()
            assert tensor(x).storage.version == before + 1, name
