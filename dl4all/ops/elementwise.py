"""Ops that compute each element of the result from the elements at the same place.

The kernel is made from one GLSL expression over the operands' names, with ``p.NAME`` for an
argument. Two shader files serve all of them, ``elementwise/unary.comp`` and ``binary.comp``; a
Python number in the place of an operand becomes an argument of the unary one.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.base import DTYPES, Shape, TensorBase, contiguous_strides, from_host
from dl4all.ops.launch import pack, run, shader, spread
from dl4all.ops.op import NUMBERS, REGISTRY, Example, Kernel, Op, P, Result, example, register
from dl4all.runtime.spirv import Shader

RANKS = (0, 4)  # axes of the kernels' index arithmetic after merging; 0 is contiguous
COPY_RANKS = (0, 4, 8)  # of clone, which is what puts tensors of more axes in order for the others
WORKGROUP = 128

Promotion = Literal["common", "float"]

UNARY_EXAMPLES = (example((13, 7)), example((2, 3, 1, 5, 7)), example(()), example((1,)), example((0, 3)))
BINARY_EXAMPLES = (
    example((13, 7), (13, 7)),
    example((13, 1), (7,)),
    example((), (5, 3)),
    example((2, 3, 7, 5), (3, 1, 1)),
    # No two axes can be treated as one, so there are more than the kernel has.
    example((2, 1, 3, 1, 2, 1), (1, 3, 1, 2, 1, 5)),
    example((1,), (1, 1)),
    example((0, 3), (1, 3)),
)


def elementwise(
    *,
    glsl: str,
    promotion: Promotion = "common",
    booleans: bool = True,
    ranks: tuple[int, ...] = RANKS,
    examples: Iterable[Example] = (),
) -> Callable[[Callable[P, Any]], Op[P]]:
    """Declare an elementwise op of one operand, or of two called ``a`` and ``b``.

    Args:
        glsl: the result as a GLSL expression, e.g. ``"a + b"`` or ``"max(x, p.low)"``.
        promotion: ``"common"`` computes in the operands' common dtype, ``"float"`` turns integers
            into float32 first.
        booleans: whether the result may be bool.
        ranks: numbers of axes for which there is a kernel; with more, operands are copied first.
        examples: hard cases beside those that every elementwise op has.
    """

    def declare(body: Callable[P, Any]) -> Op[P]:
        name = body.__name__
        parameters = inspect.signature(body).parameters.values()
        operands = tuple(p.name for p in parameters if "Array" in str(p.annotation))
        arguments = {p.name: str(p.annotation) for p in parameters if p.name not in operands}

        def infer(*values: Any, **_: Any) -> Result:
            dtype = promote(name, values, promotion)
            if dtype == np.bool_ and not booleans:
                raise DTypeError(f"[{name}] bool is not supported; convert with .to('int64') or .float()")
            for value in values:
                if isinstance(value, NUMBERS):
                    _check_fits(name, value, dtype)
            return broadcast_shapes(name, values), dtype

        @functools.wraps(body)
        def in_one_dtype(*values: Any, **given: Any) -> Any:
            dtype = promote(name, values, promotion)
            return body(*(np.asarray(v, dtype) for v in values), **given)  # type: ignore[arg-type]

        kernel = _kernel(glsl, operands, arguments, ranks)
        common = UNARY_EXAMPLES if len(operands) == 1 else BINARY_EXAMPLES
        return register(Op(in_one_dtype, infer, kernel, (*common, *examples), elementwise=True))

    return declare


def broadcast_shapes(name: str, operands: Iterable[Any]) -> Shape:
    """NumPy's broadcasting rule; numbers have the shape ().

    Raises:
        ShapeError: two sizes differ and neither is 1.
    """
    shapes = [o.shape for o in operands if isinstance(o, TensorBase)]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"[{name}] shapes {' and '.join(map(str, shapes))} do not broadcast: counted from the "
            "last axis, sizes must be equal or 1"
        ) from None


def promote(name: str, operands: Iterable[Any], promotion: Promotion) -> np.dtype[Any]:
    """The dtype to compute in, by PyTorch's rules: bool < integers < floats, and among tensors of
    the highest kind the widest; a number counts only where its kind is higher than every tensor's.

    Raises:
        DTypeError: an operand has a dtype that tensors cannot have.
    """
    best: np.dtype[Any] | None = None
    values = list(operands)
    for value in values:
        if isinstance(value, NUMBERS):
            continue
        dtype = value.dtype
        if dtype not in DTYPES:
            raise DTypeError(
                f"[{name}] dtype {dtype} is not supported; use one of {', '.join(map(str, DTYPES))}"
            )
        if best is None or _kind(dtype) > _kind(best):
            best = dtype
        elif _kind(dtype) == _kind(best):
            best = np.promote_types(best, dtype)
    for value in values:
        if isinstance(value, NUMBERS) and (best is None or _kind(_number(value)) > _kind(best)):
            best = _number(value)
    assert best is not None
    return np.dtype(np.float32) if promotion == "float" and best.kind != "f" else best


def _kind(dtype: np.dtype[Any]) -> int:
    return {"b": 0, "u": 1, "i": 1, "f": 2}[dtype.kind]


def _number(value: Any) -> np.dtype[Any]:
    if isinstance(value, (bool, np.bool_)):
        return np.dtype(np.bool_)
    return np.dtype(np.int64 if isinstance(value, (int, np.integer)) else np.float32)


def _check_fits(name: str, value: Any, dtype: np.dtype[Any]) -> None:
    """Raise unless a number can be computed with in `dtype`; a float may round to infinity.

    Raises:
        ArgumentError
    """
    if dtype.kind in "iu":
        fits = bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)
    else:
        fits = not isinstance(value, int) or abs(value) <= sys.float_info.max
    if not fits:
        raise ArgumentError(f"[{name}] the number {value} does not fit into {dtype}; convert the tensor")


GLSL_TYPES = {"float": "float", "int": "int"}


def _kernel(
    glsl: str, operands: tuple[str, ...], arguments: dict[str, str], ranks: tuple[int, ...]
) -> Kernel:
    if operands not in (("x",), ("a", "b")):
        raise ValueError(f"an elementwise op has operands (x) or (a, b), not {operands}")
    table: dict[tuple[str, ...], dict[int, Shader]] = {
        kept: {rank: _shader(glsl, operands, kept, arguments, rank) for rank in ranks}
        for kept in {operands, *((o,) for o in operands)}
    }

    def launch(out: TensorBase, *values: Any, **given: Any) -> None:
        kept = tuple(o for o, v in zip(operands, values, strict=True) if isinstance(v, TensorBase))
        numbers = [float(v) for v in values if not isinstance(v, TensorBase)]
        tensors = [_expand(_as_float32(v), out.shape) for v in values if isinstance(v, TensorBase)]
        shape, strides = merge_axes(out.shape, [t.strides for t in tensors])
        if len(shape) > max(ranks):
            tensors = [_copy(t) for t in tensors]
            shape, strides = merge_axes(out.shape, [t.strides for t in tensors])
        flat = all(s == contiguous_strides(shape) for s in strides)
        rank = 0 if flat else min(r for r in ranks if r >= len(shape))
        # Axes of size 1 in front fill the kernel's fixed number of them.
        missing = rank - len(shape)
        axes = [] if flat else [*(1,) * missing, *shape]
        for s in () if flat else strides:
            axes += [*(0,) * missing, *s]
        rest = [float(given[n]) if t == "float" else int(given[n]) for n, t in arguments.items()]
        push = pack(out.numel(), *(t.offset for t in tensors), *axes, *numbers, *rest)
        run(table[kept][rank], spread(out.numel(), WORKGROUP), push, *tensors, out)

    return Kernel(launch, tuple(code for by_rank in table.values() for code in by_rank.values()))


def _shader(
    glsl: str, operands: tuple[str, ...], kept: tuple[str, ...], arguments: dict[str, str], rank: int
) -> Shader:
    """The kernel in which the operands not in `kept` are numbers among the push constants."""
    fields = {o: "float" for o in operands if o not in kept}
    for number in fields:
        glsl = re.sub(rf"\b{number}\b", f"p.{number}", glsl)
    fields |= {name: GLSL_TYPES[kind] for name, kind in arguments.items()}
    return shader(
        "elementwise/binary.comp" if len(kept) == 2 else "elementwise/unary.comp",
        **{f"OP({','.join(kept)})": f"({glsl})"},
        PARAMS="".join(f"{kind} {name};" for name, kind in fields.items()),
        RANK=rank,
    )


def _as_float32(tensor: TensorBase) -> TensorBase:
    """Convert on the host: devices compute in float32 and the other dtypes are rare there."""
    if tensor.dtype == np.float32:
        return tensor
    converted: TensorBase = from_host(
        type(tensor).result_class, tensor.on_host().astype(np.float32), tensor.device, copy=False
    )
    return converted


def _copy(tensor: TensorBase) -> TensorBase:
    """The elements in row-major order; by way of the host where not even clone has enough axes."""
    axes, _ = merge_axes(tensor.shape, [tensor.strides])
    copied: TensorBase = (
        REGISTRY["clone"](tensor)
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


def merge_axes(shape: Shape, strides: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """The same elements in the same order with as few axes as possible.

    Two neighbouring axes become one where, for every operand, the outer one's stride is the inner
    one's times its size. Axes of size 1 vanish.

    >>> merge_axes((2, 1, 3, 5), [(15, 7, 5, 1), (0, 0, 5, 1)])
    ((2, 15), [(15, 1), (0, 1)])
    """
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [s[axis] for s in strides]
        if sizes and all(m[-1] == stride * size for m, stride in zip(merged, here, strict=True)):
            sizes[-1] *= size
            for m, stride in zip(merged, here, strict=True):
                m[-1] = stride
        else:
            sizes.append(size)
            for m, stride in zip(merged, here, strict=True):
                m.append(stride)
    return tuple(sizes), [tuple(m) for m in merged]
