"""Moving elements into memory that is there already: the base of joining, padding and changes in place.

Nothing here is recorded for gradients; who calls sees to that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core.launch import pack, shader, strided_grid
from dl4all.ops.core.op import SHARED, Kernel, primitives
from dl4all.ops.core.op import empty as empty_tensor
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host
from dl4all.ops.core.vmap_hook import BatchedTensorBase, all_samples
from dl4all.ops.elementwise.transpose_copy import TRANSPOSE, transpose_launch
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.programs import Launch

WORKGROUP = 128
WORDS = {4: "uint", 8: "uvec2"}
"""What stands for an element of so many bytes in a kernel that does not compute with it."""

MOVABLE_DTYPES = ("float32", "int32", "float64", "int64")
"""Element types that kernels move; the others go by way of the host."""

RANKS = (1, 4, 8)


def word_shaders(path: str, **defines: Any) -> dict[int, Shader]:
    """A shader for each size of an element."""
    made = {size: shader(path, WORD=word, **defines) for size, word in WORDS.items()}
    SHARED.extend(made.values())
    return made


CONCAT = shader("memory/concat.comp")
"""Copies two tensors behind each other."""

MAX_WORD_BYTES = 16  # bytes that a kernel can move at once
COPY = {
    rank: {
        **word_shaders("memory/copy.comp", RANK=rank),
        MAX_WORD_BYTES: shader("memory/copy.comp", WORD="uvec4", RANK=rank),
    }
    for rank in RANKS
}
SHARED.extend((TRANSPOSE, *(by_size[MAX_WORD_BYTES] for by_size in COPY.values())))


def copy_into(target: TensorBase, source: TensorBase) -> None:
    """Write the elements of `source`, broadcast and converted, to where those of `target` lie."""
    if 0 in target.shape:
        return
    if isinstance(source, BatchedTensorBase):
        source = source.samples_for(target)
    target = all_samples(target)
    if source.device is not target.device:
        source = from_host(type(source).result_class, source.on_host(), target.device, copy=True)
    source = broadcast_view(source, target.shape)
    if target.device.is_host:
        _assign(target, source.on_host())
        return
    if source.dtype != target.dtype:
        source = _converted(source, target.dtype)
    if source.storage is target.storage:  # one dispatch may not read what it writes
        source = fresh_copy(source)
    shape, strides = merge_axes(target.shape, [source.strides, target.strides])
    if not target.device.binds(source.storage, target.storage):
        _through_host(target, source)
    elif target.dtype.name in MOVABLE_DTYPES and len(shape) <= max(RANKS):
        _launch(target, source, shape, strides)
    elif (
        owns_words(target) and target.dtype.name in _casting().dtypes and min(source.strides, default=0) >= 0
    ):
        _casting().run(target, source, dtype=target.dtype.name)
    else:
        _through_host(target, source)


def _casting() -> Kernel:
    """The kernel of cast, which also knows element types smaller than a word."""
    kernel: Kernel | None = primitives.cast.kernel
    assert kernel is not None
    return kernel


def fresh_copy(source: TensorBase, dtype: np.dtype[Any] | None = None) -> TensorBase:
    """The elements in memory of their own, contiguous, without a history."""
    made: TensorBase = new_like(source, source.shape, dtype)
    copy_into(made, source)
    return made


def new_like(tensor: TensorBase, shape: Shape, dtype: np.dtype[Any] | None = None) -> Any:
    """Memory for a tensor of that shape beside another one."""
    if isinstance(tensor, BatchedTensorBase):
        return tensor.allocate_samples(shape, dtype or tensor.dtype)
    return empty_tensor(type(tensor).result_class, shape, dtype or tensor.dtype, tensor.device)


def fill_with(target: TensorBase, value: Any) -> None:
    """Write one number to where the elements of `target` lie."""
    if 0 in target.shape:
        return
    target = all_samples(target)
    with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
        element = np.asarray(value).astype(target.dtype)
    if target.device.is_host:
        _assign(target, element)
        return
    pattern = np.frombuffer(element.tobytes() * (4 if element.itemsize < 8 else 1), np.uint32)
    whole = target.is_contiguous() and target.numel() * element.itemsize == target.storage.nbytes
    if whole and (pattern == pattern[0]).all():
        target.device.fill(target.storage, int(pattern[0]))
    else:
        copy_into(target, from_host(type(target).result_class, element, target.device, copy=False))


def broadcast_view(tensor: TensorBase, shape: Shape) -> TensorBase:
    """A view of `shape` in which the axes that broadcast have stride 0; no history."""
    if tensor.shape == shape:
        return tensor
    missing = len(shape) - len(tensor.shape)
    strides = (0,) * missing + tuple(
        0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    view: TensorBase = tensor.as_strided(shape, strides, tensor.offset)
    return view


def owns_words(tensor: TensorBase) -> bool:
    """Whether a kernel for whole results may write here: from the storage's start on, and in words that hold
    nothing else."""
    if tensor.offset or not tensor.is_contiguous():
        return False
    nbytes = tensor.numel() * tensor.dtype.itemsize
    return nbytes % 4 == 0 or nbytes == tensor.storage.nbytes


def overlaps_itself(tensor: TensorBase) -> bool:
    """Whether several elements lie in one place, as in what was expanded."""
    tensor = all_samples(tensor)
    return 0 not in tensor.shape and any(
        size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )


def _assign(target: TensorBase, values: Any) -> None:
    memory = target.on_host()
    if not memory.flags.writeable:
        raise ArgumentError("[copy_] the tensor shares memory with a read-only array; change a .clone()")
    with np.errstate(all="ignore"):
        memory[...] = values


def _converted(source: TensorBase, dtype: np.dtype[Any]) -> TensorBase:
    without = source.as_strided(source.shape, source.strides, source.offset)  # no history to record
    made: TensorBase = primitives.cast(without, dtype.name)
    return made


def _launch(target: TensorBase, source: TensorBase, shape: Shape, strides: Sequence[Shape]) -> None:
    offsets, itemsize = (source.offset, target.offset), target.dtype.itemsize
    if itemsize == 4:
        turned = transpose_launch(shape, strides[0], strides[1], offsets)
        if turned:
            target.device.launch(turned, source.storage, target.storage)
            return
    together = MAX_WORD_BYTES // itemsize
    if shape and all(
        s[-1] == 1 and not any(n % together for n in (shape[-1], offset, *s[:-1]))
        for s, offset in zip(strides, offsets, strict=True)
    ):
        shape = (*shape[:-1], shape[-1] // together)
        strides = [(*(stride // together for stride in s[:-1]), 1) for s in strides]
        offsets, itemsize = (source.offset // together, target.offset // together), MAX_WORD_BYTES
    rank = min(r for r in RANKS if r >= len(shape))
    missing = rank - len(shape)
    axes = [*(1,) * missing, *shape]
    for s in strides:
        axes += [*(0,) * missing, *s]
    count = math.prod(shape)
    push = pack(count, *offsets, *axes)
    launch = Launch(COPY[rank][itemsize], strided_grid(count, WORKGROUP), push, (max(len(shape), 1),))
    target.device.launch(launch, source.storage, target.storage)


def _through_host(target: TensorBase, source: TensorBase) -> None:
    storage, device, itemsize = target.storage, target.device, target.dtype.itemsize
    data = np.empty(storage.nbytes, np.uint8)
    device.download(storage, data)
    strides = tuple(stride * itemsize for stride in target.strides)
    memory: np.ndarray[Any, Any] = np.ndarray(
        target.shape, target.dtype, data, target.offset * itemsize, strides
    )
    memory[...] = source.on_host()
    device.write(storage, data)
