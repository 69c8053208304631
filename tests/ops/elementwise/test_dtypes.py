"""Elementwise ops with integers and bools on devices, and the limits of conversions."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest

import dl4all as dl
from dl4all.scheduler import fallback
from tests.support.compare_elementwise import (
    assert_equals_torch,
    check_elementwise,
    torch,
    with_number,
)
from tests.support.operands import NDArray, generator, numbers

ARITHMETIC = ("add", "sub", "mul", "maximum", "minimum", "remainder", "fmod", "floor_divide")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")


CAST_DTYPES = ("float32", "int32", "bool", "uint8")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 127, 1000])
def test_integers_and_bools_stay_on_the_device(
    count: int, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    fallback.reset()
    rng = generator(count)
    a, b = (rng.integers(-9, 9, count).astype(np.int32) for _ in range(2))
    b[b == 0] = 4
    flags = [rng.integers(0, 2, count).astype(bool) for _ in range(2)]
    small = [rng.integers(0, 256, count).astype(np.uint8) for _ in range(2)]
    with caplog.at_level(logging.WARNING, logger="dl4all"):
        for name in (*ARITHMETIC, *BITWISE, *COMPARISONS):
            check_elementwise(device, getattr(dl, name), getattr(torch, name), a, b)
            check_elementwise(device, getattr(dl, name), with_number(getattr(torch, name)), a, 3)
        for name in (*BITWISE, *COMPARISONS):
            check_elementwise(device, getattr(dl, name), getattr(torch, name), *flags)
            check_elementwise(device, getattr(dl, name), getattr(torch, name), *small)
        for name in ("abs", "sign", "neg", "clone", "bitwise_not", "logical_not", "floor", "round"):
            check_elementwise(device, getattr(dl, name), getattr(torch, name), a)
        check_elementwise(device, dl.bitwise_not, torch.bitwise_not, flags[0])
        check_elementwise(device, dl.bitwise_not, torch.bitwise_not, small[0])
        check_elementwise(device, dl.where, torch.where, flags[0], a, b)
        check_elementwise(device, dl.where, torch.where, *flags, flags[0])
        check_elementwise(device, dl.where, torch.where, flags[0], *small)
        check_elementwise(device, dl.clamp, torch.clamp, a, -2, 3)
        check_elementwise(device, dl.add, torch.add, a, a.astype(np.float32))
        check_elementwise(device, dl.mul, torch.mul, flags[0], a.astype(np.float32))
        sources: tuple[NDArray, ...] = (a, a.astype(np.float32) / 2, flags[0], small[0])
        for source, target in itertools.product(sources, CAST_DTYPES):
            _check_cast(device, source, target)
    assert [record.getMessage() for record in caplog.records] == []


def _check_cast(device: str, source: NDArray, dtype: str) -> None:
    torch_dtype = getattr(torch, dtype)
    check_elementwise(device, lambda x: dl.ops.cast(x, dtype), lambda x: x.to(torch_dtype), source)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_gradient_of_a_cast_has_the_operand_s_dtype(dtype: str, device: str) -> None:
    torch_dtype = getattr(torch, dtype)
    x = numbers(generator(dtype), (3, 5))
    check_elementwise(
        device, lambda x: (dl.ops.cast(x, dtype) * 2).float(), lambda x: (x.to(torch_dtype) * 2).float(), x
    )


def test_int32_overflow_and_division_by_zero(device: str) -> None:
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    a = np.array([low, low, high, high, low, 7, -7, 7, -7], np.int32)
    b = np.array([1, -1, -1, high, low, 2, 2, -2, -2], np.int32)
    for name in ("remainder", "fmod"):
        check_elementwise(device, getattr(dl, name), getattr(torch, name), a[2:], b[2:])
    for name in ("add", "sub", "mul", "eq", "lt"):
        check_elementwise(device, getattr(dl, name), getattr(torch, name), a, b)
    zeros = dl.tensor(np.zeros(2, np.int32), device=device)
    for divide in (dl.remainder, dl.fmod, dl.floor_divide):  # as NumPy; PyTorch raises
        assert divide(dl.tensor(np.array([7, -7], np.int32), device=device), zeros).tolist() == [0, 0]


def test_cast_of_floats_beyond_int32(device: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 2.9, -2.9, 2147483520.0], np.float32)
    low = np.iinfo(np.int32).min
    result = dl.ops.cast(dl.tensor(x, device=device), "int32")
    if device != "cpu":
        assert result.tolist() == [low] * 5 + [2, -2, 2147483520]
    assert dl.ops.cast(dl.tensor(x[:1], device=device), "bool").tolist() == [True]


def test_bools_in_strided_views(device: str) -> None:
    flags = generator("bytes").integers(0, 2, (7, 9)).astype(bool)
    x, y = dl.tensor(flags, device=device), torch.from_numpy(flags)
    for part in (np.s_[1:], np.s_[:, 2:5], np.s_[::2, ::3], np.s_[3], np.s_[:, 1]):
        assert_equals_torch(x[part].clone(), y[part])
        assert_equals_torch(dl.logical_not(x[part]), ~y[part])
        assert_equals_torch(dl.where(x[part], 1.0, -1.0), torch.where(y[part], 1.0, -1.0))
    assert_equals_torch(x.T.clone(), y.T)
