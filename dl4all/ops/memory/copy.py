"""Copies into memory that exists already: the base of concatenation, padding and in-place ops.

No function here records gradients; its callers do that where it is needed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import FLOAT8, FLOAT32, converted, kind_of
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.kernels.launch import shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import KERNEL_REFUSALS, SHARED, primitives
from dl4all.ops.core.op import empty as empty_tensor
from dl4all.ops.core.promotion import check_fits
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import FEW_BYTES, Shape, TensorBase, from_host, host_array
from dl4all.ops.core.vmap_hook import BatchedTensorBase, all_samples
from dl4all.ops.elementwise.kernels import broadcast_view
from dl4all.ops.elementwise.transpose_copy import TRANSPOSES, transpose_launch
from dl4all.ops.memory.transfer import move
from dl4all.runtime.spirv import Shader
from dl4all.scheduler import fallback, listeners
from dl4all.scheduler.device.programs import Launch

T = TypeVar("T", bound=TensorBase)
WORKGROUP_SIZE = 128
WORD_TYPES = {4: "uint", 8: "uvec2"}
"""GLSL types by an element's size in bytes, for kernels that move elements and do not compute with them."""

MOVABLE_DTYPES = ("float32", "int32", "float64", "int64")
"""The dtypes whose elements are one or two words."""

SHORT_DTYPES = ("int16", "int8", "uint8", "bool")
"""Dtypes of less than a word, but for floats, which ops widen to float32."""

MOVED_DTYPES = (*MOVABLE_DTYPES, *SHORT_DTYPES)
"""The dtypes of kernels that move elements, and take shorter ones by way of int32."""

COPY_RANKS = (1, 4, 8)  # numbers of axes for which there is a kernel


def word_shaders(path: str, **defines: Any) -> dict[int, Shader]:
    """The variants of a shader that moves elements, by the size of an element in bytes."""
    by_size = {size: shader(path, WORD=word, **defines) for size, word in WORD_TYPES.items()}
    SHARED.extend(by_size.values())
    return by_size


CONCAT = shader("memory/concat.comp")
"""Concatenates two contiguous tensors."""
CONCAT_PUSH = PushBlock("memory/concat.comp", "uint n, first, a_offset, b_offset;")

COPY_PUSH = {
    rank: PushBlock(
        ("memory/copy.comp", "memory/copy_bytes.comp"),
        f"uint n, x_offset, y_offset, sizes[{rank}], x_strides[{rank}], y_strides[{rank}];",
        RANK=rank,
    )
    for rank in COPY_RANKS
}
MAX_WORD_BYTES = 16  # the most bytes that an invocation moves at a time
COPY = {
    rank: {
        **word_shaders("memory/copy.comp", RANK=rank),
        MAX_WORD_BYTES: shader("memory/copy.comp", WORD="uvec4", RANK=rank),
    }
    for rank in COPY_RANKS
}
"""Shaders that copy between strided tensors, by number of axes and size of a word in bytes."""
COPY_BYTES = {
    (rank, nbytes, whole): shader("memory/copy_bytes.comp", RANK=rank, BYTES=nbytes, WHOLE=int(whole))
    for rank in COPY_RANKS
    for nbytes in (1, 2)
    for whole in (False, True)
}
"""The same for elements of fewer bytes than a word has; the last key says whether whole words are written."""

SHARED.extend(TRANSPOSES.values())
SHARED.extend((*(by_size[MAX_WORD_BYTES] for by_size in COPY.values()), *COPY_BYTES.values()))


COPY_ON_HOST, FILL_ON_HOST = WorkKernel("copy"), WorkKernel("fill")


def copy_into(target: TensorBase, source: TensorBase) -> None:
    """Copy the elements of `source`, broadcast and converted, into the memory of `target`."""
    if 0 in target.shape:
        return
    if isinstance(source, BatchedTensorBase):
        source = source.samples_for(target)
    target = all_samples(target)
    if source.device is not target.device:
        source = move(source, target.device)
    source = broadcast_view(source, target.shape)
    if target.device.is_host:
        kernel = None if _shares_memory(target, source) else COPY_ON_HOST
        _write_on_host("copy_", target, _assign, [source], kernel=kernel)
        return
    if source.dtype != target.dtype:
        source = _cast_without_gradient(source, target.dtype)
    if source.storage is target.storage:  # one dispatch may not read what it writes
        source = fresh_copy(source)
    _overwrite_on_device(source, target=target)


@kernel_function("copy_")
def _overwrite_on_device(source: TensorBase, *, target: TensorBase) -> TensorBase:
    cause = _copy_on_device(target, source)
    if cause is not None:
        with fallback.on_host("copy_", target.device, cause):
            _copy_through_host(target, source)
    return target


def overwrite(target: TensorBase, source: TensorBase) -> None:
    """:func:`copy_into` a tensor that others know, who ask its storage's version whether it has changed."""
    copy_into(target, source)
    target.storage.version += 1


def _copy_on_device(target: TensorBase, source: TensorBase) -> fallback.Cause | None:
    """Copy by a kernel; the result says why none can, or is None."""
    device, dtype = target.device, target.dtype.name
    if not device.memory.binds(source.storage, target.storage):
        return fallback.too_large(device, dtype)
    shape, strides = merge_axes(target.shape, [source.strides, target.strides])
    try:
        if len(shape) <= max(COPY_RANKS):
            _launch_copy(target, source, shape, strides)
            return None
    except KERNEL_REFUSALS as error:
        return fallback.refused(device, error, dtype)
    return fallback.no_layout(device, dtype)


def fresh_copy(source: TensorBase, dtype: np.dtype[Any] | None = None) -> TensorBase:
    """A contiguous copy in memory of its own, without a gradient."""
    copy: TensorBase = new_like(source, source.shape, dtype)
    copy_into(copy, source)
    return copy


def unshared(result: T, *inputs: TensorBase) -> T:
    """The result of a function that makes new memory: a copy where it shows that of an input."""
    shows_input = any(result.storage is tensor.storage for tensor in inputs)
    copied: T = primitives.clone(result) if shows_input else result
    return copied


def as_words(launch: Callable[..., None], out: TensorBase, arrays: Sequence[TensorBase], *args: Any) -> None:
    """Launch a kernel that moves words for operands and a result of shorter elements, by way of int32."""
    wide = empty_tensor(type(out).result_class, out.shape, np.dtype(np.int32), out.device)
    launch(wide, *(_cast_without_gradient(array, wide.dtype) for array in arrays), *args)
    kernel = primitives.cast.kernel
    assert kernel is not None
    kernel.run(out, wide, dtype=out.dtype.name)


def new_like(tensor: TensorBase, shape: Shape, dtype: np.dtype[Any] | None = None) -> Any:
    """An uninitialised tensor of that shape, on the device of another one."""
    if isinstance(tensor, BatchedTensorBase):
        return tensor.allocate_samples(shape, dtype or tensor.dtype)
    return empty_tensor(type(tensor).result_class, shape, dtype or tensor.dtype, tensor.device)


def fill_with(target: TensorBase, value: Any, name: str = "fill_") -> None:
    """Set all elements of `target` to one number; `name` is that of the op, for errors.

    Raises:
        ArgumentError: a Python number does not fit into the dtype; a float may round to infinity.
    """
    if not isinstance(value, np.ndarray):
        check_fits(name, value, target.dtype)
    if 0 in target.shape:
        return
    target = all_samples(target)
    element = element_of(value, target.dtype)
    if target.device.is_host:
        few = math.prod(target.shape) * element.itemsize <= FEW_BYTES
        if few and not listeners.followed() and target.device.simulated is None:
            _assign(element, host_array(target))
            return
        bits = int.from_bytes(element.tobytes().ljust(8, b"\0"), sys.byteorder, signed=True)
        _write_on_host("fill_", target, _assign_bits, numbers=[bits], kernel=FILL_ON_HOST)
        return
    words = np.frombuffer(element.tobytes() * (4 if element.itemsize < 8 else 1), np.uint32)
    start, nbytes = target.offset * element.itemsize, target.numel() * element.itemsize
    whole_words = start % 4 == 0 and (nbytes % 4 == 0 or start + nbytes == target.storage.nbytes)
    first, count = start // 4, -(-nbytes // 4)
    if target.is_contiguous() and whole_words and (words == words[0]).all():
        target.device.fill(target.storage, int(words[0]), first, count)
    elif target.is_contiguous() and whole_words and target.numel() == 1:
        for place, word in enumerate(words.tolist(), first):
            target.device.fill(target.storage, word, place, 1)
    else:
        copy_into(target, from_host(type(target).result_class, element, target.device, copy=False))


def element_of(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A number as an array without axes. Floats that are too large become inf without a warning, integers
    lose their upper bits."""
    # Where there is nothing to warn of: to keep NumPy from it takes longer than all the rest.
    kind = type(value)
    if dtype == FLOAT32 and (kind is float or kind is int) and (value == 0 or 1e-30 < abs(value) < 1e30):
        return np.array(value, dtype)
    if kind is int and abs(value) < 2**63 and kind_of(dtype) in "iu":
        return np.asarray(value).astype(dtype)
    with np.errstate(all="ignore"):
        return converted(np.asarray(value), dtype)


def owns_words(tensor: TensorBase) -> bool:
    """Whether a kernel may write whole words: the tensor starts its storage and fills its words."""
    if tensor.offset or not tensor.is_contiguous():
        return False
    nbytes = tensor.numel() * tensor.dtype.itemsize
    return nbytes % 4 == 0 or nbytes == tensor.storage.nbytes


def overlaps_itself(tensor: TensorBase) -> bool:
    """Whether several elements share memory, as in an expanded tensor."""
    tensor = all_samples(tensor)
    return 0 not in tensor.shape and any(
        size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )


def _shares_memory(target: TensorBase, source: TensorBase) -> bool:
    """Whether a copy on the CPU may read what it writes."""
    if target.storage is source.storage:
        return True
    if target.storage.pending is not None or source.storage.pending is not None:
        return False
    (start, end), (other_start, other_end) = (
        (span.buffer.address + span.offset, span.buffer.address + span.offset + span.nbytes)
        for span in (target.storage.span, source.storage.span)
    )
    return bool(start < other_end and other_start < end)


def _write_on_host(
    name: str,
    target: TensorBase,
    write: Callable[..., None],
    sources: Sequence[TensorBase] = (),
    numbers: Sequence[int] = (),
    kernel: WorkKernel | None = None,
) -> None:
    """Write the memory of a tensor on the CPU by ``write(*arrays of sources, target, *numbers)``."""
    simulated = target.device.simulated
    if simulated is not None:
        simulated.launch("memory", 2 * target.numel() * target.dtype.itemsize, 0)
        if not simulated.computes:
            return
    host_work(name, write, sources, [target], numbers, kernel)


def _assign_bits(target: Any, bits: int) -> None:
    """Set all elements to one, whose bytes are the first ones of an int64."""
    _assign(np.array([bits], np.int64).view(target.dtype)[0], target)


def _assign(values: Any, target: Any) -> None:
    if not target.flags.writeable:
        raise ArgumentError("[copy_] the tensor shares memory with a read-only array; change a .clone()")
    target[...] = converted(values, target.dtype) if target.dtype in FLOAT8 else values


def _cast_without_gradient(source: TensorBase, dtype: np.dtype[Any]) -> TensorBase:
    detached = source.strided_view(source.shape, source.strides, source.offset)
    converted: TensorBase = primitives.cast(detached, dtype.name)
    return converted


def _launch_copy(target: TensorBase, source: TensorBase, shape: Shape, strides: Sequence[Shape]) -> None:
    """Copy on the device; `strides` are those of source and target, for the merged axes of `shape`."""
    offsets, itemsize = (source.offset, target.offset), target.dtype.itemsize
    transpose = transpose_launch(itemsize, shape, strides[0], strides[1], offsets)
    if transpose:
        target.device.launch(transpose, source.storage, target.storage)
        return
    for word in (MAX_WORD_BYTES, 4) if itemsize < 4 else (MAX_WORD_BYTES,):
        per_word = word // itemsize
        if shape and all(
            s[-1] == 1 and not any(n % per_word for n in (shape[-1], offset, *s[:-1]))
            for s, offset in zip(strides, offsets, strict=True)
        ):
            shape = (*shape[:-1], shape[-1] // per_word)
            strides = [(*(stride // per_word for stride in s[:-1]), 1) for s in strides]
            offsets, itemsize = (source.offset // per_word, target.offset // per_word), word
            break
    rank = min(r for r in COPY_RANKS if r >= len(shape))
    missing = rank - len(shape)
    axes = [*(1,) * missing, *shape]
    for s in strides:
        axes += [*(0,) * missing, *s]
    count = math.prod(shape)
    if itemsize >= 4:
        code, invocations = COPY[rank][itemsize], count
    else:
        whole = owns_words(target)
        code, invocations = COPY_BYTES[rank, itemsize, whole], -(-count * itemsize // 4) if whole else count
    grid = strided_grid(invocations, WORKGROUP_SIZE, target.device)
    launch = Launch(code, grid, COPY_PUSH[rank].pack(count, *offsets, *axes), (max(len(shape), 1),))
    target.device.launch(launch, source.storage, target.storage)


def _copy_through_host(target: TensorBase, source: TensorBase) -> None:
    """Change the target's elements in a copy of its whole storage on the host."""
    storage, device, itemsize = target.storage, target.device, target.dtype.itemsize
    data = np.empty(storage.nbytes, np.uint8)
    device.download(storage, data)
    strides = tuple(stride * itemsize for stride in target.strides)
    memory: np.ndarray[Any, Any] = np.ndarray(
        target.shape, target.dtype, data, target.offset * itemsize, strides
    )
    memory[...] = source.on_host()
    device.write(storage, data)
