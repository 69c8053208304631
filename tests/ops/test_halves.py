"""Every op on floats of 16 bits, against float64 of the rounded operands: rounded once, at the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.errors import DTypeError
from dl4all.ops.core.dtypes import BFLOAT16, FLOAT32, HALVES, finfo, promoted
from dl4all.ops.core.kernels import launch
from dl4all.ops.core.op import REGISTRY, Example, Op
from dl4all.scheduler import fallback
from tests.conftest import need
from tests.support.operands import CASES, arrays, contiguous, reference, transposed
from tests.support.subcases import each

Array = npt.NDArray[Any]
NAMES = sorted(dtype.name for dtype in HALVES)
TOLERANCE = {
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
}  # of the largest element: one rounding, and sums in float32
OVERFLOWS = {("prod", (70001,)), ("recurrent_sequence_backward", (12, 5))}  # beyond float16


def close(result: dl.Tensor, expected: Array, dtype: str) -> None:
    got, want = result.detach().cpu().float().numpy().astype(np.float64), np.asarray(expected, np.float64)
    assert got.shape == want.shape
    finite = np.isfinite(want) & (np.abs(want) < float(finfo(dtype).max))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    if finite.any():
        scale = max(float(np.abs(want[finite]).max()), float(finfo(dtype).tiny))
        assert np.abs(got[finite] - want[finite]).max() <= TOLERANCE[dtype] * scale


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("op", "case"), CASES, ids=str)
@each("dtype", NAMES)
def test_every_op(op: Op[...], case: Example, dtype: str, device: str) -> None:
    """With contiguous and transposed operands."""
    if (op.name, case.shapes[0]) in OVERFLOWS:
        pytest.skip("what it computes leaves the range")
    for layout in (contiguous, transposed):
        given = arrays(op, case, dtype)
        if any(a is not None and a.dtype.name not in (*NAMES, "bool") for a in given):
            return  # an op of integers
        expected = reference(op, list(given), **dict(case.arguments))
        tensors = [None if a is None else layout(a, device)[0] for a in given]
        with fallback.policy("error"):
            result = op(*tensors, **dict(case.arguments))
        close(result, expected, dtype)


SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)


def extremes(dtype: str) -> Array:
    """Twelve numbers: special ones, the largest, the smallest normal and the smallest of all."""
    info = finfo(dtype)
    ends = (info.max, -info.max, info.tiny, -info.tiny, info.smallest_subnormal)
    return np.array([*SPECIAL, *map(float, ends)], np.float32).astype(dtype)


def bits(x: Any) -> list[int]:
    """The patterns of elements; all that are nan count as one."""
    array = x.detach().cpu().numpy() if isinstance(x, dl.Tensor) else x
    return [-1 if np.isnan(np.float32(one)) else int(one.view(np.uint16)) for one in array.reshape(-1)]


@pytest.mark.parametrize("dtype", NAMES)
def test_extremes_keep_their_bits(dtype: str, device: str) -> None:
    """Through float32 and back, by kernels of any strides, of contiguous operands and of four at a time."""
    for size in (12, 11, 1):
        array = extremes(dtype)[:size]
        x = dl.tensor(array, device=device)
        for moved in (x.float().to(dtype), x.clone(), dl.cat([x, x])[size:], x.double().to(dtype)):
            assert moved.dtype == x.dtype
            assert bits(moved) == bits(array)
        twice = np.tile(array, (2, 1))
        assert bits(dl.tensor(twice, device=device).T.contiguous()) == bits(twice.T)
        assert bits(abs(x)) == bits(np.abs(array.astype(np.float32)).astype(dtype))
        places = np.arange(size)[::-1].copy()
        assert bits(x[dl.tensor(places, device=device)]) == bits(array[::-1])
        rows = dl.nn.functional.embedding(dl.tensor([1, 0], device=device), dl.tensor(twice, device=device))
        assert bits(rows) == bits(twice)


@pytest.mark.parametrize("dtype", NAMES)
def test_every_pattern_is_widened_and_rounded_as_numpy_does(dtype: str, device: str) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    wide = patterns.astype(np.float32)
    x = dl.tensor(patterns, device=device)
    np.testing.assert_array_equal(x.float().numpy(), wide)
    assert bits(x.float().to(dtype)) == bits(patterns)
    with np.errstate(all="ignore"):
        between = (wide[1:].astype(np.float64) + wide[:-1]) / 2  # ties, of which the even one is taken
        near = np.concatenate([between, between * (1 + 1e-4), between * (1 - 1e-4)]).astype(np.float32)
        assert bits(dl.tensor(near, device=device).to(dtype)) == bits(near.astype(dtype))


@pytest.mark.parametrize("dtype", NAMES)
def test_every_nan_stays_one(dtype: str, device: str) -> None:
    """Also with all bits in the lower half, or where rounding would carry into the sign."""
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    for array in (nans, np.tile(nans, 4)):
        assert np.isnan(dl.tensor(array, device=device).to(dtype).float().numpy()).all()


@each("order", list(itertools.permutations(("float32", *NAMES))))
def test_dtypes_in_turn_use_no_kernel_of_another_one(order: tuple[str, ...], device: str) -> None:
    """Kernels, plans and compiled graphs are kept by the dtypes of all operands."""
    calls: list[Callable[[Any, Any], Any]] = [
        lambda x, y: (x + y).relu(), lambda x, y: x @ y.T, lambda x, y: x.sum(1), lambda x, y: x.amax(0),
        lambda x, y: x.T + 1, lambda x, y: (x * y).softmax(1),
    ]  # fmt: skip
    compiled: Any = dl.compile(lambda x, y: (x * y + x).tanh().sum(0))
    rng = np.random.default_rng(3)
    for dtype in (*order, *order):
        a, b = (rng.standard_normal((12, 8)).astype(dtype) for _ in range(2))
        x, y = dl.tensor(a, device=device), dl.tensor(b, device=device)
        one, other = (dl.tensor(z.astype(np.float64), device="cpu") for z in (a, b))
        for call in (*calls, compiled):
            result = call(x, y)
            assert result.dtype == np.dtype(dtype)
            close(result, call(one, other).numpy(), dtype if dtype != "float32" else "float16")


def test_operands_of_two_dtypes(device: str) -> None:
    """Floats of 16 bits beside float32, which each binding of a kernel reads as they are, and integers."""
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, 7, 12))
    for left, right in itertools.product((*NAMES, "float32", "int32"), repeat=2):
        x, y = (dl.tensor(z * 3, device="cpu").to(t) for z, t in ((a, left), (b, right)))
        result = x.to(device) * y.to(device)
        assert result.dtype == dl.promote_types(x.dtype, y.dtype)
        if result.dtype != np.int32:
            wide = x.double().numpy() * y.double().numpy()
            close(result, wide, result.dtype.name if result.dtype in HALVES else "float16")


def test_promotion() -> None:
    assert promoted(BFLOAT16, np.dtype("float16")) == FLOAT32
    assert dl.promote_types(dl.bfloat16, dl.int64) == dl.bfloat16
    assert dl.promote_types("bfloat16", "float64") == dl.float64
    assert (dl.tensor([1.5], dtype=dl.bfloat16) * 2.0).dtype == dl.bfloat16
    assert (dl.tensor([1], dtype="int64") + dl.tensor([1.0], dtype="bfloat16")).dtype == dl.bfloat16
    assert dl.result_type(dl.ones(2, dtype=dl.bfloat16), 3.0) == dl.bfloat16
    assert dl.finfo(dl.bfloat16).eps == 2.0**-7
    assert dl.can_cast(dl.bfloat16, dl.float16)
    with pytest.raises(DTypeError, match="expected numbers of one dtype, got bfloat16, float32"):
        dl.ones(2, 2, dtype=dl.bfloat16) @ dl.ones(2, 2)


UNARY: list[Callable[[Any], Any]] = [
    lambda x: x.exp(), lambda x: x @ x.T, lambda x: x.sum(1), lambda x: x.T.softmax(0), lambda x: x + 1,
]  # fmt: skip


def test_without_16_bit_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands are widened and the result is rounded, by kernels that need no feature."""
    need("vulkan:0")
    monkeypatch.setattr(launch, "stores_halves", lambda device: False)
    for module in ("op", "elementwise.declare", "memory.conversion"):
        path = f"dl4all.ops.{'core.' if module == 'op' else ''}{module}.stores_halves"
        monkeypatch.setattr(path, lambda device: False)
    rng = np.random.default_rng(7)
    for dtype in NAMES:
        a = rng.standard_normal((13, 8)).astype(dtype)
        x, wide = dl.tensor(a, device="vulkan:0"), dl.tensor(a.astype(np.float64), device="cpu")
        x.device.plans.clear()
        with fallback.policy("error"):
            for call in UNARY:
                close(call(x), call(wide).numpy(), dtype)
        x.device.plans.clear()


@pytest.mark.parametrize("dtype", NAMES)
def test_long_sums_are_rounded_once(dtype: str, device: str) -> None:
    """Of more terms than one launch takes: nearly all are float64's sums, rounded."""
    rng = np.random.default_rng(9)
    a, b = (rng.uniform(0.0, 0.02, shape).astype(dtype) for shape in ((9, 60_000), (60_000, 7)))
    result = dl.tensor(a, device=device) @ dl.tensor(b, device=device)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    rounded = expected.astype(np.float32).astype(dtype).astype(np.float64)
    assert (result.double().cpu().numpy() == rounded).mean() > 0.9


def test_the_bytes_of_a_network_are_half(device: str) -> None:
    net = dl.nn.Sequential(dl.nn.Linear(12, 7), dl.nn.LayerNorm(7), dl.nn.Linear(7, 3)).to(device)
    before = sum(p.storage.nbytes for p in net.parameters())
    out = net.bfloat16()(dl.randn(5, 12, device=device).bfloat16())
    assert out.dtype == dl.bfloat16
    assert sum(p.numel() * p.dtype.itemsize for p in net.parameters()) * 2 == before
    out.sum().backward()
    assert {p.grad.dtype for p in net.parameters() if p.grad is not None} == {dl.bfloat16}


def test_registry_says_which_kernels_read_16_bits() -> None:
    """The others are widened before they run; docs/ops.md lists them."""
    widened = {op.name for op in REGISTRY.values() if op.kernel is not None and op.kernel.halves == "widened"}
    assert widened == {
        "index_backward", "recurrent_sequence", "recurrent_sequence_backward", "take_rows_backward",
    }  # fmt: skip


@pytest.mark.parametrize("dtype", NAMES)
def test_mantissas_keep_the_dtype(dtype: str, device: str) -> None:
    mantissa, exponent = dl.frexp(dl.tensor([6.0, -0.5, 0.0], device=device).to(dtype))
    assert mantissa.dtype == np.dtype(dtype)
    assert exponent.dtype == np.int32
    assert mantissa.float().tolist() == [0.75, -0.5, 0.0]
