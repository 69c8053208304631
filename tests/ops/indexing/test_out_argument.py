"""PyTorch's argument `out`: where results go, what is resized and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, GradientError, ShapeError
from dl4all.ops.core.exports import exported
from tests.support.operands import generator, numbers

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")

CALLS: dict[str, Any] = {
    "add": lambda lib, x, y, **out: lib.add(x, y, alpha=2, **out),
    "exp": lambda lib, x, y, **out: lib.exp(x, **out),
    "matmul": lambda lib, x, y, **out: lib.matmul(x, y.reshape(7, 5), **out),
    "cat": lambda lib, x, y, **out: lib.cat([x, y], 1, **out),
    "sum": lambda lib, x, y, **out: lib.sum(x, 1, **out),
    "where": lambda lib, x, y, **out: lib.where(x > 0, x, y, **out),
    "cumsum": lambda lib, x, y, **out: lib.cumsum(x, 0, **out),
    "index_select": lambda lib, x, y, **out: lib.index_select(x, 1, lib.argmax(y, 1)[:3], **out),
    "var": lambda lib, x, y, **out: lib.var(x, 0, **out),
}


def operands(device: str) -> tuple[list[Any], list[Any]]:
    arrays = [numbers(generator("out", i), (5, 7)) for i in range(2)]
    return [dl.tensor(a, device=device) for a in arrays], [torch.from_numpy(a) for a in arrays]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("layout", ["empty", "same", "transposed", "wider dtype"])
def test_results_are_written(name: str, layout: str, device: str) -> None:
    ours, theirs = operands(device)
    expected = CALLS[name](torch, *theirs)
    shape = tuple(expected.shape)
    out = {
        "empty": lambda: dl.empty(0, device=device),
        "same": lambda: dl.zeros(*shape, device=device),
        "transposed": lambda: dl.zeros(*shape[::-1], device=device).permute(*reversed(range(len(shape)))),
        "wider dtype": lambda: dl.zeros(*shape, dtype="float64", device=device),
    }[layout]()
    memory = out.storage
    result = CALLS[name](dl, *ours, out=out)
    assert result is out
    assert result.shape == shape
    assert layout == "empty" or out.storage is memory
    np.testing.assert_allclose(out.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_pairs_of_results(device: str) -> None:
    (x, _), (y, _) = operands(device)
    values, indices = dl.empty(0, device=device), dl.empty(0, dtype="int64", device=device)
    result = dl.max(x, 1, out=(values, indices))
    expected = torch.max(y, 1)
    assert result.values is values
    assert result.indices is indices
    assert values.tolist() == expected.values.tolist()
    assert indices.tolist() == expected.indices.tolist()
    with pytest.raises(ArgumentError, match=r"\[max\] expected 2 tensors"):
        dl.max(x, 1, out=values)


def test_an_operand_may_be_out(device: str) -> None:
    (x, y), (a, b) = operands(device)
    view = x[1:4]
    dl.mul(view, y[1:4], out=view)
    torch.mul(a[1:4], b[1:4], out=a[1:4])
    np.testing.assert_allclose(x.numpy(), a.numpy(), rtol=1e-6)
    dl.cumsum(x, 0, out=x)
    np.testing.assert_allclose(x.numpy(), a.cumsum(0).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (lambda: dl.zeros(3, 3, device="cpu"), ShapeError, r"'out' has shape \(3, 3\), the result \(5, 7\)"),
        (
            lambda: dl.zeros(5, 7, dtype="int64", device="cpu"),
            DTypeError,
            "does not fit 'out', which is int64",
        ),
        (lambda: np.zeros((5, 7)), DTypeError, "expected a tensor for 'out', got ndarray"),
        (
            lambda: dl.zeros(5, 7, device="cpu").requires_grad_(),
            GradientError,
            "no gradient flows into 'out'",
        ),
        (lambda: dl.zeros(5, 7, device="null"), ArgumentError, "'out' is on null"),
    ],
)
@pytest.mark.parametrize("name", ["exp", "where"])  # an op, and a function that calls some
def test_what_does_not_fit_is_refused(name: str, out: Any, error: Any, words: str) -> None:
    (x, y), _ = operands("cpu")
    with pytest.raises(error, match=words):
        CALLS[name](dl, x, y, out=out())


def test_pytorch_has_every_function_that_takes_it() -> None:
    names = [name for name, one in exported("dl") if one.out]
    assert len(names) > 150
    assert [name for name in names if not hasattr(torch, name)] == []
