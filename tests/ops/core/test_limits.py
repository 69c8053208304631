"""What is too large for a kernel, a view or memory is refused, and nothing wraps."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, OutOfMemoryError, TooLargeError
from dl4all.ops.core import limits
from dl4all.ops.core.kernels.launch import pack
from dl4all.ops.core.op import REGISTRY
from dl4all.ops.core.tensor_base import check_repeated
from dl4all.ops.indexing.indices import Indices
from dl4all.scheduler.device.programs import Launch
from tests.conftest import need


def test_push_constants_do_not_wrap() -> None:
    assert pack(2**32 - 1, -(2**31), 1.5) == struct.pack("<Iif", 2**32 - 1, -(2**31), 1.5)
    assert pack(int(np.int64(7)), True) == struct.pack("<II", 7, 1)
    assert pack(1e300, -1e300, 3) == struct.pack("<ffI", math.inf, -math.inf, 3)
    for number in (2**32, -(2**31) - 1, 2**64):
        with pytest.raises(TooLargeError, match=str(number)):
            pack(1, 0.5, number)
    with pytest.raises(TooLargeError):
        pack(1e300, 2**32)


@pytest.mark.vulkan
def test_specialization_constants_do_not_wrap() -> None:
    need("vulkan:0")
    device = dl.device("vulkan:0")
    x = dl.ones(4, device=device)
    kernel = REGISTRY["exp"].kernel
    assert kernel is not None
    shader = kernel.shaders[0]
    for constant in (2**32, -1):
        with pytest.raises(TooLargeError, match="more than 32 bits"):
            device.launch(Launch(shader, (1, 1, 1), b"", (constant,)), x.storage, x.storage)


def test_indices_do_not_wrap() -> None:
    assert Indices([2**31, -(2**31) - 1]).array.tolist() == [2**31, -(2**31) - 1]
    assert Indices([1, -1]).array.dtype == np.int32
    with pytest.raises(TooLargeError, match="32 bits"):
        Indices([2**31]).on(dl.ones(1))


def test_integers() -> None:
    assert limits.integer("f", "n", np.int32(3)) == 3
    for value in (2.5, True, "3", None, math.nan):
        with pytest.raises(ArgumentError, match=r"\[f\] n must be an int"):
            limits.integer("f", "n", value)
    for value in (2**63, -1):
        with pytest.raises(ArgumentError, match=r"at (most|least)"):
            limits.integer("f", "n", value, least=0)


def test_real_numbers() -> None:
    assert limits.real("f", "x", 2) == 2.0
    assert limits.real("f", "x", -(2**2000)) == -math.inf
    for value in ("many", None, 1j):
        with pytest.raises(ArgumentError, match="must be a number"):
            limits.real("f", "x", value)
    for value in (math.inf, math.nan, 2**2000):
        with pytest.raises(ArgumentError, match="finite"):
            limits.real("f", "x", value, finite=True)


def test_shapes() -> None:
    assert limits.check_shape("f", (2**40, 0)) == (2**40, 0)
    assert limits.check_view("f", (2**59,)) == (2**59,)
    for shape in ((2**48,), (0, 2**48), (2**24, 2**24)):
        with pytest.raises(ArgumentError, match="larger than any memory"):
            limits.check_shape("f", shape)
    with pytest.raises(ArgumentError):
        limits.check_view("f", (2**30, 2**30))


def test_views_that_repeat_elements() -> None:
    x = dl.ones(1, 3, device="cpu")
    check_repeated("f", x.expand(2**28, 3), x, 2**40)
    with pytest.raises(OutOfMemoryError, match=r"\[f\] a view of shape \(2147483648, 3\)"):
        check_repeated("f", x, x.expand(2**31, 3))


def test_no_memory_on_the_host() -> None:
    with pytest.raises(OutOfMemoryError, match=r"\[f\]"), limits.host_memory("f"):
        np.empty(2**50)
    with pytest.raises(ZeroDivisionError), limits.host_memory("f"):
        raise ZeroDivisionError
