"""Sparse tensors in coordinate format beside PyTorch's: forms, arithmetic, products and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError

torch = pytest.importorskip("torch", reason="compared with PyTorch's sparse tensors")

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")

RNG = np.random.default_rng(11)
SHAPE = (7, 5)
INDICES = np.stack([RNG.integers(0, n, 13) for n in SHAPE])  # some of them twice
VALUES = RNG.standard_normal(13).astype(np.float32)
DENSE = RNG.standard_normal((5, 3)).astype(np.float32)
LEFT = RNG.standard_normal((4, 7)).astype(np.float32)
FULL = RNG.standard_normal(SHAPE).astype(np.float32)

CASES: dict[str, Callable[[Any, Any, Callable[[Any], Any]], Any]] = {
    "to_dense": lambda f, a, t: a.to_dense(),
    "coalesced": lambda f, a, t: [a.coalesce().indices(), a.coalesce().values()],
    "sparse.mm": lambda f, a, t: f.sparse.mm(a, t(DENSE)),
    "spmm": lambda f, a, t: f.spmm(a, t(DENSE)),
    "mm": lambda f, a, t: f.mm(a, t(DENSE)),
    "operator": lambda f, a, t: a @ t(DENSE),
    "vector": lambda f, a, t: a @ t(DENSE[:, 0].copy()),
    "from the left": lambda f, a, t: t(LEFT) @ a,
    "transposed": lambda f, a, t: a.t() @ t(FULL),
    "two sparse": lambda f, a, t: f.sparse.mm(a, a.t()).to_dense(),
    "addmm": lambda f, a, t: f.sparse.addmm(t(FULL[:, :3].copy()), a, t(DENSE), beta=0.5, alpha=2),
    "times a number": lambda f, a, t: (a * 3).to_dense(),
    "by a number": lambda f, a, t: (a / 3).to_dense(),
    "negative": lambda f, a, t: (-a).to_dense(),
    "sum of two": lambda f, a, t: (a + a * 2).to_dense(),
    "difference": lambda f, a, t: (a - a * 2).to_dense(),
    "to a dense one": lambda f, a, t: t(FULL) + a,
    "element by element": lambda f, a, t: (a.coalesce() * (a * 2).coalesce()).to_dense(),
    "sum": lambda f, a, t: f.sparse.sum(a),
    "sum of columns": lambda f, a, t: f.sparse.sum(a, 0).to_dense(),
    "sum of rows": lambda f, a, t: f.sparse.sum(a, dim=[1]).to_dense(),
    "softmax": lambda f, a, t: f.sparse.softmax(a.coalesce(), 1).to_dense(),
    "along columns": lambda f, a, t: f.sparse.softmax(a.coalesce(), 0).to_dense(),
    "log_softmax": lambda f, a, t: f.sparse.log_softmax(a.coalesce(), 1).to_dense(),
    "of a dense one": lambda f, a, t: [
        t(FULL * (FULL > 0)).to_sparse().indices(),
        t(FULL).to_sparse().values(),
    ],
}


def results(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("case", CASES)
def test_functions_and_gradients(case: str, device: str) -> None:
    values = dl.tensor(VALUES, device=device).requires_grad_()
    theirs = torch.tensor(VALUES, requires_grad=True)
    ours = dl.sparse_coo_tensor(dl.tensor(INDICES, device=device), values, SHAPE)
    made: list[list[Any]] = [[], []]

    def operand(array: Any, side: int) -> Any:
        leaf = dl.tensor(array, device=device) if side == 0 else torch.tensor(array)
        made[side].append(leaf.requires_grad_())
        return leaf

    found = results(CASES[case](dl, ours, lambda array: operand(array, 0)))
    expected = results(
        CASES[case](
            torch,
            torch.sparse_coo_tensor(torch.tensor(INDICES), theirs, SHAPE, check_invariants=True),
            lambda array: operand(array, 1),
        )
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6)
    weights = RNG.standard_normal(tuple(found[-1].shape)).astype(np.float32)
    (found[-1] * dl.tensor(weights, device=device)).sum().backward()
    (expected[-1] * torch.tensor(weights)).sum().backward()
    for one, other in zip([values, *made[0]], [theirs, *made[1]], strict=True):
        if other.grad is None:
            assert one.grad is None
        else:
            np.testing.assert_allclose(one.grad.numpy(), other.grad.to_dense().numpy(), rtol=1e-4, atol=1e-5)


def test_a_leaf_keeps_its_gradient() -> None:
    a = dl.sparse_coo_tensor(INDICES, VALUES, SHAPE, requires_grad=True)
    (a @ dl.tensor(DENSE, device=a.device)).sum().backward()
    assert a.grad is not None
    assert a.grad.shape == SHAPE
    rows = DENSE.sum(1)
    np.testing.assert_allclose(a.grad._values.numpy(), rows[INDICES[1]], rtol=1e-5)


def test_description() -> None:
    a = dl.sparse_coo_tensor(INDICES, np.stack([VALUES, VALUES], 1))
    assert a.shape == (INDICES[0].max() + 1, INDICES[1].max() + 1, 2)
    assert (a.sparse_dim(), a.dense_dim(), a.ndim, len(a), a.is_sparse, dl.zeros(2).is_sparse) == (
        2, 1, 3, a.shape[0], True, False,
    )  # fmt: skip
    whole = a.coalesce()
    assert whole.is_coalesced()
    assert not a.is_coalesced()
    assert whole.coalesce() is whole
    assert whole._nnz() == len({*map(tuple, INDICES.T)})
    assert "nnz=13" in repr(a)
    np.testing.assert_allclose(whole.to_dense().numpy(), a.to_dense().numpy(), rtol=1e-6)
    assert a.double().dtype == np.float64
    assert a.to("cpu").device.name == "cpu"
    again = dl.tensor(FULL).to_sparse(1)
    assert (again.sparse_dim(), again.dense_dim()) == (1, 1)
    assert again.to_dense().tolist() == FULL.tolist()


@pytest.mark.parametrize("count", [0, 1])
def test_next_to_no_elements(count: int) -> None:
    a = dl.sparse_coo_tensor(np.zeros((2, count), np.int64), np.full(count, 2.5, np.float32), (3, 2))
    found = (a @ dl.ones(2, 2, device=a.device)).numpy()
    assert found.sum() == 5.0 * count
    assert a.coalesce().to_dense().numpy().sum() == 2.5 * count


def test_bad_use() -> None:
    a = dl.sparse_coo_tensor(INDICES, VALUES, SHAPE)
    with pytest.raises(ArgumentError, match=r"\[values\] the sparse tensor is not coalesced"):
        a.values()
    with pytest.raises(DTypeError, match=r"\[relu\] takes no sparse tensors; convert it with \.to_dense\(\)"):
        dl.nn.functional.relu(a)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="cannot divide"):
        dl.ones(7, 5) / a  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="do not fit"):
        a @ dl.ones(4, 4)
    with pytest.raises(ArgumentError, match="outside of size"):
        dl.sparse_coo_tensor([[0, 3]], [1.0, 2.0], (3,))
    with pytest.raises(ArgumentError, match="outside of size"):
        dl.sparse_coo_tensor([[-1]], [1.0], (3,))
    with pytest.raises(ShapeError, match="expected indices of shape"):
        dl.sparse_coo_tensor([[0, 1]], [1.0], (3,))
    with pytest.raises(ShapeError, match="does not fit"):
        dl.sparse_coo_tensor([[0]], [1.0], (3, 3))
    with pytest.raises(DTypeError, match="must be integers"):
        dl.sparse_coo_tensor([[0.5]], [1.0], (3,))
    with pytest.raises(ShapeError, match="sparse matrix"):
        dl.sparse.softmax(dl.sparse_coo_tensor([[0]], [1.0]), 0)
