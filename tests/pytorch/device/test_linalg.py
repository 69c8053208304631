"""Products of vectors and matrices against PyTorch's on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all.torch  # noqa: E402 - registers the device

CASES: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[..., Any]]] = {
    "mm": (((7, 5), (3, 5)), lambda a, b: a @ b.T),
    "mv": (((5, 7), (5,)), lambda a, b: a.T @ b),
    "dot": (((13,), (13,)), torch.dot),
    "bmm": (((3, 5, 7), (3, 2, 7)), lambda a, b: torch.bmm(a, b.mT)),
    "batches": (((2, 1, 5, 7), (3, 7, 4)), torch.matmul),
    "nothing": (((3, 0), (0, 5)), torch.mm),
    "addmm": (((5,), (3, 7), (7, 5)), lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2)),
    "addmm of a column": (((3, 1), (3, 7), (7, 5)), torch.addmm),
    "addmv": (((3,), (3, 7), (7,)), lambda c, a, b: torch.addmv(c, a, b, beta=0)),
    "addr": (((3, 7), (3,), (7,)), lambda c, a, b: torch.addr(c, a, b, alpha=3)),
    "baddbmm": (((1, 5), (3, 2, 7), (3, 7, 5)), torch.baddbmm),
    "addbmm": (((2, 5), (3, 2, 7), (3, 7, 5)), torch.addbmm),
    "linear": (((4, 3, 7), (5, 7), (5,)), torch.nn.functional.linear),
    "linear without rows": (((0, 7), (5, 7), (5,)), torch.nn.functional.linear),
    "cross": (((5, 3), (5, 3)), torch.linalg.cross),
    "cdist": (((2, 5, 3), (2, 7, 3)), lambda a, b: torch.cdist(a, b, p=1.5)),
    "pdist": (((7, 3),), torch.pdist),
    "einsum": (((2, 3, 5), (5, 7, 3)), lambda a, b: torch.einsum("bij,jki->bk", a, b)),
}


@pytest.mark.parametrize("case", CASES)
def test_products(case: str, place: str, natively: None) -> None:
    shapes, function = CASES[case]
    torch.manual_seed(1)
    operands, results = [torch.randn(shape) for shape in shapes], []
    for where in ("cpu", place):
        leaves = [one.to(where).requires_grad_() for one in operands]
        output = function(*leaves)
        results.append((output, *torch.autograd.grad((output**2).sum(), leaves)))
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_forms_that_write(natively: None) -> None:
    torch.manual_seed(2)
    c, a, b = torch.randn(3, 5), torch.randn(3, 7), torch.randn(7, 5)
    out = torch.zeros(5, 3, device="dlall").T
    torch.addmm(c.to("dlall"), a.to("dlall"), b.to("dlall"), out=out)
    torch.testing.assert_close(out.cpu(), torch.addmm(c, a, b), rtol=1e-4, atol=1e-5)
    changed = c.to("dlall")
    changed.addmm_(a.to("dlall"), b.to("dlall"), beta=2)
    torch.testing.assert_close(changed.cpu(), torch.addmm(c, a, b, beta=2), rtol=1e-4, atol=1e-5)


def test_integers_run_on_the_cpu() -> None:
    a, b = torch.randint(9, (3, 4)), torch.randint(9, (4, 5))
    dl4all.torch.set_fallback("silent")
    assert torch.equal((a.to("dlall") @ b.to("dlall")).cpu(), a @ b)
    dl4all.torch.set_fallback(None)


@pytest.mark.parametrize(
    "call",
    [
        lambda a: a.mm(a),
        lambda a: torch.addmm(a.double(), a, a.T),
        lambda a: a @ a.T.double(),
        lambda a: torch.addmm(a.long(), a, a.T),
    ],
)
def test_wrong_operands_raise_as_on_the_cpu(call: Callable[..., Any]) -> None:
    a = torch.randn(3, 4)
    with pytest.raises(RuntimeError) as expected:
        call(a)
    with pytest.raises(RuntimeError) as got:
        call(a.to("dlall"))
    assert type(got.value) is type(expected.value)
