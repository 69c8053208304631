"""Elementwise kernels: one GLSL expression, compiled in variants for the memory layouts of its operands.

``build_variants`` declares the variants of an expression, ``launch_elementwise`` picks the one that fits the
operands' strides and launches it.
"""

from __future__ import annotations

import enum
import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dl4all.ops.core.kernels import launch as launching
from dl4all.ops.core.kernels.launch import (
    FLOAT32_OVERFLOW,
    MAX_GRID_SIZE,
    SOFTWARE_GROUPS,
    ceil_div,
    rounded_groups,
    shader,
    strided_grid,
    too_wide,
)
from dl4all.ops.core.kernels.launch_plan import ElementwisePlan
from dl4all.ops.core.op import primitives
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape, TensorBase, contiguous_strides, from_host
from dl4all.ops.elementwise.transpose_copy import TRANSPOSES, transpose_launch
from dl4all.runtime.protocols import Grid
from dl4all.runtime.spirv import Shader
from dl4all.scheduler import fallback
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch

# Axes of the kernels' index arithmetic, after merging. Operands with more axes are copied first. clone makes
# these copies, so it has a kernel for more axes.
STRIDED_RANKS = (4,)
CLONE_RANKS = (4, 8)

WORKGROUP_SIZE = 128
SUFFICIENT_WORKGROUPS = 8192  # Enough to keep any device busy.
MIN_ROW_LENGTH = 64  # From here on workgroups are spread over rows, which saves a division per element.

SHADER_FILES = ("elementwise/unary.comp", "elementwise/binary.comp", "elementwise/ternary.comp")


class RowWalk(enum.IntEnum):
    """The rows of the invocations of a kernel with strides, as in elementwise/elements.glsl."""

    DIVIDED = 0  # by dividing the element's index by the length of a row
    ROWS = 1  # a workgroup strides over rows
    FLAT = 2  # all operands are contiguous and form one row


class ElementType(NamedTuple):
    """The storage of a dtype's elements: words of a GLSL type, which ``struct`` packs with ``code``."""

    glsl: str
    code: str
    packed: bool = False  # four elements per word, which expressions see as ints


GLSL_INT64 = "ivec2"  # Few devices compute with 64-bit integers: expressions see the low and the high word.
ELEMENT_TYPES = {
    "float32": ElementType("float", "f"),
    "int32": ElementType("int", "i"),
    "int64": ElementType(GLSL_INT64, "i"),
    "uint8": ElementType("uint", "i", packed=True),
    "bool": ElementType("uint", "i", packed=True),
}

# The functions of each file in include/math. A kernel includes the files whose functions it calls.
MATH_FUNCTIONS = {
    "EXPONENTIAL": ("expf", "exp2f", "expm1f", "sinhf", "coshf", "tanhf", "sigmoidf"),
    "LOGARITHM": ("logf", "log2f", "log10f", "log1pf"),
    "TRIGONOMETRY": ("sinf", "cosf", "tanf", "asinf", "acosf", "atanf", "atan2f"),
    "ERROR_FUNCTION": ("erff", "erfcf", "erfcxf"),
    "INVERSE_ERROR_FUNCTION": ("erfinvf",),
    "NORMAL_QUANTILE": ("ndtrif",),
    "GAMMA": ("lgammaf", "digammaf", "zetaf"),
    "POWER": ("powf",),
    "REMAINDER": ("fmodf", "remainderf", "floor_dividef"),
}


class ElementwiseVariant(NamedTuple):
    """One kernel of an expression, and how its push constants are packed."""

    shader: Shader
    rank: int  # axes of its index arithmetic; 0 where it has none
    push: struct.Struct
    float_positions: tuple[int, ...]  # which push constants are float32
    elements: int  # written by an invocation at a time: 1 or 4


class Variants(NamedTuple):
    """The kernels of one expression, by the layout of its operands."""

    contiguous: ElementwiseVariant  # every operand is contiguous from its offset on
    strided: tuple[ElementwiseVariant, ...]  # any strides, by ascending rank
    vec4: ElementwiseVariant | None  # any strides with rows of aligned vectors of four; None for int64
    transpose: Shader | None  # copies 4 by 4 tiles of words of a transposed operand; only for clone

    @property
    def shaders(self) -> tuple[Shader, ...]:
        kernels = (self.contiguous, *self.strided, *((self.vec4,) if self.vec4 else ()))
        return (
            *(variant.shader for variant in kernels),
            *((self.transpose,) if self.transpose else ()),
        )


# Building


def build_variants(
    expression: str,
    operands: Sequence[ElementType],
    result: ElementType,
    arguments: Mapping[str, str],
    ranks: tuple[int, ...] = STRIDED_RANKS,
    *,
    transposes: bool = False,
) -> Variants:
    """The kernels of an expression.

    Args:
        expression: in GLSL, of x, or of a, b and c.
        operands: how their elements are stored.
        result: how its elements are stored.
        arguments: GLSL types by name.
        ranks: of the kernels for operands with strides, ascending.
        transposes: whether the expression is a copy, which has a kernel of its own for transposed operands.
    """
    names = ("x",) if len(operands) == 1 else ("a", "b", "c")[: len(operands)]
    defines: dict[str, Any] = {
        f"OP({','.join(names)})": f"({expression})",
        "PARAMS": "".join(f"{glsl_type} {name};" for name, glsl_type in arguments.items()),
    }
    for letter, element in (*zip("ABC", operands, strict=False), ("Y", result)):
        if element.glsl != "float":
            defines[f"{letter}_WORD"] = element.glsl
        if element.packed:
            defines[f"{letter}_BYTES"] = 1
    int64 = any(element.glsl == GLSL_INT64 for element in operands)
    if int64:
        defines["INT64"] = 1
    identifiers = set(re.findall(r"\w+", expression))
    defines |= {file: 1 for file, functions in MATH_FUNCTIONS.items() if identifiers & set(functions)}
    # The push constants: element count, offsets, operands that are numbers, sizes and strides, arguments.
    number_codes = "".join(element.code for element in operands) if len(operands) > 1 else ""
    argument_codes = "".join("f" if glsl_type == "float" else "i" for glsl_type in arguments.values())

    def variant(rank: int, elements: int, **more_defines: int) -> ElementwiseVariant:
        codes = "I" * (1 + len(operands)) + number_codes + "I" * (rank * (1 + len(operands))) + argument_codes
        return ElementwiseVariant(
            shader(SHADER_FILES[len(operands) - 1], RANK=rank, **more_defines, **defines),
            rank,
            struct.Struct(f"<{codes}"),
            tuple(position for position, code in enumerate(codes) if code == "f"),
            elements,
        )

    elements = 4 if result.packed else 1
    return Variants(
        variant(0, elements),
        tuple(variant(rank, elements) for rank in ranks),
        None if int64 else variant(max(ranks), 4, VEC4=1),
        TRANSPOSES[1 if result.packed else 4] if transposes and not int64 else None,
    )


# Launching


class Arrangement(NamedTuple):
    """Which variant runs, and over what."""

    variant: ElementwiseVariant
    groups: Grid
    constants: tuple[int, ...]
    tensors: tuple[TensorBase, ...]  # of each operand; a number binds one of the others'
    before: tuple[int, ...]  # push constants in front of the operands that are numbers
    axes: Sequence[int]  # those behind them: sizes and strides


def launch_elementwise(
    variants: Variants, out: TensorBase, operands: Sequence[Any], arguments: Sequence[Any] = ()
) -> ElementwisePlan | None:
    """Launch the variant that fits the operands' strides.

    Args:
        variants: of the expression, for the operands' dtypes.
        out: contiguous.
        operands: tensors that broadcast to the shape of `out`, or numbers, for which no memory is read.
        arguments: the values of the op's arguments.

    Returns:
        What to do for other operands of the same layouts; None where it took more than one launch.
    """
    arranged = _arrange(variants, out, operands)
    if arranged is None:
        return None
    variant, groups, constants, tensors, before, axes = arranged
    numbers = [0 if isinstance(o, TensorBase) else o for o in operands] if len(operands) > 1 else []
    values = (*before, *numbers, *axes, *arguments)
    code = launching.holding(variant.shader, *tensors, out)
    launch = Launch(code, groups, _pack(variant, values), constants)
    storages = (*(tensor.storage for tensor in tensors), out.storage)
    out.device.launch(launch, *storages)
    own = [operand.storage for operand in operands if isinstance(operand, TensorBase)]
    if not out.device.plannable or not all(any(s is o for o in own) for s in storages[:-1]):
        return None
    places = [len(before) + position for position, o in enumerate(operands) if not isinstance(o, TensorBase)]
    first = len(before) + len(numbers) + len(axes)
    places += range(first, first + len(arguments))
    binds = _positions(operands)
    return ElementwisePlan(out, out.device.prepare(launch, *storages), binds, variant.push, values, places)


def _positions(operands: Sequence[Any]) -> tuple[int, ...]:
    """Which one of the operands that are tensors each operand binds; a number binds the first."""
    count, positions = 0, list[int]()
    for operand in operands:
        is_tensor = isinstance(operand, TensorBase)
        positions.append(count if is_tensor else 0)
        count += is_tensor
    return tuple(positions)


def _arrange(variants: Variants, out: TensorBase, operands: Sequence[Any]) -> Arrangement | None:
    """The variant for the operands and its grid; None if a copy of a transposed operand was launched."""
    shape, strides = out.shape, out.strides
    contiguous, scalar_mask, tensors = True, 0, []
    for position, operand in enumerate(operands):
        if isinstance(operand, TensorBase):
            view = operand if operand.shape == shape else broadcast_view(operand, shape)
            contiguous = contiguous and view.strides == strides
            tensors.append(view)
        else:
            scalar_mask |= 1 << position
    axes: Sequence[int] = ()
    variant: ElementwiseVariant | None = None
    if not contiguous:
        if variants.transpose is not None and _launch_transpose(out, tensors[0]):
            return None
        variant, tensors, axes = _strided_variant(variants, out, tensors, scalar_mask, len(operands))
    numel = out.numel()
    walk = RowWalk.DIVIDED
    if variant is None:
        variant = variants.contiguous
        if variants.vec4 and numel % 4 == 0 and not any(tensor.offset % 4 for tensor in tensors):
            variant = variants.vec4
        axes, walk = (0,) * (variant.rank * (1 + len(operands))), RowWalk.FLAT
    remaining = iter(tensors)
    bound = tuple(  # every binding needs a buffer
        tensors[0] if scalar_mask >> position & 1 else next(remaining) for position in range(len(operands))
    )
    constants: tuple[int, ...] = (scalar_mask,) if scalar_mask else ()
    groups = strided_grid(ceil_div(numel, variant.elements), WORKGROUP_SIZE, out.device)
    if variant.rank:
        sizes = axes[: variant.rank]
        row_length, used_axes = sizes[-1], sum(size != 1 for size in sizes)
        vec4, constant_rows = variant is variants.vec4, 0
        if walk != RowWalk.FLAT and (
            vec4 or (row_length >= MIN_ROW_LENGTH and row_length % variant.elements == 0)
        ):
            walk = RowWalk.ROWS
            groups = grid_over_rows(
                row_length // variant.elements, numel // row_length, out.device, short_rows_share=vec4
            )
            constant_rows = _constant_rows(axes, scalar_mask, len(operands))
        constants = (scalar_mask, max(used_axes, 1), int(walk), *((constant_rows,) if vec4 else ()))
    before = (numel, *(tensor.offset for tensor in bound))
    return Arrangement(variant, groups, constants, bound, before, axes)


def broadcast_view(tensor: TensorBase, shape: Shape) -> TensorBase:
    """A view of `shape` in which the axes that broadcast have stride 0, without a gradient."""
    if tensor.shape == shape:
        return tensor
    missing = len(shape) - len(tensor.shape)
    strides = (0,) * missing + tuple(
        0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    view: TensorBase = tensor.strided_view(shape, strides, tensor.offset)
    return view


def grid_over_rows(row_length: int, rows: int, device: Device, *, short_rows_share: bool) -> Grid:
    """Workgroups that stride over rows in y and along a row in x.

    There are few in x, as each workgroup computes where its row starts. Short rows may share a workgroup.
    """
    rows_per_group = WORKGROUP_SIZE >> min((row_length - 1).bit_length(), 7) if short_rows_share else 1
    groups = rounded_groups(ceil_div(rows, rows_per_group), device)
    y = min(groups, MAX_GRID_SIZE, launching.STRIDED_GRID_CAP)
    x, _, _ = strided_grid(row_length, WORKGROUP_SIZE)
    enough = SOFTWARE_GROUPS if device.info.type == "software" else SUFFICIENT_WORKGROUPS
    return min(x, max(1, enough // y)), y, 1


def _strided_variant(
    variants: Variants, out: TensorBase, tensors: list[TensorBase], scalar_mask: int, operand_count: int
) -> tuple[ElementwiseVariant | None, list[TensorBase], Sequence[int]]:
    """The variant for operands that are not all contiguous, the tensors it reads, their sizes and strides.

    The variant is None if the operands are contiguous after all, once axes were merged or copies made.
    """
    shape, strides = merge_axes(out.shape, [t.strides for t in tensors])
    if len(shape) > variants.strided[-1].rank:
        tensors = [_contiguous_copy(t) for t in tensors]
        shape, strides = merge_axes(out.shape, [t.strides for t in tensors])
    if all(s == contiguous_strides(shape) for s in strides):
        return None, tensors, ()
    variant = variants.vec4
    if variant is None or len(shape) > variant.rank or not _fits_vec4(tensors, shape, strides):
        variant = next(v for v in variants.strided if v.rank >= len(shape))
    missing = variant.rank - len(shape)  # the kernel's unused axes come first and have size 1
    axes = [*(1,) * missing, *shape]
    remaining = iter(strides)
    for position in range(operand_count):
        is_number = scalar_mask >> position & 1
        axes += (0,) * variant.rank if is_number else (*(0,) * missing, *next(remaining))
    return variant, tensors, axes


def _launch_transpose(out: TensorBase, tensor: TensorBase) -> bool:
    """Copy a transposed tensor by tiles, if its strides allow that; return whether they do."""
    shape, strides = merge_axes(out.shape, [tensor.strides, out.strides])
    launch = transpose_launch(out.dtype.itemsize, shape, strides[0], strides[1], (tensor.offset, out.offset))
    if launch:
        out.device.launch(launch, tensor.storage, out.storage)
    return launch is not None


def _fits_vec4(tensors: Sequence[TensorBase], shape: Shape, strides: Sequence[Shape]) -> bool:
    """Whether each operand's rows consist of aligned vectors of four elements, or of one repeated element."""
    return shape[-1] % 4 == 0 and all(
        s[-1] == 0 or (s[-1] == 1 and not any(number % 4 for number in (t.offset, *s[:-1])))
        for t, s in zip(tensors, strides, strict=True)
    )


def _constant_rows(axes: Sequence[int], scalar_mask: int, operand_count: int) -> int:
    """Bit mask of the tensors whose rows are one repeated element; `axes` are sizes, then strides."""
    rank = len(axes) // (1 + operand_count)
    last_strides = axes[2 * rank - 1 :: rank]
    return sum(1 << position for position, stride in enumerate(last_strides) if stride == 0) & ~scalar_mask


def _pack(variant: ElementwiseVariant, values: Sequence[Any]) -> bytes:
    """The push constants of a launch.

    Raises:
        TooLargeError: an int has more than 32 bits.
    """
    try:
        return variant.push.pack(*values)
    except (struct.error, OverflowError):  # struct refuses what float32 rounds to infinity, and 2.0 as an int
        exact = list(values)
        for position, value in enumerate(values):
            if position not in variant.float_positions:
                exact[position] = int(value)
            elif abs(value) >= FLOAT32_OVERFLOW:
                exact[position] = math.copysign(math.inf, value)
        try:
            return variant.push.pack(*exact)
        except struct.error:
            raise too_wide(exact) from None


def _contiguous_copy(tensor: TensorBase) -> TensorBase:
    """The elements in row-major order, copied on the host where clone's kernels have too few axes."""
    axes, _ = merge_axes(tensor.shape, [tensor.strides])
    copy: TensorBase
    if len(axes) <= max(CLONE_RANKS):
        copy = primitives.clone(tensor)
    else:
        with fallback.on_host("clone", tensor.device, fallback.no_layout(tensor.device, tensor.dtype.name)):
            copy = from_host(type(tensor).result_class, tensor.on_host(), tensor.device, copy=True)
    return copy
