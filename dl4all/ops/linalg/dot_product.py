"""The dot product of two vectors."""

from __future__ import annotations

from dl4all.errors import ShapeError
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import ceil_div, run, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.reduce.reduction_kernel import BUSY_WORKGROUPS, MIN_STEPS_PER_SLICE, WORKGROUP
from dl4all.ops.reduce.repetition import fold_product
from dl4all.ops.reduce.sums import SUM_REDUCTION, accurate_sum

DOT_PUSH = PushBlock("linalg/dot.comp", "uint size, slice, x_offset, x_stride, y_offset, y_stride;")
DOT = shader("linalg/dot.comp")
DOT_SHADERS = (DOT, SUM_REDUCTION.merge_shader)


def _infer_dot(input: TensorBase, tensor: TensorBase) -> Result:
    if len(input.shape) != 1 or input.shape != tensor.shape:
        raise ShapeError(
            f"[dot] expected two vectors of one length, got shapes {input.shape} and {tensor.shape}; "
            "dl.matmul takes matrices"
        )
    if input.dtype != tensor.dtype:
        check_float("dot", input, tensor)
    return (), input.dtype


def dot_slices(input: TensorBase, tensor: TensorBase) -> tuple[int, bytes]:
    """The number of slices, one for each workgroup, and the kernel's push constants."""
    size = input.shape[0]
    slices = max(1, min(BUSY_WORKGROUPS, ceil_div(size, WORKGROUP) // MIN_STEPS_PER_SLICE))
    slice = ceil_div(size, slices)
    return slices, DOT_PUSH.pack(
        size=size,
        slice=slice,
        x_offset=input.offset,
        x_stride=input.strides[0],
        y_offset=tensor.offset,
        y_stride=tensor.strides[0],
    )


def run_dot(out: TensorBase, input: TensorBase, tensor: TensorBase) -> None:
    """Fill `out`, of one element, with the dot product of two vectors."""
    slices, push = dot_slices(input, tensor)
    if slices == 1:
        run(DOT, (1, 1, 1), push, input, tensor, out)
        return
    states = empty(type(out).result_class, (slices,), FLOAT32, out.device)
    run(DOT, (slices, 1, 1), push, input, tensor, states)
    SUM_REDUCTION.merge_slices(out, states, slices)


@export("dl", "Tensor", out=True, autocast="widest")
@op(
    infer=_infer_dot,
    kernel=Kernel(run_dot, DOT_SHADERS),
    examples=(example((13,), (13,)), example((70001,), (70001,)), example((1,), (1,)), example((0,), (0,))),
    grad=(lambda g, tensor: g * tensor, lambda g, input: g * input),
)
def dot(input: Array, tensor: Array) -> Array:
    """The dot product of two vectors: the sum of the products of their elements.

    Args:
        input, tensor: vectors of one length and dtype.

    Returns:
        A tensor of shape ().

    Raises:
        ShapeError: the operands are not vectors of one length.
        DTypeError: the dtypes differ.

    Example:
        >>> import dl4all as dl
        >>> dl.dot(dl.tensor([1.0, 2.0]), dl.tensor([3.0, 4.0])).item()
        11.0
    """
    return accurate_sum(input * tensor, (0,), False, input.dtype)


dot.define_fold(fold_product(dot))
