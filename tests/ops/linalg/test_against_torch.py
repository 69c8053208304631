"""Matrix products against PyTorch: values and gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from tests.support.numpy_bodies import device as device
from tests.support.operands import generator, numbers
from tests.support.torch_cases import compare_with_torch

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")


@pytest.mark.parametrize(
    "shapes",
    [
        ((7,), (7,)), ((7,), (7, 5)), ((3, 7), (7,)), ((13, 29), (29, 11)), ((64, 36), (36, 40)),
        ((5, 3, 7), (7,)), ((7,), (5, 7, 3)), ((5, 3, 7), (7, 4)), ((3, 7), (5, 7, 4)),
        ((5, 3, 7), (5, 7, 4)), ((2, 1, 3, 7), (5, 7, 4)), ((1, 3, 7), (5, 7, 4)),
        ((2, 5, 3, 7), (1, 1, 7, 4)),
        ((1, 1), (1, 1)), ((1, 7), (7, 1)),
    ],
    ids=str,
)  # fmt: skip
def test_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]], device: str) -> None:
    a, b = (numbers(generator(shapes), shape) for shape in shapes)
    compare_with_torch(device, dl.matmul, torch.matmul, a, b)


TRANSPOSITIONS = list(itertools.product((False, True), repeat=2))


@pytest.mark.parametrize("transposed", TRANSPOSITIONS, ids=str)
@pytest.mark.parametrize("sizes", [(13, 29, 17), (64, 36, 8), (1, 7, 5), (5, 7, 1), (3, 1, 5)], ids=str)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_transposed_operands(
    transposed: tuple[bool, bool], sizes: tuple[int, int, int], batch: tuple[int, ...], device: str
) -> None:
    """Views with their last axes swapped, of matrices and of batches."""
    m, k, n = sizes
    rng = generator(transposed, sizes, batch)
    a = numbers(rng, (*batch, k, m) if transposed[0] else (*batch, m, k))
    b = numbers(rng, (*batch, n, k) if transposed[1] else (*batch, k, n))

    def product(left: Any, right: Any) -> Any:
        left = left.transpose(-1, -2) if transposed[0] else left
        right = right.transpose(-1, -2) if transposed[1] else right
        return left @ right

    compare_with_torch(device, product, product, a, b)


def test_operands_that_no_kernel_reads(device: str) -> None:
    """Heads split off the last axis, repeated rows, and every second element."""
    rng = generator("unreadable")

    def attention(q: Any, k: Any) -> Any:
        q, k = (x.reshape(2, 5, 3, 4).transpose(1, 2) for x in (q, k))
        return q @ k.transpose(-1, -2)

    compare_with_torch(device, attention, attention, numbers(rng, (2, 5, 12)), numbers(rng, (2, 5, 12)))

    def repeated(a: Any, b: Any) -> Any:
        return a.expand(5, 7) @ b.expand(2, 7, 3)

    compare_with_torch(device, repeated, repeated, numbers(rng, (1, 7)), numbers(rng, (1, 7, 3)))

    def apart(a: Any, b: Any) -> Any:
        return a[:, ::2] @ b[::2, ::2]

    compare_with_torch(device, apart, apart, numbers(rng, (5, 14)), numbers(rng, (14, 6)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("front", [(), (1,), (3,), (5,), (67,), (2, 3), (3, 0)], ids=str)
@pytest.mark.parametrize(("inner", "features"), [(7, 5), (36, 64), (130, 67)])
def test_linear(front: tuple[int, ...], inner: int, features: int, bias: bool, device: str) -> None:
    rng = generator(front, inner, features)
    compare_with_torch(
        device,
        dl.nn.functional.linear,
        torch.nn.functional.linear,
        numbers(rng, (*front, inner)),
        numbers(rng, (features, inner)),
        numbers(rng, (features,)) if bias else None,
    )


def test_linear_with_a_transposed_weight(device: str) -> None:
    rng = generator("turned weight")

    def layer(f: Any) -> Any:
        return lambda x, w, b: f(x, w.transpose(0, 1), b)

    x, w, b = numbers(rng, (9, 7)), numbers(rng, (7, 5)), numbers(rng, (5,))
    for bias in (b, None):
        compare_with_torch(
            device, layer(dl.nn.functional.linear), layer(torch.nn.functional.linear), x, w, bias
        )


PRODUCTS: list[tuple[str, list[tuple[int, ...]], dict[str, float]]] = [
    ("mm", [(3, 7), (7, 5)], {}),
    ("mv", [(3, 7), (7,)], {}),
    ("dot", [(7,), (7,)], {}),
    ("bmm", [(2, 3, 7), (2, 7, 5)], {}),
    ("outer", [(3,), (7,)], {}),
    ("addmm", [(3, 5), (3, 7), (7, 5)], {}),
    ("addmm", [(5,), (3, 7), (7, 5)], {"beta": 0.5, "alpha": -2.0}),
    ("baddbmm", [(2, 1, 5), (2, 3, 7), (2, 7, 5)], {"alpha": 3.0}),
]


@pytest.mark.parametrize(("name", "shapes", "arguments"), PRODUCTS)
def test_blas_products(
    name: str, shapes: list[tuple[int, ...]], arguments: dict[str, float], device: str
) -> None:
    rng = generator(name, shapes)
    arrays = [numbers(rng, shape) for shape in shapes]
    compare_with_torch(device, getattr(dl, name), getattr(torch, name), *arrays, **arguments)
    compare_with_torch(device, getattr(dl.Tensor, name), getattr(torch, name), *arrays, **arguments)


@pytest.mark.parametrize(("name", "shapes", "arguments"), PRODUCTS)
def test_blas_products_refuse_other_axes(name: str, shapes: Any, arguments: Any) -> None:
    tensors = [dl.ones(1, 1, *shape, device="cpu") for shape in shapes]
    with pytest.raises(ShapeError, match=rf"^\[(bmm|{name})\] "):
        getattr(dl, name)(*tensors, **arguments)


def test_nan_in_an_input_with_beta_0_does_not_count(device: str) -> None:
    nan, one = dl.full((2, 2), np.nan, device=device), dl.ones(2, 2, device=device)
    assert dl.addmm(nan, one, one, beta=0).tolist() == [[2.0, 2.0], [2.0, 2.0]]


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("bqhd,bkhd->bhqk", [(2, 4, 3, 5), (2, 6, 3, 5)]),
    ("ij->ji", [(3, 4)]),
    ("ij->", [(3, 4)]),
    ("ij->j", [(3, 4)]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,i->", [(3,), (3,)]),
    ("ij,ij->ij", [(3, 4), (3, 4)]),
    ("ij,k->ik", [(3, 4), (2,)]),
    ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 6)]),
    ("...ij,jk->...ik", [(2, 7, 3, 4), (4, 5)]),
    ("bi,bo,ioj->bj", [(2, 3), (2, 4), (3, 4, 5)]),
    ("ab,bc,cd,de->ae", [(2, 3), (3, 4), (4, 5), (5, 6)]),
    ("ij,ij,ij->j", [(3, 4), (3, 4), (3, 4)]),
    ("bi,bi->b", [(2, 3), (1, 3)]),
    ("ab,b->ab", [(1, 3), (3,)]),
    ("a,b,c->cab", [(2,), (3,), (4,)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(equation: str, shapes: list[tuple[int, ...]], device: str) -> None:
    arrays = [numbers(generator(equation, i), shape) for i, shape in enumerate(shapes)]
    compare_with_torch(
        device, lambda *o: dl.einsum(equation, *o), lambda *o: torch.einsum(equation, *o), *arrays
    )


@pytest.mark.parametrize(
    ("equation", "shapes", "error"),
    [
        ("ij,jk->ik", [(3, 4)], ArgumentError),
        ("ij->k", [(3, 4)], ArgumentError),
        ("ii->i", [(3, 5)], ShapeError),
        ("ij->i", [(3, 4, 5)], (ArgumentError, ShapeError)),
        ("ij,jk->ik", [(3, 4), (5, 6)], (ArgumentError, ShapeError)),
    ],
)
def test_equations_that_do_not_fit(equation: str, shapes: list[tuple[int, ...]], error: Any) -> None:
    with pytest.raises(error, match=r"^\[einsum\] "):
        dl.einsum(equation, *(dl.ones(*shape, device="cpu") for shape in shapes))
