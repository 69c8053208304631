"""Joining, splitting, flipping, repeating and padding beside PyTorch: values, gradients and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, Dl4allError, DTypeError, ShapeError
from tests.support.compare_torch import check_against_torch, torch, values
from tests.support.operands import contiguous

F, TF = dl.nn.functional, torch.nn.functional
DTYPES = ("float64", "float16", "int64", "int32", "int16", "uint8", "bool")


JOINS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    name: (f, g)
    for name, f, g in [
        ("cat", lambda x: dl.cat([x, x * 2, x]), lambda x: torch.cat([x, x * 2, x])),
        ("cat inside", lambda x: dl.cat([x[:, :2], x], 1), lambda x: torch.cat([x[:, :2], x], 1)),
        ("cat last", lambda x: dl.cat([x, x[..., 1:3]], -1), lambda x: torch.cat([x, x[..., 1:3]], -1)),
        ("cat of nothing", lambda x: dl.cat([x[:0], x]), lambda x: torch.cat([x[:0], x])),
        ("stack", lambda x: dl.stack([x, -x], 1), lambda x: torch.stack([x, -x], 1)),
        ("stack last", lambda x: dl.stack((x, x), -1), lambda x: torch.stack((x, x), -1)),
        ("hstack", lambda x: dl.hstack([x, x]), lambda x: torch.hstack([x, x])),
        (
            "hstack of vectors",
            lambda x: dl.hstack([x[0, 0], x[0, 1]]),
            lambda x: torch.hstack([x[0, 0], x[0, 1]]),
        ),
        (
            "vstack of vectors",
            lambda x: dl.vstack([x[0, 0], x[0, 1]]),
            lambda x: torch.vstack([x[0, 0], x[0, 1]]),
        ),
        ("flip", lambda x: dl.flip(x, (0, 2)), lambda x: torch.flip(x, (0, 2))),
        ("roll", lambda x: dl.roll(x, (1, -2), (0, 2)), lambda x: torch.roll(x, (1, -2), (0, 2))),
        ("roll all", lambda x: dl.roll(x, 4), lambda x: torch.roll(x, 4)),
        ("tril", lambda x: dl.tril(x, 1), lambda x: torch.tril(x, 1)),
        ("triu", lambda x: dl.triu(x, -1), lambda x: torch.triu(x, -1)),
        ("diag", lambda x: dl.diag(x[0], 1), lambda x: torch.diag(x[0], 1)),
        ("diag of a vector", lambda x: dl.diag(x[0, 0], -2), lambda x: torch.diag(x[0, 0], -2)),
        ("diag_embed", lambda x: dl.diag_embed(x, 1), lambda x: torch.diag_embed(x, 1)),
    ]
}


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided"])
@pytest.mark.parametrize("name", JOINS)
def test_joining_and_flipping(name: str, layout: str, device: str) -> None:
    ours, theirs = JOINS[name]
    check_against_torch(device, ours, values(3, 5, 7), g=theirs, layout=layout)


SPLITS: dict[str, Callable[[Any], Any]] = {
    "split": lambda x: x.split(2, 1),
    "split by sizes": lambda x: x.split([1, 4, 2], -1),
    "chunk": lambda x: x.chunk(3, 2),
    "unbind": lambda x: x.unbind(1),
    "repeat": lambda x: x.repeat(2, 1, 3, 1),
    "tile": lambda x: x.tile((2, 3)),
    "repeat_interleave": lambda x: x.repeat_interleave(3, 1),
    "repeat_interleave all": lambda x: x.repeat_interleave(2),
}


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("name", SPLITS)
def test_splitting_and_repeating(name: str, layout: str, device: str) -> None:
    check_against_torch(device, SPLITS[name], values(3, 5, 7), layout=layout)


def test_repeat_interleave_with_a_tensor_of_counts(device: str) -> None:
    times = [2, 0, 1, 3, 1]
    check_against_torch(
        device,
        lambda x: dl.ops.repeat_interleave(x, dl.tensor(times), 1),
        values(3, 5, 2),
        g=lambda x: x.repeat_interleave(torch.tensor(times), 1),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str, device: str) -> None:
    x = values(3, 5, 4, dtype=dtype)
    key = [2, 0, 0]
    check_against_torch(
        device,
        lambda x: dl.cat([x, x.flip(1)], 1),
        x,
        g=lambda x: torch.cat([x, x.flip(1)], 1),
        layout="strided",
    )
    check_against_torch(device, lambda x: x.permute(2, 0, 1).contiguous(), x, layout="transposed")
    check_against_torch(device, lambda x: x[key], x)
    check_against_torch(device, lambda x: x[:, key, 1:], x)
    check_against_torch(
        device, lambda x: F.pad(x, (1, -2, 2, 1), value=1), x, g=lambda x: TF.pad(x, (1, -2, 2, 1), value=1)
    )
    check_against_torch(device, dl.tril, x, g=torch.tril)
    check_against_torch(
        device, lambda x: dl.sort(x, 1, stable=True)[0], x, g=lambda x: torch.sort(x, dim=1, stable=True)[0]
    )


def test_cat_promotes_dtypes(device: str) -> None:
    a, b = values(2, 3), values(1, 3, dtype="int64")
    check_against_torch(device, lambda a, b: dl.cat([a, b]), a, b, g=lambda a, b: torch.cat([a, b]))


@pytest.mark.parametrize(
    ("f", "error", "message"),
    [
        (
            lambda x: dl.cat([x, x[0]]),
            ShapeError,
            r"\[cat\] shapes \(3, 5\) and \(5,\) must be equal but for axis 0",
        ),
        (lambda x: dl.cat([x, x.T], 1), ShapeError, r"\[cat\] shapes"),
        (lambda x: dl.cat([]), ArgumentError, r"\[cat\] expected at least one tensor"),
        (lambda x: dl.cat(x), DTypeError, r"\[cat\] expected a list of tensors, got one tensor"),
        (lambda x: dl.cat([x, 1.0]), DTypeError, r"\[cat\] expected a list of tensors, got a float in it"),  # type: ignore[list-item]
        (lambda x: dl.stack([x, x[1:]]), ShapeError, r"\[stack\] shapes \(3, 5\) and \(2, 5\) must be equal"),
        (lambda x: x.split([1, 1]), ArgumentError, r"\[split\] sizes \[1, 1\] do not add up to 3"),
        (lambda x: x.chunk(0), ArgumentError, r"\[chunk\] expected at least one part"),
        (lambda x: x.repeat(2), ArgumentError, r"\[repeat\] expected a number of at least 0 for each axis"),
        (lambda x: x.narrow(0, 2, 2), ArgumentError, r"\[narrow\] start 2 and length 2 do not fit axis 0"),
        (lambda x: x.movedim((0, 0), (0, 1)), ArgumentError, r"\[movedim\]"),
        (lambda x: x.diagonal(0, 1, 1), ArgumentError, r"\[diagonal\] dim1 and dim2 are the same axis"),
        (lambda x: dl.tril(x[0]), ShapeError, r"\[tril\] expected matrices"),
        (lambda x: x.unfold(0, 4, 1), ArgumentError, r"\[unfold\] size 4 and step 1 do not fit axis 0"),
        (lambda x: F.pad(x, (1,)), ArgumentError, r"\[pad\] expected two numbers"),
        (lambda x: F.pad(x, (1, 1), "mirror"), ArgumentError, r"\[pad\] the mode must be one of"),
        (lambda x: F.pad(x, (5, 0), "reflect"), ArgumentError, r"\[pad\] mode 'reflect' can add at most 4"),
        (lambda x: F.pad(x, (-3, -3)), ArgumentError, r"\[pad\] -3 and -3 leave nothing of axis 1"),
        (lambda x: x[[0, 3]], ArgumentError, r"\[index\] index 3 is out of range for an axis of size 3"),
        (lambda x: x[:, [-6]], ArgumentError, r"\[index\] index -6 is out of range for an axis of size 5"),
        (
            lambda x: x[[0, 1], [0, 1, 2]],
            ArgumentError,
            r"\[index\] indices of shapes \(2,\) and \(3,\) do not",
        ),
        (
            lambda x: x[[True, False]],
            ArgumentError,
            r"\[index\] a mask of shape \(2,\) does not fit axes of shape \(3,\)",
        ),
        (lambda x: x.index_select(0, [3]), ArgumentError, r"\[index_select\] index 3 is out of range"),
        (lambda x: x.index_select(0, [-1]), ArgumentError, r"\[index_select\] index -1 is out of range"),
        (
            lambda x: x.index_select(0, [0.5]),
            DTypeError,
            r"\[index_select\] expected indices of integers, got float64",
        ),
        (lambda x: x.gather(0, [0]), ShapeError, r"\[gather\] an index of shape \(1,\) does not fit"),
        (
            lambda x: x.gather(0, [[5]]),
            ArgumentError,
            r"\[gather\] index 5 is out of range for an axis of size 3",
        ),
        (lambda x: x.scatter(1, [[0, 5]], 1.0), ArgumentError, r"\[scatter\] index 5 is out of range"),
        (lambda x: x.take([15]), ArgumentError, r"\[take\] index 15 is out of range for an axis of size 15"),
        (lambda x: F.embedding(dl.tensor([3]), x), ArgumentError, r"\[embedding\] index 3 is out of range"),
        (
            lambda x: x.masked_select([1, 0, 0, 0, 0]),
            DTypeError,
            r"\[masked_select\] expected a mask of bool",
        ),
        (lambda x: F.one_hot(dl.tensor([3]), 3), ArgumentError, r"\[one_hot\] index 3 is out of range"),
        (lambda x: F.interpolate(x, 3), ShapeError, r"\[interpolate\] mode 'nearest' does not fit"),
        (
            lambda x: F.interpolate(x[None], mode="linear"),
            ArgumentError,
            r"\[interpolate\] give either size or",
        ),
        (lambda x: F.unfold(x[None], 7), ArgumentError, r"\[unfold\] no window of size 7"),
    ],
)  # fmt: skip
def test_errors(f: Any, error: type[Dl4allError], message: str, device: str) -> None:
    with pytest.raises(error, match=message):
        f(dl.ones(3, 5, device=device))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("amounts", [(2, 1), (0, 3, 1, 0), (1, 2, 3, 1), (-1, 2), (-1, -1, 1, -2)])
def test_pad(mode: str, amounts: tuple[int, ...], device: str) -> None:
    if mode != "constant" and min(amounts) < 0:
        pytest.skip("PyTorch refuses some of these")
    x = values(2, 3, 5, 7) if len(amounts) == 4 else values(2, 3, 7)
    check_against_torch(
        device,
        lambda x: F.pad(x, amounts, mode=mode),
        x,
        g=lambda x: TF.pad(x, amounts, mode=mode),
        layout="strided",
    )
    if mode == "constant":
        check_against_torch(
            device, lambda x: F.pad(x, amounts, value=-2.5), x, g=lambda x: TF.pad(x, amounts, value=-2.5)
        )


# Second derivatives


@pytest.mark.parametrize(
    "f",
    [
        lambda x: dl.cat([x * x, x]), lambda x: (x * x)[[0, 1, 0]], lambda x: (x * x).flip(0),
        lambda x: (x * x).diagonal(),
        lambda x: (x * x).unfold(0, 2, 1), lambda x: F.pad(x * x, (1, 1)),
        lambda x: F.embedding(dl.tensor([1, 1]), x * x),
        lambda x: (x * x).scatter(0, [[1]], x[:1, :1] * 3), lambda x: (x * x).contiguous().view(-1),
        lambda x: dl.tril(x * x),
    ],
)  # fmt: skip
def test_second_derivatives(f: Any) -> None:
    x = dl.tensor(values(3, 3, dtype="float64"), device="cpu", requires_grad=True)
    assert dl.autograd.gradcheck(f, x)
    assert dl.autograd.gradgradcheck(f, x)


def test_cat_of_integers_requires_no_gradient(device: str) -> None:
    tensor, _ = contiguous(values(3, 5, dtype="int64"), device)
    assert not dl.cat([tensor, tensor]).requires_grad
