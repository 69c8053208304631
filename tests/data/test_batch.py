"""collate: what it stacks, keeps and refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.data import DataLoader, collate
from dl4all.errors import ArgumentError, DTypeError


def test_batches_of_tuples_dicts_and_numbers() -> None:
    samples = [{"x": np.full(3, i, np.float32), "pair": (i, float(i))} for i in range(4)]
    (batch,) = DataLoader(samples, batch_size=4, device="cpu")  # a list is a data set too
    assert batch["x"].shape == (4, 3)
    assert batch["pair"][0].dtype == dl.int64
    assert batch["pair"][1].dtype == dl.float32


def test_texts_stay_a_list() -> None:
    """As in PyTorch, on a device too."""
    samples = [("a", np.ones(2, np.float32), b"x"), ("bcd", np.zeros(2, np.float32), b"yz")]
    for place in (None, "cpu"):
        ((texts, values, raw),) = DataLoader(samples, batch_size=2, device=place)
        assert texts == ["a", "bcd"]
        assert raw == [b"x", b"yz"]
        assert values.tolist() == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("samples", [[1, 2.5], [1.5, 2]])
def test_numbers_among_which_one_is_a_float(samples: list[Any]) -> None:
    assert collate(samples).dtype == np.float32
    assert collate(samples).tolist() == samples


def test_what_a_function_makes_a_list_stays_one() -> None:
    (batch,) = DataLoader([1, 2], 2, collate_fn=lambda samples: [np.array(samples), "x"], device="cpu")
    assert isinstance(batch, list)
    assert batch[0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([], ArgumentError, "expected at least one sample"),
        (
            [np.ones(2), np.ones(2), np.ones(3)],
            ArgumentError,
            r"sample 2 of the batch has shape \(3,\), the f",
        ),
        ([(1, 2), (1,)], ArgumentError, "sample 1 of the batch has 1 items, the first 2"),
        ([(1,), (1, 2)], ArgumentError, "sample 1 of the batch has 2 items, the first 1"),
        ([(1, (2, 3)), (1, (2,))], ArgumentError, r"sample 1 of the batch, at \[1\], has 1 items"),
        (
            [{"a": 1}, {"a": 1}, {"b": 1}],
            ArgumentError,
            r"sample 2 .* has the keys \['b'\], the first \['a'\]",
        ),
        ([{"a": 1}, {"a": 1, "b": 2}], ArgumentError, r"the keys \['a', 'b'\]"),
        (
            [{"a": [1, np.ones(2)]}, {"a": [1, np.ones(3)]}],
            ArgumentError,
            r"at \['a'\]\[1\], has shape \(3,\)",
        ),
        ([(1, 2), 3], ArgumentError, "sample 1 of the batch has type int, the first type tuple"),
        ([1, "a"], ArgumentError, "has type str, the first type int"),
        ([1, None], DTypeError, "sample 1 of the batch is None, which is no array of numbers"),
        ([{"x": None}], DTypeError, r"sample 0 of the batch, at \['x'\], is None"),
        ([object()], DTypeError, "is type object"),
        ([2**70], DTypeError, "is type int"),
    ],
)
def test_samples_that_make_no_batch(samples: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=rf"^\[collate\] .*{message}"):
        collate(samples)
