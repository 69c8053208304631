"""Products of 8-bit integers: exact on every device, by each instruction of this processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import DTypeError, ShapeError, TooLargeError
from dl4all.host_kernels.linalg import integer_products
from dl4all.ops.linalg.integer_product import ROWS, TILES, integer_product
from dl4all.runtime.cpu.llvm import provider
from dl4all.scheduler import fallback
from tests.conftest import need
from tests.support.subcases import each

SHAPES = [  # rows, columns, terms: tiles and their edges, vectors and their rest
    (1, 1, 1), (1, 9, 64), (3, 5, 7), (4, 8, 16), (5, 33, 67), (8, 64, 128), (9, 4, 63), (33, 31, 200),
    (65, 67, 131), (64, 128, 256), (2, 300, 1021), (0, 3, 4), (3, 0, 4), (3, 2, 0),
]  # fmt: skip
DTYPES = ("int8", "uint8")


def operands(m: int, n: int, k: int, dtype: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(m * n + k)
    a = rng.integers(-128, 128, (m, k)).astype(np.int8).view(dtype)
    b = rng.integers(-128, 128, (n, k)).astype(np.int8)
    if a.size > 2:
        a.flat[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
        b.flat[:2] = -128, 127
    return a, b


def expected(a: Any, b: Any) -> Any:
    return a.astype(np.int64) @ b.T.astype(np.int64)


@each("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_exact(shape: tuple[int, int, int], dtype: str, device: str) -> None:
    a, b = operands(*shape, dtype)
    with fallback.policy("error"):
        result = integer_product(dl.tensor(a, device=device), dl.tensor(b, device=device))
    assert result.dtype == dl.int32
    np.testing.assert_array_equal(result.numpy(), expected(a, b))


@pytest.mark.parametrize("dtype", DTYPES)
def test_devices_without_the_instruction(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    for shaders in (ROWS, TILES):
        for key in list(shaders):
            monkeypatch.setitem(shaders, key, shaders[(*key[:-1], False)])
    for shape in SHAPES:
        left, right = operands(*shape, dtype)
        result = integer_product(dl.tensor(left, device="vulkan:0"), dl.tensor(right, device="vulkan:0"))
        np.testing.assert_array_equal(result.numpy(), expected(left, right))


@each("name", [*(integer_products.multiplications() if provider.available() else ()), "numpy"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_instruction(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "numpy":
        monkeypatch.setattr(provider, "enabled", False)
    else:
        found = integer_products.multiplications()
        monkeypatch.setattr(integer_products, "multiplications", lambda: {name: found[name]} | found)
    for shape in SHAPES:
        dl.device("cpu").plans.clear()
        a, b = operands(*shape, dtype)
        result = integer_product(dl.tensor(a, device="cpu"), dl.tensor(b, device="cpu"))
        np.testing.assert_array_equal(result.numpy(), expected(a, b))
    dl.device("cpu").plans.clear()


def test_sums_of_extremes(device: str) -> None:
    k = 4096
    for dtype, extreme in (("int8", -128), ("uint8", 255)):
        a = dl.full((2, k), extreme, dtype=dtype, device=device)
        b = dl.full((3, k), -128, dtype="int8", device=device)
        assert integer_product(a, b).tolist() == [[extreme * -128 * k] * 3] * 2


def test_gaps_and_offsets(device: str) -> None:
    a, b = operands(12, 11, 70, "int8")
    mine = integer_product(dl.tensor(a, device=device)[1::2, 3:68], dl.tensor(b.T, device=device).T[2:, 3:68])
    np.testing.assert_array_equal(mine.numpy(), expected(a[1::2, 3:68], b[2:, 3:68]))


def test_bad_use(device: str) -> None:
    a, b = (dl.ones(2, 3, dtype="int8", device=device) for _ in range(2))
    with pytest.raises(DTypeError, match="expected int8 or uint8 by int8, got float32 and int8"):
        integer_product(a.float(), b)
    with pytest.raises(DTypeError, match="got int8 and uint8"):
        integer_product(a, b.to("uint8"))
    for other in (b[:, :2], b[0]):
        with pytest.raises(ShapeError, match=r"expected shapes \(m, k\) and \(n, k\)"):
            integer_product(a, other)


@pytest.mark.vulkan
def test_more_rows_than_a_grid_has() -> None:
    a = dl.ones(1, 16, dtype="int8", device="vulkan:0").expand(4 * 65535 + 1, 16)
    with pytest.raises(TooLargeError, match="262141 rows by 1 are more than"):
        integer_product(a, dl.ones(1, 16, dtype="int8", device="vulkan:0"))
