"""Views beside PyTorch's: values, gradients and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ShapeError
from tests.support.compare_torch import check_against_torch, torch, values
from tests.support.numpy_bodies import device as device

F, TF = dl.nn.functional, torch.nn.functional
DTYPES = ("float64", "float16", "int64", "int32", "int16", "uint8", "bool")


VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.contiguous().view(5, -1),
    "view of a part": lambda x: x.contiguous()[:, :2].view(3, 2, 7, 1),
    "view_as": lambda x: x.contiguous().view_as(x.reshape(-1)),
    "reshape_as": lambda x: x.reshape_as(x.reshape(7, 15)),
    "unflatten": lambda x: x.reshape(3, 35).unflatten(1, (5, -1)),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "movedim": lambda x: x.movedim(0, -1),
    "movedim of several": lambda x: x.movedim((0, 2), (1, 0)),
    "expand_as": lambda x: x[:1].expand_as(x),
    "broadcast_to": lambda x: x.broadcast_to((2, 3, 5, 7)),
    "select": lambda x: x.select(1, -2),
    "narrow": lambda x: x.narrow(-1, 2, 3),
    "mT": lambda x: x.mT,
    "diagonal": lambda x: x.diagonal(),
    "diagonal above": lambda x: x.diagonal(2, -1, 0),
    "diagonal below": lambda x: x.diagonal(-2, 1, 2),
    "diagonal past the end": lambda x: x.diagonal(9),
    "windows": lambda x: x.unfold(1, 3, 1),
    "windows apart": lambda x: x.unfold(-1, 2, 3),
    "flatten": lambda x: x.flatten(1),
    "squeeze": lambda x: x[:, :1].squeeze(1),
}  # fmt: skip


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, layout: str, device: str) -> None:
    check_against_torch(device, VIEWS[name], values(3, 5, 7), layout=layout)


def test_view_errors(device: str) -> None:
    with pytest.raises(ShapeError, match=r"\[view\] .* has no view of shape \(6,\); use \.reshape"):
        dl.zeros(2, 3, device=device).T.view(6)
    with pytest.raises(ShapeError, match=r"\[view\] 6 elements"):
        dl.zeros(2, 3, device=device).view(4)


def test_gradient_of_an_empty_slice(device: str) -> None:
    x = dl.ones(4, 3, device=device, requires_grad=True)
    x[2:2].backward(dl.zeros(0, 3, device=device))
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros((4, 3)))
