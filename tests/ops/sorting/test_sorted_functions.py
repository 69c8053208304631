"""What users call: functions that sort, by kernels, against the CPU and PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.dtypes import DTYPES, kind_of
from dl4all.ops.sorting import placement
from dl4all.ops.sorting.placement import HOST_ELEMENTS
from dl4all.runtime.null.backend import NullBackend, describe
from dl4all.scheduler import fallback
from tests.support.operands import LAYOUTS
from tests.support.sortable import comparable, sortable

SIZES = ((), (1,), (0,), (3, 0, 2), (7, 13), (2, 131, 3), (5003,))

Function = Callable[[Any], Any]
SORTING: dict[str, Function] = {
    "sort": lambda x: x.sort(0 if x.ndim == 1 else -1),
    "sort descending": lambda x: x.sort(0, descending=True),
    "argsort": lambda x: x.argsort(0),
    "argsort descending": lambda x: x.argsort(-1, True),
    "topk": lambda x: x.topk(min(x.shape[0], 3) if x.shape else 1, 0),
    "topk smallest": lambda x: x.topk(min(x.shape[-1], 5) if x.shape else 1, -1, largest=False),
    "searchsorted": lambda x: dl.searchsorted(x.flatten().sort().values, x),
    "searchsorted right": lambda x: dl.searchsorted(x.flatten().sort().values, x, right=True),
    "searchsorted rows": lambda x: dl.searchsorted(x.sort().values, x),
}
OF_ELEMENTS: dict[str, Function] = {  # which raise where there are none
    "kthvalue": lambda x: x.kthvalue(1 if not x.shape else (x.shape[0] + 1) // 2, 0),
    "kthvalue keepdim": lambda x: x.kthvalue(1, -1, keepdim=True),
    "median": lambda x: x.median(),
    "median of rows": lambda x: x.median(-1),
    "median keepdim": lambda x: x.median(0, keepdim=True),
    "nanmedian": lambda x: x.nanmedian(),
    "nanmedian of rows": lambda x: x.nanmedian(-1),
}
COMPACTING: dict[str, Function] = {
    "nonzero": lambda x: x.nonzero(),
    "nonzero as tuple": lambda x: x.nonzero(as_tuple=True),
    "argwhere": lambda x: dl.argwhere(x),
    "masked_select": lambda x: x.masked_select(x.isnan() if kind_of(x.dtype) == "f" else x.bool()),
    "unique": lambda x: x.unique(),
    "unique with all": lambda x: x.unique(return_inverse=True, return_counts=True),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "unique_consecutive with all": lambda x: x.unique_consecutive(return_inverse=True, return_counts=True),
}
FUNCTIONS = {**SORTING, **OF_ELEMENTS, **COMPACTING}


@pytest.fixture
def by_kernels(device: str) -> Iterator[str]:
    """A device that sorts itself, and may not ask the host."""
    with fallback.policy("error"):
        yield device


def arrays(result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple) else (result,)
    return [part.numpy() for part in parts]


def check(function: Function, x: dl.Tensor, elements: Any) -> None:
    expected = function(dl.tensor(np.array(elements), device="cpu"))
    result = function(x)
    for mine, theirs in zip(arrays(result), arrays(expected), strict=True):
        assert mine.dtype == theirs.dtype
        mine, theirs = comparable(mine), comparable(theirs)
        np.testing.assert_array_equal(mine, theirs)
        if kind_of(mine.dtype) == "f":
            np.testing.assert_array_equal(np.signbit(mine), np.signbit(theirs))
    for part in result if isinstance(result, tuple) else (result,):
        assert part.is_contiguous()
        assert part.device is x.device


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes(name: str, by_kernels: str) -> None:
    for shape in SIZES:
        if 0 in shape and name in OF_ELEMENTS:
            continue
        x = sortable(shape or (1,), np.float32).reshape(shape)
        check(FUNCTIONS[name], dl.tensor(x, device=by_kernels), x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_layouts(name: str, layout: str, by_kernels: str) -> None:
    x, elements = LAYOUTS[layout](sortable((5, 37), np.float32), by_kernels)
    check(FUNCTIONS[name], x, elements)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_dtypes(name: str, dtype: np.dtype[Any], by_kernels: str) -> None:
    if name == "masked_select" and dtype not in (np.float32, np.int32, np.uint8, np.bool_):
        pytest.skip("there are no kernels that make the mask")
    # No kernel copies columns of these dtypes.
    shape = (201,) if dtype in (np.int8, np.int16) else (3, 67)
    x = sortable(shape, dtype)
    check(FUNCTIONS[name], dl.tensor(x, device=by_kernels), x)


def test_more_than_65536_elements(by_kernels: str) -> None:
    x = sortable((70001,), np.float32)
    tensor = dl.tensor(x, device=by_kernels)
    for name in ("sort", "topk", "median", "nonzero", "masked_select", "unique with all"):
        check(FUNCTIONS[name], tensor, x)


def test_against_torch(by_kernels: str) -> None:
    torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")
    x = sortable((3, 1031), np.float32)
    mine, theirs = dl.tensor(x, device=by_kernels), torch.from_numpy(x)
    for descending in (False, True):
        expected = torch.sort(theirs, dim=1, descending=descending, stable=True)
        result = mine.sort(1, descending)
        np.testing.assert_array_equal(result.values.numpy(), expected.values.numpy())
        np.testing.assert_array_equal(result.indices.numpy(), expected.indices.numpy())
    np.testing.assert_array_equal(mine.topk(9).values.numpy(), theirs.topk(9).values.numpy())
    np.testing.assert_array_equal(mine.nonzero().numpy(), theirs.nonzero().numpy())
    finite = np.nan_to_num(x)
    mine, theirs = dl.tensor(finite, device=by_kernels), torch.from_numpy(finite)
    for ours, others in zip(
        mine.unique(return_inverse=True, return_counts=True),
        torch.unique(theirs, return_inverse=True, return_counts=True),
        strict=True,
    ):
        np.testing.assert_array_equal(ours.numpy(), others.numpy())


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if kind_of(dtype) != "f"], ids=str)
def test_cumulative_sums_of_integers(dtype: np.dtype[Any], by_kernels: str) -> None:
    for shape, dim in (((), 0), ((1,), 0), ((513,), 0), ((3, 1031), 1), ((7, 13, 5), 1), ((0, 3), 0)):
        x = sortable(shape or (1,), dtype).reshape(shape)
        result = dl.cumsum(dl.tensor(x, device=by_kernels), dim)
        expected = np.cumsum(x.reshape(shape or (1,)), dim, np.int64).reshape(shape)
        assert result.dtype == np.int64
        np.testing.assert_array_equal(result.numpy(), expected)


def test_other_sums_of_integers(by_kernels: str) -> None:
    """As floats they are added by the kernel for floats; of an offset and in columns."""
    x = np.arange(-40, 51, dtype=np.int32).reshape(7, 13)
    tensor = dl.tensor(x, device=by_kernels)
    np.testing.assert_array_equal(tensor.T.cumsum(1).numpy(), x.T.cumsum(1))
    np.testing.assert_array_equal(tensor[3:].cumsum(0).numpy(), x[3:].cumsum(0))
    np.testing.assert_array_equal(tensor.cumsum(1, dtype="float32").numpy(), x.cumsum(1))


GRADIENTS: dict[str, Function] = {
    "sort": lambda x: x.sort(0, descending=True).values,
    "topk": lambda x: x.topk(2, 1).values,
    "kthvalue": lambda x: x.kthvalue(3).values,
    "median": lambda x: x.median(),
    "unique": lambda x: x.unique(),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "masked_select broadcast": lambda x: x[:, :1].masked_select(x > 0),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, by_kernels: str) -> None:
    """First and second derivatives equal those on the CPU, in which the elements are gathered."""
    x = np.random.default_rng(3).standard_normal((5, 7)).astype(np.float32)
    found = []
    for device in (by_kernels, "cpu"):
        tensor = dl.tensor(x, device=device, requires_grad=True)
        result = GRADIENTS[name](tensor * 2.0)
        steps = np.arange(1, result.numel() + 1, dtype=np.float32).reshape(result.shape)
        weights = dl.tensor(steps, device=device)
        (first,) = dl.autograd.grad((result**3 * weights).sum(), [tensor], create_graph=True)
        (second,) = dl.autograd.grad((first**2).sum(), [tensor])
        found.append((first.detach().numpy(), second.numpy()))
    for mine, theirs in zip(*found, strict=True):
        assert np.count_nonzero(theirs)
        np.testing.assert_allclose(mine, theirs, rtol=2e-5)


def test_gradients_of_float16(by_kernels: str) -> None:
    x = dl.tensor(np.array([3, 1, 2, 5], np.float16), device=by_kernels, requires_grad=True)
    values = x.topk(2).values
    (g,) = dl.autograd.grad(values, [x], dl.tensor(np.array([4, 7], np.float16), device=by_kernels))
    assert (g.tolist(), str(g.dtype)) == ([7.0, 0.0, 0.0, 4.0], "float16")


def test_samples_of_vmap(by_kernels: str) -> None:
    x = np.random.default_rng(4).standard_normal((3, 5)).astype(np.float32)
    tensor = dl.tensor(x, device=by_kernels)
    result = dl.vmap(lambda row: row.sort().values)(tensor)
    np.testing.assert_array_equal(result.numpy(), np.sort(x, 1))
    tensor.requires_grad_()
    g = dl.vmap(lambda row: dl.grad((row.topk(2).values ** 2).sum(), [row])[0])(tensor)
    expected = np.where(x >= np.sort(x, 1)[:, -2:-1], 2 * x, 0)
    np.testing.assert_allclose(g.numpy(), expected, rtol=1e-6)


# What the host reads


@pytest.mark.parametrize("name", [*SORTING, *OF_ELEMENTS])
def test_sorting_reads_nothing(name: str, by_kernels: str) -> None:
    x = dl.tensor(sortable((5, 37), np.float32), device=by_kernels)
    before = x.device.counters.downloaded
    FUNCTIONS[name](x)
    assert x.device.counters.downloaded == before


@pytest.mark.parametrize("name", COMPACTING)
def test_compaction_reads_one_number(name: str, by_kernels: str) -> None:
    x = dl.tensor(sortable((5, 37), np.float32), device=by_kernels)
    before = x.device.counters.downloaded
    FUNCTIONS[name](x)
    assert x.device.counters.downloaded == before + 4


# Where it runs


@pytest.mark.vulkan
def test_software_drivers_leave_long_rows_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    place = dl.device("vulkan:0")
    if place.info.type != "software":
        pytest.skip("a GPU sorts itself")
    x = sortable((HOST_ELEMENTS,), np.float32)
    tensor = dl.tensor(x, device=place)
    fallback.reset()
    with fallback.policy("silent"):
        tensor[1:].sort()
        assert not fallback.report()
        np.testing.assert_array_equal(tensor.sort().values.numpy(), np.sort(x))
        [row] = fallback.report()
        assert (row.op, row.reason, row.dtype) == ("sort", "faster on the host", "float32")
        fallback.reset()
        monkeypatch.setattr(placement, "HOST_ELEMENTS", HOST_ELEMENTS + 1)
        tensor.sort()
        assert not fallback.report()
    with fallback.policy("error"):
        monkeypatch.setattr(placement, "HOST_ELEMENTS", 0)
        tensor.sort()
    assert not fallback.report()


def test_what_a_device_cannot_bind_is_sorted_on_the_host() -> None:
    """Pairs of key and index have 8 bytes."""
    limits = dataclasses.replace(describe().limits, storage_buffer_range=2**15)
    place = dl.Device.of_backend(
        "null:0", NullBackend(dataclasses.replace(describe(), limits=limits), frozenset())
    )
    x = dl.Tensor(place.allocate(4 * 5003), (5003,), dl.float32, place)
    fallback.reset()
    with fallback.policy("silent"):
        assert x.sort().values.shape == (5003,)
    assert [(row.op, row.reason) for row in fallback.report()] == [("sort", "operand too large")]
    fallback.reset()
