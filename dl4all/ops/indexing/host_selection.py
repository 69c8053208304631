"""Elements by index on the CPU, in a single step where nobody follows each one.

Indices that kernels take are checked by one kernel, which turns them into places, and a second one reads what
lies there. Which two these are follows from the operands' layouts: a device keeps them with its plans.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dl4all.allocator.storage import Storage
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.kernels.host_kernel import REFUSED, ArrayLayout, HostLaunch, layout_of, prepare
from dl4all.ops.core.kernels.launch_plan import is_followed
from dl4all.ops.core.limits import LARGE_ELEMENTS
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Shape, Size, TensorBase, contiguous_strides, host_array
from dl4all.ops.indexing import host_indices
from dl4all.ops.indexing.device_indices import INDEX_DTYPES, MOST
from dl4all.ops.indexing.indices import Indices
from dl4all.ops.indexing.rows import take_rows_backward
from dl4all.ops.memory.views import reshape

INT32 = np.dtype("int32")


class Selection(NamedTuple):
    """A selection from a tensor, or an addition to it."""

    check: HostLaunch  # turns indices into places
    take: HostLaunch
    add: HostLaunch | None  # of the gradient; None for dtypes that it has no kernel for
    rows: Shape  # the tensor as (outer, size, inner), of which the middle axis is indexed
    shape: Size  # of what is selected
    indices: int  # how many there are


def select(
    name: str,
    input: Any,
    index: TensorBase,
    axis: int,
    error: Callable[[int], Exception],
    *,
    negative: bool = False,
    along: bool = False,
    trained: Callable[[Indices], Indices] | None = None,
) -> Any:
    """Elements of a tensor by index along an axis, with their history.

    Args:
        name: of the op.
        input: the tensor.
        index: ints, of any shape.
        axis: the one that they are indices into.
        error: makes what is raised from the first index that is out of range.
        negative: whether indices from ``-size`` on are allowed and count from the end.
        along: whether there is an index for each element of the result, as in ``gather``; its other axes are
            no larger than the tensor's.
        trained: the indices that gradients are added by, if not all; others are -1.

    Returns:
        The tensor's shape with the index's in place of the axis; with `along` the index's shape. None for
        operands that the kernels do not take, and where single steps are followed.
    """
    device = input.device
    if not device.is_host or not input.is_contiguous() or _is_followed(index, input):
        return None
    plan = _plan(input.shape, input.dtype, index, axis, negative, along)
    if plan is None:
        return None
    places = empty(input.result_class, (plan.indices,), INT32, device, name)
    wrong = host_indices.run_check(plan.check, index, places)
    if wrong >= 0:
        raise error(int(host_array(index).reshape(-1)[wrong]))
    result = empty(input.result_class, plan.shape, input.dtype, device, name)
    plan.take.run_on(device, (_place(input), (places.storage, 0), (result.storage, 0)))
    if tape.state.enabled and kind_of(result.dtype) == "f":
        before = input.shape

        def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
            indices = Indices.of_checked(places)
            return [_added(name, plan, grads[0], indices if trained is None else trained(indices), before)]

        tape.add_node(name, [input], [result], backward, single_use=True)
    return result


def put_along(name: str, source: Any, index: TensorBase, axis: int, shape: Shape) -> Any:
    """Zeros of a shape with the elements of `source` added where indices along an axis say.

    Args:
        name: of the op.
        source: of the index's shape.
        index: ints in the range of the axis.
        axis: the one that they are indices into.
        shape: of the result.

    Returns:
        None for operands that the kernels do not take, and where single steps are followed.
    """
    if not source.device.is_host or _is_followed(index, source):
        return None
    plan = _plan(shape, source.dtype, index, axis, False, True)
    if plan is None or plan.add is None:
        return None
    places = empty(source.result_class, (plan.indices,), INT32, source.device, name)
    if host_indices.run_check(plan.check, index, places) >= 0:
        return None
    return _added(name, plan, source, Indices.of_checked(places), shape)


def _added(name: str, plan: Selection, source: Any, indices: Indices, shape: Shape) -> Any:
    """Zeros of a shape with the elements of a gradient added where they were selected."""
    places = indices.tensor_operand()
    if (
        plan.add is None
        or places is None
        or not source.is_contiguous()
        or tape.state.enabled
        or _is_followed(places, source)
    ):
        outer, size, inner = plan.rows
        return reshape(take_rows_backward(reshape(source, outer, plan.indices, inner), indices, size), shape)
    total = empty(source.result_class, shape, source.dtype, source.device, name)
    plan.add.run_on(source.device, (_place(source), _place(places), (total.storage, 0)))
    return total


def _place(tensor: TensorBase) -> tuple[Storage, int]:
    return tensor.storage, tensor.offset * tensor.dtype.itemsize


def _is_followed(index: TensorBase, like: TensorBase) -> bool:
    """Whether somebody follows each step of a call, or its operands are not the CPU's own."""
    return (
        is_followed()
        or index.device is not like.device
        or not like.device.keeps_plans
        or index.dtype not in INDEX_DTYPES
    )


def _plan(
    shape: Shape, dtype: np.dtype[Any], index: TensorBase, axis: int, negative: bool, along: bool
) -> Selection | None:
    """The launches for a contiguous tensor and an index like these, which the device keeps."""
    plans = index.device.plans
    key = (select, axis, negative, along, shape, dtype.num, index.shape, index.strides, index.dtype.num)
    plan: Any = plans.get(key)
    if plan is None:
        plan = _prepared(shape, dtype, index, axis, negative, along) or REFUSED
        plans.keep(key, plan)
    return None if plan is REFUSED else plan


def _prepared(
    shape: Shape, dtype: np.dtype[Any], index: TensorBase, axis: int, negative: bool, along: bool
) -> Selection | None:
    """The launches; None where the kernels do not take such operands."""
    chosen = index.shape
    total, count = math.prod(shape), math.prod(chosen)
    if not 0 < total < MOST or not 0 < count < MOST:
        return None
    scale, grid = 1, None
    rows: Shape = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    result: Shape = (*shape[:axis], *chosen, *shape[axis + 1 :])
    if along:
        steps = contiguous_strides(shape)
        scale, grid = steps[axis], tuple([0 if i == axis else step for i, step in enumerate(steps)])
        rows, result = (1, total, 1), chosen
    if not 0 < math.prod(result) < LARGE_ELEMENTS:
        return None
    places, whole = ArrayLayout((count,), INT32), ArrayLayout(rows, dtype)
    selected = ArrayLayout((rows[0], count, rows[2]), dtype)
    constants = (shape[axis], negative, None, scale, grid, False)
    check = host_indices.check_launch(layout_of(index), places, constants)
    take = prepare("take_rows", selected, [whole], {"index": places})
    add = prepare("take_rows_backward", whole, [selected], {"index": places, "size": rows[1]})
    if check is None or take is None:
        return None
    return Selection(check, take, add, rows, Size(result), count)
