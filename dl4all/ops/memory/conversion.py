"""Between dtypes."""

from __future__ import annotations

import numpy as np

from dl4all.errors import DTypeError
from dl4all.ops.core import float16
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import Kernel, Result, example, op, primitives
from dl4all.ops.core.tensor_base import DTYPES, Array, TensorBase, from_host
from dl4all.ops.elementwise.kernels import LONG, RANKS, WORDS, Variants, launch, variants
from dl4all.ops.memory.views import contiguous

# What C compilers on most machines make of a float that is no int32, nan among them.
FLOAT_TO_INT = "x >= -2147483648.0 && x < 2147483648.0 ? int(x) : int(0x80000000u)"
CONVERSIONS = {
    ("float32", "int32"): FLOAT_TO_INT,
    ("float32", "uint8"): FLOAT_TO_INT,
    ("float32", "bool"): "!(x == 0.0)",  # nan is true
    ("int32", "bool"): "x != 0",
    ("uint8", "bool"): "x != 0",
}
KINDS = tuple(name for name, word in WORDS.items() if word.glsl != LONG)
CASTS: dict[tuple[str, str], Variants] = {
    (source, target): variants(
        CONVERSIONS.get((source, target), "x"), (WORDS[source],), WORDS[target], {}, RANKS
    )
    for source in KINDS
    for target in KINDS
}
"""Kernels by the dtypes they read and write."""


def _cast_shape(input: TensorBase, dtype: str) -> Result:
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        raise DTypeError(f"[cast] {dtype!r} is no dtype") from None
    if wanted not in DTYPES:
        raise DTypeError(f"[cast] dtype {wanted} is not supported; use one of {', '.join(map(str, DTYPES))}")
    return input.shape, wanted


def _cast_run(out: TensorBase, input: TensorBase, *, dtype: str) -> None:
    target = out.dtype.name
    if input.dtype == float16.HALF:
        input = float16.unpacked(input)
    if input.dtype.name not in KINDS:
        with np.errstate(all="ignore"):
            array = input.on_host().astype(target)
        if out.dtype == float16.HALF:
            out.device.write(out.storage, array)
            return
        input = from_host(type(out), array, out.device, copy=False)
    if out.dtype == float16.HALF:
        float16.pack_into(out, contiguous(input if input.dtype == float16.FLOAT else cast(input, "float32")))
    else:
        launch(CASTS[input.dtype.name, target], out, [input])


@export()
@op(
    infer=_cast_shape,
    kernel=Kernel(
        _cast_run,
        (*dict.fromkeys(v.code for by_rank in CASTS.values() for v in by_rank.values()), *float16.SHADERS),
        (*KINDS, "float16"),
    ),
    examples=(
        example((13, 7), dtype="int32"),
        example((2, 3, 5), dtype="bool"),
        example((0,), dtype="uint8"),
    ),
    grad=lambda g: g,
)
def cast(input: Array, dtype: str) -> Array:
    """The elements as another dtype, as :meth:`dl4all.Tensor.to` has it.

    Args:
        input: any shape and dtype.
        dtype: the name of the one wanted. Floats lose their fractions as integers, and anything that is
            not 0 is True.

    Returns:
        The input's shape.

    Raises:
        DTypeError: tensors cannot have the dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.cast(dl.tensor([0.0, 1.5, -2.5]), "int32").tolist()
        [0, 1, -2]
    """
    return np.asarray(input).astype(dtype)


primitives.cast = cast
