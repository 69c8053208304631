"""No op writes beyond its memory; arguments that would make one do so are refused before a kernel runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, Dl4allError, DTypeError, ShapeError

F = dl.nn.functional


def ints(device: str, *values: int, dtype: str = "int64") -> dl.Tensor:
    return dl.tensor(np.array(values, dtype), device=device)


Use = Callable[[str, dl.Tensor], Any]
HOSTILE: dict[str, tuple[Use, type[Dl4allError]]] = {
    "index beyond the end": (lambda d, x: x[7], ArgumentError),
    "negative index before the start": (lambda d, x: x[-8], ArgumentError),
    "array of indices beyond the end": (lambda d, x: x[ints(d, 0, 7)], ArgumentError),
    "index_select": (lambda d, x: x.index_select(0, ints(d, 7)), ArgumentError),
    "index_select before the start": (lambda d, x: x.index_select(0, ints(d, -1)), ArgumentError),
    "index_select of 2**40": (lambda d, x: x.index_select(0, ints(d, 2**40)), ArgumentError),
    "index_select of 2**32": (lambda d, x: x.index_select(0, ints(d, 2**32)), ArgumentError),
    "index_select by floats": (lambda d, x: x.index_select(0, dl.tensor([0.0], device=d)), DTypeError),
    "gather": (lambda d, x: x.gather(0, ints(d, 0, 7).reshape(1, 2)), ArgumentError),
    "gather along another axis": (lambda d, x: x.gather(2, ints(d, 0).reshape(1, 1)), ArgumentError),
    "scatter_add": (
        lambda d, x: x.scatter_add(0, ints(d, 7).reshape(1, 1), dl.ones(1, 1, device=d)),
        ArgumentError,
    ),
    "embedding": (lambda d, x: F.embedding(ints(d, 0, 7), x), ArgumentError),
    "one_hot": (lambda d, x: F.one_hot(ints(d, 3), 3), ArgumentError),
    "class beyond the classes": (lambda d, x: F.cross_entropy(x, ints(d, *range(7))), ArgumentError),
    "negative class": (lambda d, x: F.cross_entropy(x, ints(d, *([-3] * 7))), ArgumentError),
    "nll class": (lambda d, x: F.nll_loss(x, ints(d, *([5] * 7))), ArgumentError),
    "too few classes": (lambda d, x: F.cross_entropy(x, ints(d, 1, 2)), ShapeError),
    "narrow beyond the end": (lambda d, x: x.narrow(0, 5, 3), ArgumentError),
    "narrow of negative length": (lambda d, x: x.narrow(0, 5, -1), ArgumentError),
    "view of more elements": (lambda d, x: x.reshape(6, 6), ShapeError),
    "negative sizes": (lambda d, x: dl.zeros(-1, 3, device=d), Dl4allError),
    "expand of what is not 1": (lambda d, x: x.expand(7, 10), ShapeError),
    "negative padding of a convolution": (
        lambda d, x: F.conv2d(dl.ones(1, 1, 5, 5, device=d), dl.ones(1, 1, 3, 3, device=d), padding=-1),
        ArgumentError,
    ),
    "window larger than the image": (
        lambda d, x: F.max_pool2d(dl.ones(1, 1, 2, 2, device=d), 3),
        ShapeError,
    ),
    "stride 0": (lambda d, x: F.max_pool2d(dl.ones(1, 1, 5, 5, device=d), 2, 0), ArgumentError),
    "split that does not add up": (lambda d, x: x.split([3, 3]), Dl4allError),
    "topk of more than there are": (lambda d, x: x.topk(6), ArgumentError),
    "inner sizes": (lambda d, x: x @ x, ShapeError),
    "mixed dtypes": (lambda d, x: x @ x.T.int(), DTypeError),
    "put beyond the end": (lambda d, x: x.clone().__setitem__(9, 1.0), ArgumentError),
    "masked by another shape": (lambda d, x: x.masked_fill(dl.ones(3, device=d) > 0, 0.0), ShapeError),
}


def _use_and_wait(use: Use, device: str, x: dl.Tensor) -> None:
    """Kernels check indices: whoever waits next raises what they found."""
    use(device, x)
    dl.synchronize(device)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_arguments_are_refused(name: str, device: str) -> None:
    use, error = HOSTILE[name]
    values = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    x = dl.tensor(values, device=device)
    with pytest.raises(error, match=r"\["):
        _use_and_wait(use, device, x)
    np.testing.assert_array_equal(x.numpy(), values)
