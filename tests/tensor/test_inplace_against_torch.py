"""In-place methods, against PyTorch's: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import GradientError
from tests.support.compare_torch import compare_libraries, index_tensor, values

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")


IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "unsqueeze_": lambda x, i: x.unsqueeze_(1),
    "squeeze_": lambda x, i: x.unsqueeze_(0).mul_(2).squeeze_(0),
    "t_": lambda x, i: x.t_().mul_(3),
    "transpose_": lambda x, i: x.transpose_(0, 1),
    "clip_": lambda x, i: x.clip_(-1, 1),
    "divide_": lambda x, i: x.divide_(3),
    "index_fill_": lambda x, i: x.index_fill_(0, i(np.array([1])), 5.0),
    "index_copy_": lambda x, i: x.index_copy_(0, i(np.array([1])), x.detach()[:1] * 2),
    "index_put_": lambda x, i: x.index_put_((i(np.array([1, 0])),), x.detach()[:2] * 2, accumulate=True),
    "masked_scatter_": lambda x, i: x.masked_scatter_(i(values(3, 4) > 0), x.detach() * 2),
    "fill_diagonal_": lambda x, i: x.fill_diagonal_(7.0),
    "multiply_": lambda x, i: x.multiply_(x.detach().clone()),
    "cumsum_": lambda x, i: x.cumsum_(1),
    "hypot_": lambda x, i: x.hypot_(x.detach() * 2),
    "frac_": lambda x, i: x.frac_(),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_methods(name: str, device: str) -> None:
    """Applied to the result of an op, so that they have a gradient."""
    call = IN_PLACE[name]
    compare_libraries(
        device, lambda m, x: call(x * 2, lambda array: index_tensor(m, device, array)), values(3, 4)
    )


def test_a_leaf_cannot_change_its_shape() -> None:
    x = dl.ones(2, 3, device="cpu").requires_grad_()
    with pytest.raises(GradientError, match=r"\[unsqueeze_\] a leaf"):
        x.unsqueeze_(0)
    assert x.detach().unsqueeze_(0).shape == (1, 2, 3)
