"""Batches made of samples: collate, and a function for every array of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor


def collate(samples: list[Any]) -> Any:
    """A batch of samples: arrays and numbers are stacked along a new first axis, within tuples and dicts too.

    Texts and bytes stay a list, as in PyTorch.

    Raises:
        ArgumentError: there is no sample, or samples have different shapes, keys, lengths or kinds; the
            message names the first sample that differs and where.
        DTypeError: a sample is None or an object that is no array of numbers.

    Example:
        >>> from dl4all.data import collate
        >>> batch = collate([{"x": [1.0, 2.0], "name": "a"}, {"x": [3.0, 4.0], "name": "b"}])
        >>> [column.tolist() for column in batch["x"]], batch["name"]
        ([[1.0, 3.0], [2.0, 4.0]], ['a', 'b'])
    """
    samples = list(samples)
    if not samples:
        raise ArgumentError("[collate] expected at least one sample, got an empty list")
    return _collate(samples, "")


def _collate(samples: list[Any], place: str) -> Any:
    """The batch of what lies at a place, such as ``[0]['x']``, in each sample."""
    kind = _kind(samples[0])
    for number, sample in enumerate(samples):
        if _kind(sample) != kind:
            raise _differs(place, number, _described(sample), _described(samples[0]))
    if kind == "dict":
        return {key: _collate(column, f"{place}[{key!r}]") for key, column in _columns(samples, place)}
    if kind == "tuple":
        _check_lengths(samples, place)
        parts = zip(*samples, strict=True)
        return _like(samples[0], [_collate(list(part), f"{place}[{i}]") for i, part in enumerate(parts)])
    if kind == "text":
        return samples
    return _stacked(samples, place)


def default_collate(batch: list[Any]) -> Any:
    """A batch of samples as :func:`collate` makes it, of tensors on the CPU: for a ``collate_fn`` to work on.

    Python's floats become float32, the default dtype, where PyTorch makes them float64; ints become int64.

    Args:
        batch: the samples: arrays, tensors, numbers, texts, and tuples, namedtuples and dicts of them.

    Raises:
        ArgumentError, DTypeError: as :func:`collate`.

    Example:
        >>> import dl4all as dl
        >>> x, names = dl.data.default_collate([(1.5, "a"), (2.5, "b")])
        >>> x, names
        (tensor([1.5, 2.5]), ['a', 'b'])
    """
    return map_arrays(collate(batch), _on_cpu)


def default_convert(data: Any) -> Any:
    """A sample with its arrays as tensors on the CPU; what a loader without batches makes of a sample.

    Args:
        data: anything; arrays are found in dicts, lists and tuples.

    Example:
        >>> import dl4all as dl, numpy as np
        >>> dl.data.default_convert({"x": np.ones(2, np.float32), "n": 3})
        {'x': tensor([1., 1.]), 'n': 3}
    """
    return map_arrays(data, _on_cpu)


def _on_cpu(array: Any) -> Tensor:
    return array if isinstance(array, Tensor) else from_numpy(array)


def _like(sample: Any, parts: list[Any]) -> Any:
    """Parts in a tuple, or in a namedtuple as the sample is one."""
    return type(sample)(*parts) if hasattr(sample, "_fields") else tuple(parts)


def _kind(sample: Any) -> str:
    if isinstance(sample, Mapping):
        return "dict"
    if isinstance(sample, (tuple, list)):
        return "tuple"
    return "text" if isinstance(sample, (str, bytes)) else "array"


def _columns(samples: list[Any], place: str) -> list[tuple[Any, list[Any]]]:
    """The values of each key."""
    first = samples[0]
    for number, sample in enumerate(samples):
        if sample.keys() != first.keys():
            raise _differs(place, number, f"the keys {list(sample)}", f"{list(first)}")
    return [(key, [sample[key] for sample in samples]) for key in first]


def _check_lengths(samples: list[Any], place: str) -> None:
    for number, sample in enumerate(samples):
        if len(sample) != len(samples[0]):
            raise _differs(place, number, f"{len(sample)} items", f"{len(samples[0])}")


def _stacked(samples: list[Any], place: str) -> npt.NDArray[Any]:
    arrays: list[npt.NDArray[Any]] = []
    for number, sample in enumerate(samples):
        array = sample.detach().numpy() if isinstance(sample, Tensor) else np.asarray(sample)
        if array.dtype.hasobject:
            raise DTypeError(
                f"[collate] sample {number} of the batch{_at(place)} is {_described(sample)}, which is no "
                "array of numbers; return one from the data set, or pass a collate_fn"
            )
        if arrays and array.shape != arrays[0].shape:
            raise ArgumentError(
                f"[collate] samples of different shapes: sample {number} of the batch{_at(place)} has shape "
                f"{array.shape}, the first {arrays[0].shape}; pass a collate_fn"
            )
        arrays.append(array)
    stacked: npt.NDArray[Any] = np.stack(arrays)
    return stacked.astype(np.float32) if any(isinstance(sample, float) for sample in samples) else stacked


def _differs(place: str, number: int, found: str, expected: str) -> ArgumentError:
    return ArgumentError(
        f"[collate] samples differ: sample {number} of the batch{_at(place)} has {found}, the first "
        f"{expected}; make them alike in the data set, or pass a collate_fn"
    )


def _at(place: str) -> str:
    return f", at {place}," if place else ""


def _described(sample: Any) -> str:
    return "None" if sample is None else f"type {type(sample).__name__}"


def map_arrays(batch: Any, function: Callable[[Any], Any]) -> Any:
    """A batch with a function applied to its arrays and tensors."""
    if isinstance(batch, Mapping):
        return {key: map_arrays(value, function) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        parts = [map_arrays(value, function) for value in batch]
        return parts if isinstance(batch, list) else _like(batch, parts)
    return function(batch) if isinstance(batch, (np.ndarray, Tensor)) else batch
