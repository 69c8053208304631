"""Elements by index on the CPU, in a single step where nobody follows each one.

Indices that kernels take are checked by one kernel, which turns them into places, and a second one reads what
lies there. Which two these are follows from the operands' layouts: a device keeps them with its plans.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dl4all.ops.core import tape
from dl4all.ops.core.host_kernel import REFUSED, HostLaunch, Layout, layout_of, prepare
from dl4all.ops.core.limits import LARGE_ELEMENTS
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Shape, Size, TensorBase, contiguous_strides, host_array
from dl4all.ops.core.vmap_hook import active_levels
from dl4all.ops.indexing import host_indices
from dl4all.ops.indexing.device_indices import INDEX_DTYPES, MOST
from dl4all.ops.indexing.indices import Indices
from dl4all.ops.indexing.rows import take_rows_backward
from dl4all.ops.memory.views import reshape
from dl4all.runtime import op_regions
from dl4all.runtime.profiler import recorder
from dl4all.scheduler import capture, launch_log

INT32 = np.dtype("int32")


class Selection(NamedTuple):
    """What selecting from a tensor comes to."""

    check: HostLaunch
    take: HostLaunch
    rows: Shape  # the tensor as (outer, size, inner), of which the middle axis is indexed
    shape: Size  # of the result
    count: int  # indices


def select(
    name: str,
    input: Any,
    index: Any,
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
        operands that do not lie in the CPU's memory as the kernels want it, and where single steps are
        followed.
    """
    if (
        not isinstance(index, TensorBase)
        or not input.device.is_host
        or not input.device.keeps_plans
        or index.device is not input.device
        or index.dtype not in INDEX_DTYPES
        or capture.active is not None
        or recorder.active is not None
        or launch_log.active is not None
        or active_levels
        or op_regions.watched
    ):
        return None
    device = input.device
    key = (
        select, axis, negative, along, input.shape, input.strides, input.dtype.num, index.shape, index.strides,
        index.dtype.num,
    )  # fmt: skip
    plan: Any = device.plans.get(key)
    if plan is None:
        plan = _prepared(input, index, axis, negative, along) or REFUSED
        device.plans.keep(key, plan)
    if plan is REFUSED:
        return None
    check, take, rows, shape, count = plan
    cls = input.result_class
    places = empty(cls, (count,), INT32, device, name)
    wrong = host_indices.run_check(check, index, places)
    if wrong >= 0:
        raise error(int(host_array(index).reshape(-1)[wrong]))
    result = empty(cls, shape, input.dtype, device, name)
    take.run_on(
        device,
        ((input.storage, input.offset * input.dtype.itemsize), (places.storage, 0), (result.storage, 0)),
    )
    if tape.state.enabled and result.dtype.kind == "f":
        outer, size, inner = rows
        before = input.shape

        def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
            indices = Indices.of_checked(places)
            g = reshape(grads[0], outer, count, inner)
            added = take_rows_backward(g, indices if trained is None else trained(indices), size)
            return [reshape(added, before)]

        tape.add_node(name, [input], [result], backward)
    return result


def _prepared(
    input: TensorBase, index: TensorBase, axis: int, negative: bool, along: bool
) -> Selection | None:
    """The launches for operands like these; None where the kernels do not take them."""
    shape, chosen = input.shape, index.shape
    total, count = math.prod(shape), math.prod(chosen)
    if not input.is_contiguous() or not 0 < total < MOST or not 0 < count < MOST:
        return None
    scale, grid, rows = 1, None, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    result = (*shape[:axis], *chosen, *shape[axis + 1 :])
    if along:
        steps = contiguous_strides(shape)
        scale, grid = steps[axis], tuple([0 if i == axis else step for i, step in enumerate(steps)])
        rows, result = (1, total, 1), chosen
    if not 0 < math.prod(result) < LARGE_ELEMENTS:
        return None
    places = Layout((count,), INT32)
    outer, _, inner = rows
    out = Layout((outer, count, inner), input.dtype)
    constants = (shape[axis], negative, None, scale, grid, False)
    check = host_indices.check_launch(layout_of(index), places, constants)
    take = prepare("take_rows", out, [Layout(rows, input.dtype)], {"index": places})
    return None if check is None or take is None else Selection(check, take, rows, Size(result), count)
