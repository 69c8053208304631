"""Types of the public functions and methods, and wrong arguments, for mypy alone: nothing runs this file.

mypy, which ``tools/test.sh`` runs over all files, refuses another type than the asserted one, and an unused
``type: ignore``: where a wrong argument is accepted.
"""

from __future__ import annotations

from typing_extensions import assert_type

import dl4all as dl


def known(x: dl.Tensor) -> None:
    """Results of functions, operators and methods."""
    assert_type(dl.relu(x), dl.Tensor)
    assert_type(dl.nn.functional.softmax(x), dl.Tensor)
    assert_type(dl.zeros(2), dl.Tensor)
    assert_type(dl.tensor([[1, 2]]), dl.Tensor)
    assert_type(dl.arange(3), dl.Tensor)
    assert_type(dl.randn(2, 3), dl.Tensor)
    assert_type(x + x, dl.Tensor)
    assert_type(1 - x, dl.Tensor)
    assert_type(x @ x, dl.Tensor)
    assert_type(x[0], dl.Tensor)
    assert_type(x.relu(), dl.Tensor)
    assert_type(x.relu_(), dl.Tensor)
    assert_type(x.sum(), dl.Tensor)
    assert_type(x.T, dl.Tensor)
    assert_type(dl.topk(x, 1).values, dl.Tensor)
    assert_type(dl.topk(x, 1).indices, dl.Tensor)
    assert_type(x.max(), dl.Tensor)
    assert_type(x.max(0).indices, dl.Tensor)
    assert_type(dl.median(x), dl.Tensor)
    assert_type(x.sort().values, dl.Tensor)
    assert_type(x.half(), dl.Tensor)
    assert_type(x.to("cpu"), dl.Tensor)
    assert_type(x.type("int8"), dl.Tensor)
    assert_type(x.type(), str)
    assert_type(x.new_zeros(2), dl.Tensor)
    assert_type(x.squeeze_(0), dl.Tensor)
    assert_type(x.cauchy_(), dl.Tensor)
    assert_type(x.size(), dl.Size)
    assert_type(x.size(0), int)
    assert_type(x.item(), int | float)
    assert_type(dl.nn.Linear(2, 3).weight, dl.nn.Parameter)
    assert_type(dl.nn.Linear(2, 3).forward(x), dl.Tensor)


def refused(x: dl.Tensor) -> None:
    """Calls that a type checker must not accept."""
    x.relu("nonsense")  # type: ignore[arg-type]
    dl.relu([1.0])  # type: ignore[arg-type]
    dl.nn.functional.elu(x, alpha="much")  # type: ignore[arg-type]
    dl.zeros("2")  # type: ignore[arg-type]
    x.new_full((2,), "one")  # type: ignore[arg-type]
    x.half(3)  # type: ignore[arg-type]
    x + "text"  # type: ignore[arg-type]
