"""Concatenation, repetition, reversal, triangles and padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dl4all import ops
from dl4all.ops.indexing.padding import pad_backward
from dl4all.pytorch.device.dispatch.registration import declare


def flip(input: Any, dims: Sequence[int]) -> Any:
    return ops.flip(input, tuple(dims))


def roll(input: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    if dims:
        return ops.roll(input, tuple(shifts), tuple(dims))
    return ops.roll(input, shifts[0])


def repeat(input: Any, repeats: Sequence[int]) -> Any:
    return ops.repeat(input, tuple(repeats))


def constant_pad(input: Any, pad: Sequence[int], value: Any = 0) -> Any:
    return ops.pad(input, tuple(pad), value=value)


def _padding(mode: str) -> Callable[..., Any]:
    def pad(input: Any, padding: Sequence[int]) -> Any:
        return ops.pad(input, tuple(padding), mode)

    return pad


def _padding_backward(mode: str) -> Callable[..., Any]:
    def backward(grad_output: Any, input: Any, padding: Sequence[int]) -> Any:
        return pad_backward(grad_output, input.shape, tuple(padding), mode)

    return backward


KERNELS: dict[str, Callable[..., Any]] = {
    "cat": ops.cat,
    "stack": ops.stack,
    "constant_pad_nd": constant_pad,
    "flip": flip,
    "roll": roll,
    "repeat": repeat,
    "tril": ops.tril,
    "triu": ops.triu,
}

PADDINGS = {"reflect": "reflection_pad", "replicate": "replication_pad"}

for _name, _function in KERNELS.items():
    declare(_name, _function)
for _mode, _name in PADDINGS.items():
    for _axes in (1, 2, 3):
        declare(f"{_name}{_axes}d", _padding(_mode))
        declare(f"{_name}{_axes}d_backward", _padding_backward(_mode))
