"""How elementwise kernels are made and launched: by how their operands lie in memory."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from dl4all.ops.core import launch as launching
from dl4all.ops.core.launch import MAX_GRID_SIZE, shader, strided_grid
from dl4all.ops.core.op import primitives
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape, TensorBase, contiguous_strides, from_host
from dl4all.ops.elementwise.transpose_copy import TRANSPOSE, transpose_launch
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.programs import Launch

RANKS = (0, 4)  # axes of the kernels' index arithmetic after merging; 0 is contiguous
TURNED = 2  # likewise: four neighbours along two axes, which lie in another order in the result
COPY_RANKS = (0, TURNED, 4, 8)  # of clone, which is what puts tensors of more axes in order for the others
FOURS = 1  # in place of a number of axes: the most there are, and four neighbours to an invocation
WORKGROUP = 128
ENOUGH = 8192  # workgroups, to keep any device busy
ROW = 64  # from this length on, workgroups are spread over rows, which saves dividing for each element
KINDS = {FOURS, TURNED}
DIVIDED, SPREAD, FLAT = range(3)  # how invocations walk over the elements, as in elementwise/elements.glsl
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103  # from here on, numbers round to infinity

FILES = ("elementwise/unary.comp", "elementwise/binary.comp", "elementwise/ternary.comp")


class Word(NamedTuple):
    """How a dtype's elements lie in memory: in words of a GLSL type, to be packed with ``code``."""

    glsl: str
    code: str
    several: bool = False  # four to a word, in expressions an int each


LONG = "ivec2"
WORDS = {
    "float32": Word("float", "f"),
    "int32": Word("int", "i"),
    "int64": Word(LONG, "i"),  # few devices compute with them: expressions take the low and the high word
    "uint8": Word("uint", "i", several=True),
    "bool": Word("uint", "i", several=True),
}

# The functions of each file in include/math; a kernel takes in those files that its expression needs.
LIBRARY = {
    "EXPONENTIAL": ("expf", "exp2f", "expm1f", "sinhf", "coshf", "tanhf", "sigmoidf"),
    "LOGARITHM": ("logf", "log2f", "log10f", "log1pf"),
    "TRIGONOMETRY": ("sinf", "cosf", "tanf", "asinf", "acosf", "atanf", "atan2f"),
    "ERROR_FUNCTION": ("erff", "erfcf"),
    "POWER": ("powf",),
    "REMAINDER": ("fmodf", "remainderf", "floor_dividef"),
}


class Variant(NamedTuple):
    """One kernel, and how its push constants are packed."""

    code: Shader
    rank: int
    push: struct.Struct
    floats: tuple[int, ...]  # which of the push constants are float32
    elements: int  # that an invocation writes: 1 or 4


Variants: TypeAlias = dict[int, Variant]


def launch(
    variants: Variants, out: TensorBase, operands: Sequence[Any], arguments: Sequence[Any] = ()
) -> None:
    """Run the kernel that suits the operands' strides; where an operand is a number, no memory is read.

    `out` is contiguous, and operands are of the dtypes that the variants are for.
    """
    shape, strides = out.shape, out.strides
    flat, numbers, tensors = True, 0, []
    for place, operand in enumerate(operands):
        if isinstance(operand, TensorBase):
            expanded = operand if operand.shape == shape else _expand(operand, shape)
            flat = flat and expanded.strides == strides
            tensors.append(expanded)
        else:
            numbers |= 1 << place
    axes: Sequence[int] = ()
    variant: Variant | None = None
    if not flat:
        if TURNED in variants and _turned(out, tensors[0]):
            return
        variant, tensors, axes = _strided(variants, out, tensors, numbers, len(operands))
    count = out.numel()
    walk = DIVIDED
    if variant is None:
        by_four = FOURS in variants and count % 4 == 0 and not any(tensor.offset % 4 for tensor in tensors)
        variant = variants[FOURS if by_four else 0]
        axes, walk = (0,) * (variant.rank * (1 + len(operands))), FLAT
    offsets, storages, values, left = [], [], [], iter(tensors)
    for place, operand in enumerate(operands):
        tensor = tensors[0] if numbers >> place & 1 else next(left)  # something must be bound
        offsets.append(tensor.offset)
        storages.append(tensor.storage)
        values.append(operand if numbers >> place & 1 else 0)
    push = _packed(variant, (count, *offsets, *(values if len(values) > 1 else ()), *axes, *arguments))
    constants: tuple[int, ...] = (numbers,) if numbers else ()
    groups = strided_grid(-(-count // variant.elements), WORKGROUP)
    if variant.rank:
        length, used = axes[variant.rank - 1], sum(size != 1 for size in axes[: variant.rank])
        four, alike = variant is variants.get(FOURS), 0
        if walk != FLAT and (four or (length >= ROW and length % variant.elements == 0)):
            walk, groups = SPREAD, _over_rows(length // variant.elements, count // length, several=four)
            alike = _alike(axes, numbers, len(operands))
        constants = (numbers, max(used, 1), walk, *((alike,) if four else ()))
    out.device.launch(Launch(variant.code, groups, push, constants), *storages, out.storage)


def _over_rows(length: int, rows: int, *, several: bool) -> tuple[int, int, int]:
    """Workgroups that stride over the rows in y, and over a row in x: few, as each finds the row's place.

    With `several`, short rows share a workgroup.
    """
    together = WORKGROUP >> min((length - 1).bit_length(), 7) if several else 1
    y = min(-(-rows // together), MAX_GRID_SIZE, launching.STRIDED_GRID_CAP)
    x, _, _ = strided_grid(length, WORKGROUP)
    return min(x, max(1, ENOUGH // y)), y, 1


def _strided(
    variants: Variants, out: TensorBase, tensors: list[TensorBase], numbers: int, count: int
) -> tuple[Variant | None, list[TensorBase], Sequence[int]]:
    """The variant for operands that are not all contiguous, with sizes and strides as it takes them.

    None if they are contiguous after all, once axes have become one or copies were made.
    """
    shape, strides = merge_axes(out.shape, [t.strides for t in tensors])
    if len(shape) > max(variants):
        tensors = [_copy(t) for t in tensors]
        shape, strides = merge_axes(out.shape, [t.strides for t in tensors])
    if all(s == contiguous_strides(shape) for s in strides):
        return None, tensors, ()
    variant = variants.get(FOURS)
    if variant is None or len(shape) > variant.rank or not _by_four(tensors, shape, strides):
        variant = variants[min(r for r in variants.keys() - KINDS if r >= len(shape))]
    rank = variant.rank
    missing = rank - len(shape)  # axes of size 1 in front fill the kernel's fixed number of them
    axes = [*(1,) * missing, *shape]
    left = iter(strides)
    for place in range(count):
        axes += (0,) * rank if numbers >> place & 1 else (*(0,) * missing, *next(left))
    return variant, tensors, axes


def _turned(out: TensorBase, tensor: TensorBase) -> bool:
    """Copy the elements four by four, if they lie so."""
    shape, strides = merge_axes(out.shape, [tensor.strides, out.strides])
    launch = transpose_launch(shape, strides[0], strides[1], (tensor.offset, out.offset))
    if launch:
        out.device.launch(launch, tensor.storage, out.storage)
    return launch is not None


def _by_four(tensors: Sequence[TensorBase], shape: Shape, strides: Sequence[Shape]) -> bool:
    """Whether fours of elements are neighbours in each operand, at multiples of four, or all the same."""
    return shape[-1] % 4 == 0 and all(
        s[-1] == 0 or (s[-1] == 1 and not any(number % 4 for number in (t.offset, *s[:-1])))
        for t, s in zip(tensors, strides, strict=True)
    )


def _alike(axes: Sequence[int], numbers: int, operands: int) -> int:
    """The operands that have one element for each row, as bits."""
    rank = len(axes) // (1 + operands)
    last = axes[2 * rank - 1 :: rank]
    return sum(1 << place for place, stride in enumerate(last) if stride == 0) & ~numbers


def variants(
    expression: str,
    operands: Sequence[Word],
    result: Word,
    arguments: Mapping[str, str],
    ranks: Iterable[int],
) -> Variants:
    """The kernels of an expression, by rank or FOURS.

    Args:
        expression: in GLSL, of x, or of a, b and c.
        operands, result: how their elements lie in memory.
        arguments: GLSL types by name.
        ranks: numbers of axes; 0 is for contiguous operands.
    """
    names = ("x",) if len(operands) == 1 else ("a", "b", "c")[: len(operands)]
    defines: dict[str, Any] = {
        f"OP({','.join(names)})": f"({expression})",
        "PARAMS": "".join(f"{kind} {name};" for name, kind in arguments.items()),
    }
    for letter, word in (*zip("ABC", operands, strict=False), ("Y", result)):
        if word.glsl != "float":
            defines[f"{letter}_WORD"] = word.glsl
        if word.several:
            defines[f"{letter}_BYTES"] = 1
    if LONG in (word.glsl for word in operands):
        defines["LONG"] = 1
    used = set(re.findall(r"\w+", expression))
    defines |= {section: 1 for section, functions in LIBRARY.items() if used & set(functions)}
    numbers = "".join(word.code for word in operands) if len(operands) > 1 else ""
    rest = "".join("f" if kind == "float" else "i" for kind in arguments.values())

    def variant(rank: int, elements: int, **more: int) -> Variant:
        code = "I" * (1 + len(operands)) + numbers + "I" * (rank + rank * len(operands)) + rest
        return Variant(
            shader(FILES[len(operands) - 1], RANK=rank, **more, **defines),
            rank,
            struct.Struct(f"<{code}"),
            tuple(place for place, letter in enumerate(code) if letter == "f"),
            elements,
        )

    made = {rank: variant(rank, 4 if result.several else 1) for rank in ranks if rank != TURNED}
    if "LONG" not in defines:
        made[FOURS] = variant(max(made), 4, FOURS=1)
    if TURNED in ranks and not result.several:
        made[TURNED] = Variant(TRANSPOSE, 0, struct.Struct(""), (), 16)
    return made


def _packed(variant: Variant, values: Sequence[Any]) -> bytes:
    try:
        return variant.push.pack(*values)
    except (struct.error, OverflowError):  # struct refuses what float32 rounds to infinity, and 2.0 as an int
        exact = list(values)
        for place, value in enumerate(values):
            if place not in variant.floats:
                exact[place] = int(value)
            elif abs(value) >= FLOAT32_OVERFLOW:
                exact[place] = math.copysign(math.inf, value)
        return variant.push.pack(*exact)


def _copy(tensor: TensorBase) -> TensorBase:
    """The elements in row-major order; by way of the host where not even clone has enough axes."""
    axes, _ = merge_axes(tensor.shape, [tensor.strides])
    copied: TensorBase = (
        primitives.clone(tensor)
        if len(axes) <= max(COPY_RANKS)
        else from_host(type(tensor).result_class, tensor.on_host(), tensor.device, copy=True)
    )
    return copied


def _expand(tensor: TensorBase, shape: Shape) -> TensorBase:
    """A view of `shape` in which the axes that broadcast have stride 0."""
    if tensor.shape == shape:
        return tensor
    missing = len(shape) - len(tensor.shape)
    strides = (0,) * missing + tuple(
        0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    expanded: TensorBase = tensor.as_strided(shape, strides, tensor.offset)
    return expanded
