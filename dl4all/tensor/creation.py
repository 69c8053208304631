"""Making tensors. ``device="auto"`` takes the best device of the machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.base import DTYPES, Shape, from_host
from dl4all.ops.op import empty as empty_tensor
from dl4all.scheduler.device import Device, device
from dl4all.tensor.indexing import sizes
from dl4all.tensor.tensor import Tensor

Place = str | Device
_generator = np.random.Generator(np.random.Philox(0))


def manual_seed(seed: int) -> None:
    """Start the random numbers of :func:`rand`, :func:`randn` and layer initialisation anew.

    Raises:
        ArgumentError: the seed is negative.
    """
    if seed < 0:
        raise ArgumentError(f"[manual_seed] the seed must not be negative, got {seed}")
    _generator.bit_generator.state = np.random.Philox(seed).state


def tensor(data: Any, dtype: npt.DTypeLike = None, device: Place = "auto") -> Tensor:
    """A tensor with a copy of `data`.

    Args:
        data: a number, nested lists, a NumPy array or a tensor.
        dtype: the element type; otherwise an array's own, and for Python numbers float32, int64 or
            bool.
        device: where it will live.

    Raises:
        DTypeError: the elements have no type that tensors can have.
        UnknownDeviceError, BackendMissingError, OutOfMemoryError

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([[1, 2], [3, 4]], dtype="float32", device="cpu")
        tensor([[1., 2.],
               [3., 4.]])
    """
    typed = isinstance(data, (np.ndarray, np.generic, Tensor))
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise DTypeError(f"[tensor] the data is not rectangular: {error}") from None
    if array.dtype.kind not in "biuf":
        raise DTypeError(f"[tensor] expected numbers, got elements of dtype {array.dtype}")
    with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
        if dtype is not None:
            array = array.astype(_dtype(dtype))
        elif not typed and array.dtype == np.float64:
            array = array.astype(np.float32)
    return _placed(array, device, copy=True)


def from_numpy(array: npt.NDArray[Any], device: Place = "cpu") -> Tensor:
    """A tensor of an array's elements; on the CPU it shares a contiguous array's memory.

    Raises:
        DTypeError: `array` is something else, or its dtype is not one of dl4all's.
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"[from_numpy] expected a NumPy array, got {type(array).__name__}; use dl.tensor(...)"
        )
    return _placed(array, device, copy=False)


def empty(*shape: int | Shape, dtype: npt.DTypeLike = "float32", device: Place = "auto") -> Tensor:
    """A tensor with undefined contents."""
    made: Tensor = empty_tensor(Tensor, _checked_shape("empty", shape), _dtype(dtype), _open(device))
    return made


def full(shape: Shape, value: float, dtype: npt.DTypeLike = None, device: Place = "auto") -> Tensor:
    """A tensor filled with one value, of its kind unless `dtype` is given: float32, int64 or bool.

    Raises:
        ArgumentError: a size is not an int of at least 0.
        DTypeError: the value is not a number.
    """
    return _filled("full", (shape,), tensor(value, dtype, "cpu").numpy(), device)


def zeros(*shape: int | Shape, dtype: npt.DTypeLike = "float32", device: Place = "auto") -> Tensor:
    """A tensor of zeros."""
    return _filled("zeros", shape, np.zeros((), _dtype(dtype)), device)


def ones(*shape: int | Shape, dtype: npt.DTypeLike = "float32", device: Place = "auto") -> Tensor:
    """A tensor of ones."""
    return _filled("ones", shape, np.ones((), _dtype(dtype)), device)


def _filled(name: str, shape: tuple[Any, ...], value: npt.NDArray[Any], place: Place) -> Tensor:
    return _placed(np.full(_checked_shape(name, shape), value), place, copy=False)


def rand(*shape: int | Shape, device: Place = "auto") -> Tensor:
    """Random float32 numbers, uniform in [0, 1); the same on every device for the same seed."""
    return _placed(_generator.random(_checked_shape("rand", shape), np.float32), device, copy=False)


def randn(*shape: int | Shape, device: Place = "auto") -> Tensor:
    """Random float32 numbers, normal with mean 0 and variance 1; the same on every device."""
    return _placed(_generator.standard_normal(_checked_shape("randn", shape), np.float32), device, copy=False)


def uniform(shape: Shape, low: float, high: float) -> npt.NDArray[np.float32]:
    """Host numbers from the seeded generator, uniform in [low, high)."""
    return np.float32(low) + np.float32(high - low) * _generator.random(shape, np.float32)


def _placed(array: npt.NDArray[Any], place: Place, *, copy: bool) -> Tensor:
    _checked(array.dtype)
    made: Tensor = from_host(Tensor, array, _open(place), copy=copy)
    return made


def _open(place: Place) -> Device:
    return device(place)


def _checked(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype not in DTYPES:
        raise DTypeError(f"[tensor] dtype {dtype} is not supported; use one of {', '.join(map(str, DTYPES))}")
    return dtype


def _dtype(wanted: npt.DTypeLike) -> np.dtype[Any]:
    """
    Raises:
        DTypeError: it is no dtype, or not one that tensors can have.
    """
    try:
        return _checked(np.dtype(wanted))
    except TypeError as error:
        raise DTypeError(f"[tensor] {error}; use one of {', '.join(map(str, DTYPES))}") from None


def _checked_shape(name: str, given: tuple[Any, ...]) -> Shape:
    shape = sizes(name, given)
    if min(shape, default=0) < 0:
        raise ArgumentError(f"[{name}] sizes must be at least 0, got {shape}")
    if math.prod(shape) >= 2**48:
        raise ArgumentError(f"[{name}] shape {shape} is larger than any memory")
    return shape
