"""Types and checks of the arguments that functions creating tensors have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core.dtypes import checked_dtype, default
from dl4all.ops.core.limits import check_shape
from dl4all.ops.core.strides import sizes
from dl4all.ops.core.tensor_base import DTypeLike, Shape, TensorBase
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device

ArrayLike: TypeAlias = npt.ArrayLike | TensorBase
"""Data of a tensor: a number, nested lists, a NumPy array, a tensor."""

DeviceLike: TypeAlias = str | int | Device
"""Names a device: ``"vulkan:0"``, ``"cpu"``, ``"auto"``, an accelerator's number, or the device itself."""

NamedDType: TypeAlias = str | np.dtype[Any] | type[Any]
"""A dtype without None, which stands for a default."""


def float_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype that an argument names; without one, the default of ``dl.set_default_dtype``.

    Raises:
        DTypeError: it is no dtype, or not one that tensors can have.
    """
    return default.dtype if dtype is None else checked_dtype("tensor", dtype)


def checked_shape(name: str, size: tuple[Any, ...], named: Any = None) -> Shape:
    """The shape that positional arguments name: ``f(2, 3)``, ``f((2, 3))`` and ``f(size=(2, 3))``.

    Raises:
        ArgumentError: a size is not an int, is negative, or the shape is larger than any memory; or it is
            given twice.
    """
    if named is not None:
        if size:
            raise ArgumentError(f"[{name}] the size is given twice: {size} and size={named}")
        size = (named,)
    shape = sizes(name, size)
    if min(shape, default=0) < 0:
        raise ArgumentError(f"[{name}] sizes must be at least 0, got {shape}")
    return check_shape(name, shape)


def checked_state(name: str, state: Any, keys: Iterable[str]) -> Mapping[str, Any]:
    """A state that is to be loaded: a mapping that has these keys.

    Raises:
        ArgumentError: it is no mapping, or lacks a key.
    """
    if not isinstance(state, Mapping):
        raise ArgumentError(
            f"[{name}] expected what state_dict() returned, a dict, to load; got {type(state).__name__}"
        )
    if missing := [key for key in keys if key not in state]:
        raise ArgumentError(
            f"[{name}] this is no state of a {name}: it lacks {', '.join(missing)} and has "
            f"{', '.join(map(str, state)) or 'nothing'}"
        )
    return state


def device_and_dtype(
    targets: tuple[DeviceLike | DTypeLike | TensorBase, ...], device: DeviceLike | None, dtype: DTypeLike
) -> tuple[Device | None, np.dtype[Any] | None]:
    """The device and the dtype that the arguments of ``to`` name; None for the one that they do not name.

    Raises:
        UnknownDeviceError, BackendMissingError, DTypeError
    """
    target_device: Device | None = None
    target_dtype: np.dtype[Any] | None = None
    for target in (*targets, *(named for named in (device, dtype) if named is not None)):
        if isinstance(target, TensorBase):
            target_device, target_dtype = target.device, target.dtype
        elif (named_dtype := _dtype_or_none(target)) is not None:
            target_dtype = named_dtype
        else:
            target_device = open_device(target)  # type: ignore[arg-type]  # refuses all but str and Device
    return target_device, target_dtype


def _dtype_or_none(target: DeviceLike | DTypeLike) -> np.dtype[Any] | None:
    """The dtype that `target` names, None if it names something else.

    Raises:
        DTypeError: it is a dtype, but not one that tensors can have.
    """
    if isinstance(target, (Device, int)):
        return None
    if target is None:  # to NumPy it means float64
        raise DTypeError("[to] expected a device or a dtype, got None")
    try:
        dtype = np.dtype(target)
    except TypeError:
        return None
    return checked_dtype("to", dtype)
