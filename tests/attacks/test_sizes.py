"""Sizes, counts and steps that cannot be: every device gives the same result or typed error, at once."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, OutOfMemoryError, ShapeError
from tests.conftest import DEVICES, REPOSITORY, _problem
from tests.support.forked_process import run_forked
from tests.support.subcases import FULL, each

LARGE = 2**32 + 3
SHORT, LONG = ("2", "0.1"), ("0", "1")
"""How many cases of each function are tried, 0 for all, and the share of the functions."""


def test_every_function_refuses_hostile_numbers_alike() -> None:
    """In a process of its own, whose memory is limited; one call that does not end ends it."""
    usual = DEVICES if FULL else tuple(name for name in DEVICES if "kompute" not in name)
    devices = ",".join(name for name in usual if not _problem(name))
    done = run_forked(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.support.hostile_calls",
            devices,
            *(LONG if FULL else SHORT),
        ],
        cwd=REPOSITORY,
        timeout=1800 if FULL else 120,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, "\n".join([*lines[-3:], done.stderr[-2000:]])
    assert not [line for line in lines if line.startswith("fault:")]
    tried, called = int(lines[-1].split()[1]), sum(line.startswith("at ") for line in lines)
    assert tried > (15_000 if FULL else 100)
    assert called > 20 * sum(line.startswith("no call of") for line in lines)


REDUCTIONS: dict[str, tuple[Callable[[Any], Any], float | None]] = {
    "sum": (lambda x: x.sum(), 3.0 * LARGE),
    "mean": (lambda x: x.mean(), 1.5),
    "amax": (lambda x: x.amax(), 2.0),
    "amin": (lambda x: x.amin(0).sum(), 3.0),
    "argmax": (lambda x: x.argmax(), 1),
    "argmin along the repeated axis": (lambda x: x.argmin(0).sum(), 0),
    "max": (lambda x: x.max(0).values.sum(), 3.0),
    "norm": (lambda x: x.norm(), math.sqrt(5.0 * LARGE)),
    "norm 3": (lambda x: x.norm(3), (9.0 * LARGE) ** (1 / 3)),
    "norm 0": (lambda x: x.norm(0), 2.0 * LARGE),
    "logsumexp": (lambda x: x.logsumexp((0, 1)), math.log((math.e + math.e**2) * LARGE)),
    "var": (lambda x: x.var(), 0.25),
    "std": (lambda x: x.std(), 0.5),
    "prod": (lambda x: (x - 3).prod(0).prod() if x.numel() < 99 else x[:, :1].prod(), 1.0),
    "any": (lambda x: x.any(), True),
    "all": (lambda x: x.all(), True),
    "count_nonzero": (lambda x: x.count_nonzero(), 2 * LARGE),
    "nansum": (lambda x: x.nansum(), 3.0 * LARGE),
    "nanmean": (lambda x: x.nanmean(), 1.5),
    "matmul": (lambda x: x.T @ x, None),
}


@each("name", REDUCTIONS)
def test_repeated_elements_are_counted(name: str, device: str) -> None:
    """Rows [1, 2], more than 2^32 of them."""
    x = dl.tensor([[1.0, 2.0]], device=device).expand(LARGE, 2)
    result, expected = REDUCTIONS[name][0](x), REDUCTIONS[name][1]
    if expected is None:
        assert np.allclose(result.numpy(), np.array([[1, 2], [2, 4]]) * float(LARGE))
    else:
        assert result.item() == pytest.approx(expected, rel=1e-5)


def test_gradient_of_repeated_elements(device: str) -> None:
    x = dl.tensor([[1.0, 2.0]], device=device, requires_grad=True)
    x.expand(2**32, 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0**32, 2.0**32]]
    x.grad = None
    (x.expand(2**32, 2).norm() + x.expand(2**32, 2).amax() + x.expand(2**40, 2).mean()).backward()
    assert np.allclose(x.grad.numpy(), 65536 / math.sqrt(5) * np.array([1, 2]) + [0.5, 1.5])


LARGE_VIEWS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x.contiguous(),
    "add": lambda x: x + 1,
    "compare": lambda x: x > 0.5,
    "softmax": lambda x: x.softmax(0),
    "cumsum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(),
    "median": lambda x: x.median(),
    "quantile": lambda x: x.quantile(0.5),
    "argwhere": lambda x: dl.argwhere(x),
    "unique": lambda x: x.unique(),
    "tolist": lambda x: x.tolist(),
    "outer": lambda x: dl.outer(x, x),
    "equal": lambda x: dl.allclose(x, x),
}


@each("name", LARGE_VIEWS)
def test_what_takes_each_element_says_so(name: str, device: str) -> None:
    x = dl.ones(1, device=device).expand(2**40)
    with pytest.raises((OutOfMemoryError, ArgumentError)):
        LARGE_VIEWS[name](x)


def test_views_and_copies_of_large_views(device: str) -> None:
    x = dl.ones(1, device=device).expand(2**40)
    assert x.numpy().shape == (2**40,)
    assert x[2**39 : 2**39 + 2].tolist() == [1.0, 1.0]
    assert x.gather(0, dl.tensor([0, 2**40 - 1], device=device)).tolist() == [1.0, 1.0]
    with pytest.raises(ArgumentError, match="share memory"):
        x.add_(1)
    with pytest.raises(OutOfMemoryError):
        x.to("float16")
    for name in {"cpu", "vulkan:0"} - {device}:
        if not _problem(name):
            with pytest.raises(OutOfMemoryError):
                x.to(name)
    with pytest.raises(ArgumentError, match="2\\^60"):
        x.expand(2**30, 2**40)
    with pytest.raises(ArgumentError, match="2\\^60"):
        x.unsqueeze(1) * x


def test_windows_beyond_32_bits(device: str) -> None:
    images, weight = dl.ones(1, 1, 3, 3, device=device), dl.full((1, 1, 1, 1), 2.0, device=device)
    conv2d = dl.nn.functional.conv2d
    assert conv2d(images, weight, dilation=2**32 + 1).sum().item() == 18.0
    assert conv2d(images, weight, stride=2**32 + 1).tolist() == [[[[2.0]]]]
    with pytest.raises(ArgumentError):
        conv2d(images, weight, dilation=2**63)
    with pytest.raises(ShapeError):
        conv2d(images, weight.expand(1, 1, 3, 3), dilation=2**31)
    with pytest.raises((OutOfMemoryError, ArgumentError)):
        conv2d(images, weight, padding=2**31, stride=2**31)


@each("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_numbers_do_not_wrap(dtype: str, device: str) -> None:
    most = int(np.iinfo(dtype).max)
    x = dl.zeros(2, dtype=dtype, device=device)
    mask = dl.tensor([True, False], device=device)
    uses: tuple[Callable[[], Any], ...] = (
        lambda: dl.full((2,), most + 1, dtype=dtype, device=device),
        lambda: x.fill_(most + 1),
        lambda: x.masked_fill(mask, most + 1),
        lambda: dl.nn.functional.pad(x, (1, 1), value=most + 1),
        lambda: x.clamp(max=most + 1),
        lambda: x + (most + 1),
        lambda: dl.tensor([0, most + 1], dtype=dtype, device=device),
        lambda: x.new_full((2,), float("nan")),
        lambda: dl.arange(most, most + 2, dtype=dtype, device=device),
    )
    for use in uses:
        with pytest.raises((ArgumentError, dl.errors.DTypeError)):
            use()
    assert dl.full((2,), most, dtype=dtype, device=device).tolist() == [most, most]
    assert x.tolist() == [0, 0]
