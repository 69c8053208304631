"""Operands for ops in every memory layout, and the comparison of results."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.op import REGISTRY, Example, Op
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.elementwise.declare import Elementwise

NDArray = npt.NDArray[Any]
Layout = Callable[[NDArray, "str | dl.Device"], "tuple[dl.Tensor, NDArray]"]

# A float32 result differs from the float64 one by about 6e-8 for each rounding. A sum of k products has
# about sqrt(k) times that error, at most 2e-6 for the longest sums here (k = 1152), and the same again for
# another order of summation. 1e-5 of the largest value leaves room for exp and sqrt of GPUs (some units in
# the last place) and is still far below any wrong element.
TOLERANCE = {"float32": 1e-5, "float64": 1e-13, "float16": 4e-3, "bfloat16": 3.2e-2}

CASES = [(op, example) for op in REGISTRY.values() for example in op.examples]


def generator(*names: object) -> np.random.Generator:
    """A random generator seeded by names: the same in each run, different for each test."""
    return np.random.default_rng(zlib.crc32(repr(names).encode()))


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: npt.DTypeLike = "float32") -> NDArray:
    """Different values of absolute value from 0.5 to 2, which can be divisors; small ints, or bools."""
    kind = kind_of(np.dtype(dtype))
    if kind == "b":
        values = rng.integers(0, 2, shape)
    elif kind in "iu":
        values = rng.integers(1, 6, shape) * (rng.choice((-1, 1), shape) if kind == "i" else 1)
    else:
        values = rng.uniform(0.5, 2, shape) * rng.choice((-1.0, 1.0), shape)
    return np.asarray(values, dtype)


def draw(
    op: Op[...], name: str, rng: np.random.Generator, shape: tuple[int, ...], dtype: npt.DTypeLike = "float32"
) -> NDArray:
    """Values for one operand of an op: bools for a condition, integers where it takes no floats, floats from
    its domain, and positive values for an operand named as a variance."""
    if not isinstance(op, Elementwise):
        array = numbers(rng, shape, dtype)
        return np.abs(array) if "var" in name else array
    operand_dtype = np.dtype(dtype)
    if op.conditions[op.arrays.index(name)]:
        operand_dtype = np.dtype(bool)
    elif kind_of(operand_dtype) == "f" and "f" not in op.kinds:
        operand_dtype = np.dtype(f"int{8 * operand_dtype.itemsize}")
    if name in op.domain and kind_of(operand_dtype) == "f":
        return rng.uniform(*op.domain[name], shape).astype(operand_dtype)
    return numbers(rng, shape, operand_dtype)


def arrays(op: Op[...], example: Example, dtype: npt.DTypeLike = "float32") -> list[NDArray | None]:
    """An op's array operands."""
    rng = generator(op.name, str(example))
    return [
        None if shape is None else draw(op, name, rng, shape, dtype)
        for name, shape in zip(op.arrays, example.shapes, strict=True)
    ]


def reference(op: Op[...], operands: list[Any], **arguments: Any) -> NDArray:
    """The result of the op's NumPy body in float64, if it takes floats; conditions stay bools."""
    float64_operands = list(operands)
    for index, operand in enumerate(operands):
        keeps_dtype = isinstance(op, Elementwise) and (op.conditions[index] or "f" not in op.kinds)
        if isinstance(operand, np.ndarray) and not keeps_dtype:
            float64_operands[index] = operand.astype(np.float64)
    with np.errstate(all="ignore"):
        return np.asarray(op.body(*float64_operands, **completed(op, arguments)))


def completed(op: Op[...], arguments: dict[str, Any], dtype: str = "float32") -> dict[str, Any]:
    """The arguments, with default values for the missing ones; 0 in place of what a dtype does not hold."""
    parameters = op.signature.parameters
    defaults = {name: parameters[name].default for name in op.arguments}
    if kind_of(np.dtype(dtype)) == "u":
        defaults = {n: 0 if isinstance(d, (int, float)) and d < 0 else d for n, d in defaults.items()}
    return {name: arguments.get(name, default) for name, default in defaults.items()}


# Layouts: the same elements at other offsets. The memory between them holds nan, so that reading it shows.


def contiguous(array: NDArray, device: str | dl.Device) -> tuple[dl.Tensor, NDArray]:
    return dl.tensor(array, device=device), array


def transposed(array: NDArray, device: str | dl.Device) -> tuple[dl.Tensor, NDArray]:
    return dl.tensor(np.ascontiguousarray(array.T).reshape(array.T.shape), device=device).T, array


def strided(array: NDArray, device: str | dl.Device) -> tuple[dl.Tensor, NDArray]:
    """A view of every second element along each axis of a larger tensor, from the second on."""
    larger = _poison(tuple(2 * size + 1 for size in array.shape), array.dtype)
    part: tuple[Any, ...] = (..., *(slice(1, 2 * size + 1, 2) for size in array.shape))
    larger[part] = array
    return dl.tensor(larger, device=device)[part], array


def offset(array: NDArray, device: str | dl.Device) -> tuple[dl.Tensor, NDArray]:
    """Contiguous at an offset of 3 elements, which is no multiple of a vector's length."""
    larger = _poison((3 + array.size + 2,), array.dtype)
    larger[3 : 3 + array.size] = array.reshape(-1)
    return dl.tensor(larger, device=device)[3 : 3 + array.size].reshape(array.shape), array


def shifted(array: NDArray, device: str | dl.Device, by: int) -> dl.Tensor:
    """A tensor at an offset of `by` elements, between nans that no kernel may read."""
    margin = np.full(by, np.nan, np.float32)
    whole = dl.from_numpy(np.concatenate([margin, array.ravel(), margin]), device)
    return whole[by : by + array.size].reshape(array.shape)


def expanded(array: NDArray, device: str | dl.Device) -> tuple[dl.Tensor, NDArray]:
    """The first row repeated with a stride of 0, so not the elements of `array`."""
    if array.ndim == 0 or array.shape[0] == 0:
        return contiguous(array, device)
    row = np.ascontiguousarray(array[:1])
    return dl.tensor(row, device=device).expand(array.shape), np.broadcast_to(row, array.shape)


LAYOUTS: dict[str, Layout] = {f.__name__: f for f in (contiguous, transposed, strided, offset, expanded)}


def _poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    return np.full(shape, np.nan if kind_of(dtype) == "f" else 99 if kind_of(dtype) != "b" else True, dtype)


def operands_of(
    op: Op[...], example: Example, layout: Layout, device: str | dl.Device, dtype: npt.DTypeLike = "float32"
) -> tuple[list[dl.Tensor | None], list[NDArray | None]]:
    """Tensors for an op's operands, and their elements."""
    pairs = [(None, None) if a is None else layout(a, device) for a in arrays(op, example, dtype)]
    return [tensor for tensor, _ in pairs], [array for _, array in pairs]


def compare(result: dl.Tensor, expected: NDArray, dtype: str = "float32") -> None:
    """Raise unless shape and dtype are right and the elements close, relative to the largest one."""
    assert isinstance(result, TensorBase)
    assert result.shape == expected.shape
    if kind_of(expected.dtype) != "f":  # indices, counts and comparisons are exact
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result.numpy(), expected)
        return
    assert result.dtype == np.dtype(dtype)
    close(result.numpy().astype(np.float64), expected.astype(np.float64), TOLERANCE[dtype])


def close(result: NDArray, expected: NDArray, tolerance: float) -> None:
    """Raise unless nans and infinities are equal, and the rest differs by a fraction of the largest value."""
    assert result.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(result[~finite], expected[~finite])
    if finite.any():
        largest = np.abs(expected[finite]).max()
        error = np.abs(result[finite] - expected[finite]).max()
        assert error <= tolerance * largest, f"off by {error / largest:.2e} of the largest value"
