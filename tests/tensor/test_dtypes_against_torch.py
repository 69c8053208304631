"""Properties, dtypes and creation of tensors, against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")


def test_properties() -> None:
    x = dl.zeros(3, 4, dtype="float16", device="cpu")
    y = torch.zeros(3, 4, dtype=torch.float16)
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda t: t.stride(), lambda t: t.t().stride(0), lambda t: t[1:].storage_offset(),
        lambda t: t.nelement(), lambda t: t.ndimension(), lambda t: t.itemsize,
        lambda t: t.is_complex(), lambda t: t.is_signed(),
    )  # fmt: skip
    for call in calls:
        assert call(x) == call(y)
    assert (dl.numel(x), dl.is_tensor(x), dl.is_tensor(1), dl.is_floating_point(x)) == (12, True, False, True)


def test_type_promotion() -> None:
    for first in ("bool", "uint8", "int8", "int64", "float16", "float64"):
        for second in ("bool", "int16", "int64", "float16", "float32"):
            one, other = getattr(torch, first), getattr(torch, second)
            assert f"torch.{dl.promote_types(first, second)}" == str(torch.promote_types(one, other))
            assert dl.can_cast(first, second) == torch.can_cast(one, other)
            pair = [torch.zeros(2, dtype=one), torch.zeros(2, dtype=other)]
            result = dl.result_type(dl.zeros(2, dtype=first), dl.zeros(2, dtype=second))
            assert f"torch.{result}" == str(torch.result_type(*pair))
    assert dl.finfo(dl.float32).eps == torch.finfo(torch.float32).eps
    assert dl.iinfo(dl.int32).max == torch.iinfo(torch.int32).max
    assert dl.result_type(1, 2.5) == np.dtype("float32")


def test_as_tensor_and_index_grids() -> None:
    array = np.ones((2, 3), np.float32)
    shared = dl.as_tensor(array, device="cpu")
    array[0, 0] = 5
    assert shared[0, 0].item() == 5
    assert dl.as_tensor(shared) is shared
    assert dl.as_tensor(shared, dtype="int64").dtype == np.dtype("int64")
    assert dl.asarray([1, 2], device="cpu").tolist() == [1, 2]
    assert shared.new_tensor([1, 2]).dtype == np.dtype("float32")
    assert shared.byte().dtype == np.dtype("uint8")
    for rows, columns, offset in ((3, 4, 0), (4, 3, -1), (3, 3, 2), (0, 3, 0)):
        for name in ("tril_indices", "triu_indices"):
            result, expected = (getattr(m, name)(rows, columns, offset) for m in (dl, torch))
            assert result.tolist() == expected.tolist()


INVALID: tuple[tuple[type[Exception], str, Callable[[Any], Any]], ...] = (
    (DTypeError, r"\[result_type\]", lambda x: dl.result_type(x, "a")),  # type: ignore[arg-type]
    (ShapeError, r"\[fill_diagonal_\]", lambda x: x[0].fill_diagonal_(1)),
    (ArgumentError, r"\[exponential_\]", lambda x: x.exponential_(0)),
    (ShapeError, r"\[sum_to_size\]", lambda x: x.sum_to_size(3, 3)),
)


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case[1])
def test_invalid_arguments(
    case: tuple[type[Exception], str, Callable[[Any], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DL4ALL_DEVICE", "cpu")
    error, message, call = case
    with pytest.raises(error, match=message):
        call(dl.tensor([[1.0, 2.0, 0.0, 3.0], [0.0, 1.0, 1.0, 0.0]], device="cpu"))
