"""Products and distances composed of ops, against PyTorch's: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from tests.support.compare_torch import LibraryCall, NDArray, compare_libraries, values

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")


PRODUCTS: dict[str, tuple[LibraryCall, tuple[NDArray, ...]]] = {
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
    compare_libraries(device, call, *arrays)


INVALID: tuple[tuple[type[Exception], str, Callable[[Any], Any]], ...] = (
    (ShapeError, r"\[inner\]", lambda x: dl.inner(x, x.T)),
    (ShapeError, r"\[tensordot\]", lambda x: dl.tensordot(x, x, 1)),
    (ArgumentError, r"\[cross\]", lambda x: dl.cross(x, x, dim=0)),
    (ShapeError, r"\[cdist\]", lambda x: dl.cdist(x, x.T)),
    (ShapeError, r"\[matrix_power\]", lambda x: dl.matrix_power(x, 2)),
    (ShapeError, r"\[addmv\]", lambda x: dl.addmv(dl.zeros(5), x, x[0])),
)


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case[1])
def test_invalid_arguments(
    case: tuple[type[Exception], str, Callable[[Any], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DL4ALL_DEVICE", "cpu")
    error, message, call = case
    with pytest.raises(error, match=message):
        call(dl.tensor([[1.0, 2.0, 0.0, 3.0], [0.0, 1.0, 1.0, 0.0]], device="cpu"))
