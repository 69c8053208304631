"""float16 on devices: converted to the last bit as NumPy does, computed with in float32, not on the host."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from tests.support.operands import LAYOUTS

EVERY = np.arange(65536, dtype=np.uint32).astype(np.uint16).view(np.float16)


def same(found: Any, expected: Any) -> None:
    """Equal, with the signs of zeros, and nan where nan is."""
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[there], np.signbit(expected)[there])


def test_every_half_becomes_the_float_it_is(device: str) -> None:
    same(dl.tensor(EVERY, device=device).float().numpy(), EVERY.astype(np.float32))


def test_floats_are_rounded_to_the_nearest_half(device: str) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 300_001, dtype=np.uint64).astype(np.uint32)
    finite = EVERY[np.isfinite(EVERY)].astype(np.float32)
    ties = (finite[:-1] + finite[1:]) / 2
    edges = [
        65519.99,
        65520,
        -65520,
        65504,
        2**-25,
        np.nextafter(np.float32(2**-25), 1),
        3 * 2**-25,
        np.inf,
        0,
        -0.0,
    ]
    floats = np.concatenate([bits.view(np.float32), ties, np.array(edges, np.float32)])
    with np.errstate(all="ignore"):
        expected = floats.astype(np.float16)
    same(dl.tensor(floats, device=device).half().numpy(), expected)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (0, 3), (2, 3, 5)])
def test_layouts(layout: Any, shape: tuple[int, ...], device: str) -> None:
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float16)
    tensor, elements = layout(values, device)
    same(tensor.float().numpy(), np.asarray(elements, np.float32))
    same(tensor.contiguous().clone().numpy(), np.ascontiguousarray(elements).reshape(shape))
    same((tensor + 1).numpy(), (np.asarray(elements, np.float32) + 1).astype(np.float16))


def test_other_dtypes(device: str) -> None:
    numbers = np.array([0, 1, 255, 3, 100], np.uint8)
    for dtype in ("int32", "uint8", "bool", "int64", "float64"):
        array = numbers.astype(dtype)
        same(dl.tensor(array, device=device).half().numpy(), array.astype(np.float16))
        back = dl.tensor(numbers.astype(np.float16), device=device).to(dtype)
        np.testing.assert_array_equal(back.numpy(), numbers.astype(np.float16).astype(dtype))


def test_nothing_goes_by_way_of_the_host(device: str, caplog: pytest.LogCaptureFixture) -> None:
    """A small network, forward and backward; sums have float32's digits."""
    if device == "cpu":
        pytest.skip("the CPU is the host")
    rng = np.random.default_rng(2)
    x, w, v = (rng.standard_normal(s).astype(np.float16) for s in ((5, 3, 6, 6), (4, 3, 3, 3), (4, 7)))
    given = [dl.tensor(a, device=device).requires_grad_() for a in (x, w, v)]
    with caplog.at_level(logging.WARNING, "dl4all"):
        hidden = dl.nn.functional.conv2d(given[0], given[1], padding=1).relu().mean((2, 3))
        loss = dl.nn.functional.cross_entropy(hidden @ given[2], dl.tensor([0, 6, 3, 1, 2], device=device))
        loss.backward()
        many = dl.full((70_001,), 0.5, dtype="float16", device=device).sum()
    assert not caplog.records
    assert str(loss.dtype) == "float16"
    wide = [dl.tensor(a.astype(np.float32), device="cpu").requires_grad_() for a in (x, w, v)]
    hidden = dl.nn.functional.conv2d(wide[0], wide[1], padding=1).relu().mean((2, 3))
    dl.nn.functional.cross_entropy(hidden @ wide[2], dl.tensor([0, 6, 3, 1, 2], device="cpu")).backward()
    for half, full in zip(given, wide, strict=True):
        assert str(half.grad.dtype) == "float16"
        np.testing.assert_allclose(half.grad.numpy(), full.grad.numpy(), rtol=2e-2, atol=2e-3)
    assert many.item() == np.float16(35_000.5)
