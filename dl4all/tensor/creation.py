"""Making tensors. ``device="auto"`` takes the best device of the machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core.op import empty as empty_tensor
from dl4all.ops.core.strides import sizes
from dl4all.ops.core.tensor_base import DTYPES, Shape, from_host
from dl4all.ops.memory.copy import fill_with
from dl4all.ops.random.distributions import normal_, uniform_
from dl4all.ops.random.generator import Generator, default_generator
from dl4all.scheduler.current import device
from dl4all.scheduler.device import Device
from dl4all.tensor.interop import array_of_dlpack
from dl4all.tensor.tensor import Tensor

Place = str | Device


def manual_seed(seed: int) -> None:
    """Start all random numbers anew, except for those of generators of one's own.

    Raises:
        ArgumentError: the seed is not an int from 0 to 2^64 - 1.
    """
    default_generator().manual_seed(seed)


def tensor(
    data: Any, dtype: npt.DTypeLike = None, device: Place = "auto", requires_grad: bool = False
) -> Tensor:
    """A tensor with a copy of `data`.

    Args:
        data: a number, nested lists, a NumPy array or a tensor.
        dtype: the element type; otherwise an array's own, and for Python numbers float32, int64 or
            bool.
        device: where it will live.
        requires_grad: whether gradients are wanted.

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
            array = array.astype(checked_dtype(dtype))
        elif not typed and array.dtype == np.float64:
            array = array.astype(np.float32)
    return _wanting(_placed(array, device, copy=True), requires_grad)


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


def from_dlpack(array: Any) -> Tensor:
    """A tensor on the memory of another library's array on the CPU, by the DLPack protocol.

    Raises:
        DTypeError: it does not speak it, lies elsewhere, or its dtype is not one of dl4all's.

    Example:
        >>> import dl4all as dl, numpy as np
        >>> dl.from_dlpack(np.ones(2, np.float32)).tolist()
        [1.0, 1.0]
    """
    return _placed(array_of_dlpack(array), "cpu", copy=False)


def empty(
    *shape: int | Shape,
    dtype: npt.DTypeLike = "float32",
    device: Place = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """A tensor with undefined contents."""
    made: Tensor = empty_tensor(Tensor, checked_shape("empty", shape), checked_dtype(dtype), _open(device))
    return _wanting(made, requires_grad)


def full(
    shape: Shape,
    fill_value: float,
    dtype: npt.DTypeLike = None,
    device: Place = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """A tensor filled with one value, of its kind unless `dtype` is given: float32, int64 or bool.

    Raises:
        ArgumentError: a size is not an int of at least 0.
        DTypeError: the value is not a number.
    """
    value = tensor(fill_value, dtype, "cpu").numpy()
    if value.ndim:
        raise DTypeError(f"[full] expected a number, got {type(fill_value).__name__}")
    return _wanting(_filled("full", (shape,), value, device), requires_grad)


def zeros(
    *shape: int | Shape,
    dtype: npt.DTypeLike = "float32",
    device: Place = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros."""
    return _wanting(_filled("zeros", shape, np.zeros((), checked_dtype(dtype)), device), requires_grad)


def ones(
    *shape: int | Shape,
    dtype: npt.DTypeLike = "float32",
    device: Place = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones."""
    return _wanting(_filled("ones", shape, np.ones((), checked_dtype(dtype)), device), requires_grad)


def _filled(name: str, shape: tuple[Any, ...], value: npt.NDArray[Any], place: Place) -> Tensor:
    wanted, there = checked_shape(name, shape), _open(place)
    _checked(value.dtype)
    if there.is_host:
        array = np.full(wanted, value) if value.any() else np.zeros(wanted, value.dtype)  # the latter is lazy
        return _placed(array, there, copy=False)
    made: Tensor = empty_tensor(Tensor, wanted, value.dtype, there)
    fill_with(made, value)
    return made


def _wanting(made: Tensor, requires_grad: bool) -> Tensor:
    return made.requires_grad_() if requires_grad else made


def rand(
    *shape: int | Shape,
    dtype: npt.DTypeLike = "float32",
    device: Place = "auto",
    generator: Generator | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Random numbers, uniform in [0, 1); the same on every device for the same seed."""
    made: Tensor = empty_tensor(Tensor, checked_shape("rand", shape), checked_dtype(dtype), _open(device))
    return _wanting(uniform_(made, generator=generator), requires_grad)


def randn(
    *shape: int | Shape,
    dtype: npt.DTypeLike = "float32",
    device: Place = "auto",
    generator: Generator | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Random numbers, normal with mean 0 and variance 1; the same on every device for the same seed."""
    made: Tensor = empty_tensor(Tensor, checked_shape("randn", shape), checked_dtype(dtype), _open(device))
    return _wanting(normal_(made, generator=generator), requires_grad)


def uniform(shape: Shape, low: float, high: float) -> npt.NDArray[np.float32]:
    """Host numbers from the seeded generator, uniform in [low, high)."""
    made: Tensor = empty_tensor(Tensor, shape, np.dtype(np.float32), _open("cpu"))
    return uniform_(made, low, high).numpy()


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


def checked_dtype(wanted: npt.DTypeLike) -> np.dtype[Any]:
    """
    Raises:
        DTypeError: it is no dtype, or not one that tensors can have.
    """
    try:
        return _checked(np.dtype(wanted))
    except TypeError as error:
        raise DTypeError(f"[tensor] {error}; use one of {', '.join(map(str, DTYPES))}") from None


def checked_shape(name: str, given: tuple[Any, ...]) -> Shape:
    shape = sizes(name, given)
    if min(shape, default=0) < 0:
        raise ArgumentError(f"[{name}] sizes must be at least 0, got {shape}")
    if math.prod(shape) >= 2**48:
        raise ArgumentError(f"[{name}] shape {shape} is larger than any memory")
    return shape
