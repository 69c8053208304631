"""Saved states of optimizers: what is checked before one is loaded, and how its values are."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.tensor.arguments import checked_state
from dl4all.tensor.tensor import Tensor

NDArray = npt.NDArray[Any]


def checked_groups(name: str, state: Any) -> tuple[list[Mapping[str, Any]], Mapping[Any, Any]]:
    """The groups and the parameters' states of what is to be loaded.

    Raises:
        ArgumentError: it is not what an optimizer saves.
    """
    found = checked_state(name, state, ("param_groups", "state"))
    groups, saved = found["param_groups"], found["state"]
    if not is_list(groups) or not all(
        isinstance(group, Mapping) and is_list(group.get("params")) for group in groups
    ):
        raise ArgumentError(f"[{name}] the state's param_groups must be dicts with 'params'")
    if not isinstance(saved, Mapping) or not all(isinstance(v, Mapping) for v in saved.values()):
        raise ArgumentError(f"[{name}] the state's 'state' must have a dict for each parameter")
    return list(groups), saved


def check_arrays(name: str, p: Tensor, tensors: Mapping[str, Any]) -> None:
    """Raise unless these have the shape of their parameter, and are numbers.

    Raises:
        ArgumentError
    """
    for key, value in tensors.items():
        array = on_host(value)
        if array.shape != p.shape:
            raise ArgumentError(f"[{name}] the saved {key} has shape {array.shape}, its parameter {p.shape}")
        check_numbers(name, key, array)


def check_numbers(name: str, key: str, array: NDArray) -> None:
    """Raise unless an array is of numbers.

    Raises:
        ArgumentError
    """
    if kind_of(array.dtype) not in "biuf":
        raise ArgumentError(f"[{name}] the saved {key} is {array.dtype}, not numbers")


def check_counts(name: str, counts: Mapping[str, Any]) -> None:
    """Raise unless these are numbers, and that of steps a count.

    Raises:
        ArgumentError
    """
    for key, value in counts.items():
        try:
            found = float(value)
            valid = math.isfinite(found) and (key != "step" or int(found) >= 0)
        except (TypeError, ValueError, OverflowError):
            valid = False
        if not valid:
            what = "a count" if key == "step" else "a number"
            raise ArgumentError(f"[{name}] the saved {key} is {value!r:.100}, not {what}")


def saved_options(group: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a saved group; JSON makes lists of tuples, and PyTorch has tensors of its own."""
    return {key: _option(key, value) for key, value in group.items() if key != "params"}


def _option(key: str, value: Any) -> Any:
    if isinstance(value, list) and key != "param_names":
        return tuple(_option(key, entry) for entry in value)
    if isinstance(value, tuple):
        return tuple(_option(key, entry) for entry in value)
    if hasattr(value, "__array__") and not isinstance(value, TensorBase):
        return np.asarray(value).item()
    if isinstance(value, TensorBase):
        return value.clone() if isinstance(value, Tensor) else value
    return copy.deepcopy(value)


def is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def on_host(value: Any) -> NDArray:
    """A saved tensor, of this library or of PyTorch, as an array."""
    # asarray, as NumPy 2 warns where PyTorch's tensors are asked for a copy
    return np.asarray(value.on_host() if isinstance(value, TensorBase) else value)


def loaded_tensor(p: Tensor, value: Any) -> Tensor:
    """A saved tensor of the state, with the dtype and on the device of its parameter."""
    tensor: Tensor = from_host(Tensor, on_host(value).astype(p.dtype), p.device, copy=False)
    return tensor


def loaded_value(p: Tensor, name: str, value: Any) -> Any:
    """A copy of a saved value of any kind: tensors come to the parameter's device, floats to its dtype."""
    if isinstance(value, Mapping):
        return {key: loaded_value(p, name, entry) for key, entry in value.items()}
    if is_list(value):
        return type(value)(loaded_value(p, name, entry) for entry in value)
    if not isinstance(value, TensorBase) and not hasattr(value, "__array__"):
        return copy.deepcopy(value)
    array = on_host(value)
    dtype = p.dtype if kind_of(array.dtype) == "f" and name != "step" else array.dtype
    return from_host(Tensor, array.astype(dtype), p.device, copy=False)
