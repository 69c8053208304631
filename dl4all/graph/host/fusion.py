"""Elementwise calls of the host in groups: one compiled kernel each, or without a compiler block by block.

Groups may begin with a convolution: a compiled kernel computes the others of its sums while these are in
registers or near. Groups of NumPy's functions work on blocks that stay in the cache. Batch normalisation is
taken apart into its elementwise steps first. All steps stay in their order for each element, and so does
every bit of the results.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dl4all.graph.host.batch_norm_calls import expanded
from dl4all.graph.host.blocks import BLOCK_ELEMENTS, Blocks, BlockStep, convolution_of
from dl4all.graph.host.calls import ArrayAt, PreparedCall, is_contiguous
from dl4all.graph.host.launches import TooMany, chained, followed, is_launched, takes_following
from dl4all.graph.host.out_functions import body_function, copy, out_function
from dl4all.graph.ir.graph import Graph
from dl4all.ops.conv.scratch import KeptScratch
from dl4all.ops.core.kernels.host_kernel import kernel_of
from dl4all.ops.core.kernels.host_work import ArrayView, BodyCall
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.op import REGISTRY
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape
from dl4all.ops.elementwise.declare import Elementwise

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
SMALL = 2**14  # bytes of a call that may go in front of a group, whose memory it has nothing to do with


@dataclass
class _HostGroup:
    """Calls that will be one."""

    shape: Shape
    head: PreparedCall | None = None
    takes_following: bool = False  # the head's kernel
    calls: list[PreparedCall] = field(default_factory=list)
    reads: dict[int, set[ArrayView]] = field(default_factory=dict)
    writes: dict[int, set[ArrayView]] = field(default_factory=dict)

    def add(self, call: PreparedCall) -> None:
        self.calls.append(call)
        for array in call.read:
            self.reads.setdefault(array.buffer, set()).add(array.view)
        for array in call.written:
            self.writes.setdefault(array.buffer, set()).add(array.view)

    def halves(self) -> tuple[_HostGroup, _HostGroup]:
        """The first calls and the others, as groups without a head."""
        made = _HostGroup(self.shape), _HostGroup(self.shape)
        for position, call in enumerate(self.calls):
            made[2 * position >= len(self.calls)].add(call)
        return made

    def takes(self, call: PreparedCall) -> bool:
        """Whether an elementwise call may be done block by block with the others."""
        [target] = call.written
        if target.view.shape != self.shape:
            return False
        if self.head is not None and any(array.buffer == target.buffer for array in self.head.read):
            return False
        if self.takes_following and not any(array.buffer in self.writes for array in call.read):
            return False
        for array in call.arrays:
            seen = self.writes.get(array.buffer, set())
            if array is target:
                seen = seen | self.reads.get(array.buffer, set())
            if seen - {array.view}:
                return False
        return True

    def is_apart_from(self, call: PreparedCall) -> bool:
        """Whether a call may as well run before the group."""
        mine = self.writes.keys()
        return not any(a.buffer in mine or a.buffer in self.reads for a in call.written) and not any(
            a.buffer in mine for a in call.read
        )


def fused(graph: Graph, calls: Sequence[PreparedCall]) -> tuple[Graph, list[PreparedCall]]:
    """The calls with groups in place of elementwise ones, and the graph with the buffers that they use."""
    graph, calls = expanded(graph, calls)
    users = Counter(buffer for call in calls for buffer in {array.buffer for array in call.arrays})
    made: list[PreparedCall] = []
    scratch = KeptScratch()
    group: _HostGroup | None = None
    for call in calls:
        if group is not None and _is_elementwise(call) and group.takes(call):
            group.add(call)
        elif group is not None and _nbytes(call) <= SMALL and group.is_apart_from(call):
            made.append(call)
        else:
            if group is not None:
                made += _closed(graph, group, users, scratch)
            group = _opened(call)
            if group is None:
                made.append(call)
    if group is not None:
        made += _closed(graph, group, users, scratch)
    return graph, made


def _opened(call: PreparedCall) -> _HostGroup | None:
    """A group that begins with a call; None if it cannot."""
    result = call.arrays[-1].view
    is_convolution = (
        isinstance(call.function, BodyCall)
        and call.name in CONVOLUTIONS
        and is_contiguous(result)
        and 0 not in result.shape
    )
    if not is_convolution and not _is_elementwise(call):
        return None
    group = _HostGroup(result.shape, call if is_convolution else None, takes_following(call))
    group.add(call)
    return group


def _is_elementwise(call: PreparedCall) -> bool:
    if len(call.written) != 1 or call.numbers or 0 in call.arrays[-1].view.shape:
        return False
    if call.varies and kernel_of("elementwise") is None:
        return False
    if isinstance(call.function, BodyCall):
        return isinstance(REGISTRY.get(call.function.name), Elementwise) and not call.function.deferred
    return (call.name == "copy_" and len(call.arrays) == 2) or isinstance(call.function, np.ufunc)


def _nbytes(call: PreparedCall) -> int:
    return sum(int(np.prod(a.view.shape, dtype=np.int64)) * a.view.dtype.itemsize for a in call.arrays)


def _closed(graph: Graph, group: _HostGroup, users: Counter[int], scratch: KeptScratch) -> list[PreparedCall]:
    """The calls of a group, as one if there are several, or a compiled kernel does it."""
    inside = Counter(buffer for call in group.calls for buffer in {array.buffer for array in call.arrays})
    first = dict[int, PreparedCall]()
    for call in group.calls:
        for array in call.arrays:
            first.setdefault(array.buffer, call)
    inner = {
        number
        for number, views in group.writes.items()
        if graph.buffers[number].kind == "temporary"
        and inside[number] == users[number]
        and len(views | group.reads.get(number, set())) == 1
        and not any(array.buffer == number for array in first[number].read)
    }
    if group.head is not None and group.takes_following:
        with contextlib.suppress(NoKernel):
            return [followed(group.head, group.calls[1:], inner)]
    if group.head is not None and is_launched(group.head):
        rest = _HostGroup(group.shape)
        for call in group.calls[1:]:
            rest.add(call)
        return [group.head, *(_closed(graph, rest, users, scratch) if rest.calls else [])]
    if group.head is None:
        try:
            return [chained(group.calls, group.shape, inner)]
        except TooMany:
            return [call for half in group.halves() for call in _closed(graph, half, users, scratch)]
        except NoKernel:
            pass
        alone = len(group.calls) == 1 and not _gains_alone(group.calls[0])
        if alone or any(call.varies for call in group.calls):
            return group.calls
    tail = group.calls if group.head is None else group.calls[1:]
    arrays = list(dict.fromkeys(array for call in tail for array in call.arrays))
    result = None
    if group.head is not None:
        result = group.head.arrays[-1]
        arrays = list(dict.fromkeys([result, *arrays]))
    lead = 1 if group.head is not None else 0  # images are worked on one after the other
    views = [_broadcast(array.view, group.shape) for array in arrays]
    sizes, strides = merge_axes(group.shape[lead:], [view.strides[lead:] for view in views])
    if not sizes:  # one element
        sizes, strides = (1,), [(0,) for _ in views]
    outside = [i for i, array in enumerate(arrays) if array.buffer not in inner]
    positions = {array: i for i, array in enumerate(arrays)}
    merged = [
        ArrayAt(
            array.buffer,
            ArrayView((*group.shape[:lead], *sizes), view.dtype, (*view.strides[:lead], *s), view.offset),
        )
        for array, view, s in zip(arrays, views, strides, strict=True)
    ]
    parts = tuple(_part(call, positions) for call in tail)
    dtypes = tuple(array.view.dtype for array in arrays)
    written = {call.arrays[-1] for call in group.calls}
    external = tuple(merged[i] for i in outside)
    writes = tuple(arrays[i] in written for i in outside)
    convolution = None
    if group.head is not None:
        assert isinstance(group.head.function, BodyCall)
        convolution = convolution_of(group.head.function, positions[result] if result is not None else 0)
        external = (*group.head.arrays[:-1], *external)
        writes = (*(False for _ in group.head.arrays[:-1]), *writes)
    blocks = Blocks(
        (*group.shape[:lead], *sizes), dtypes, tuple(outside), parts, group.shape, convolution, scratch
    )
    name = "_".join(call.name for call in group.calls)
    return [PreparedCall(name, blocks, external, writes)]


def _gains_alone(call: PreparedCall) -> bool:
    """Whether an elementwise call has steps of its own between which arrays would leave the cache."""
    large = math.prod(call.arrays[-1].view.shape) >= 2 * BLOCK_ELEMENTS
    return large and isinstance(call.function, BodyCall) and out_function(call) is None


def _broadcast(view: ArrayView, shape: Shape) -> ArrayView:
    """A view repeated along the axes in which it has one element or none."""
    missing = len(shape) - len(view.shape)
    strides = (0,) * missing + tuple(
        0 if size == 1 else stride for size, stride in zip(view.shape, view.strides, strict=True)
    )
    return view._replace(shape=shape, strides=strides)


def _part(call: PreparedCall, positions: dict[ArrayAt, int]) -> BlockStep:
    places = tuple(positions[array] for array in call.arrays)
    if not isinstance(call.function, BodyCall):
        return BlockStep(copy if call.name == "copy_" else call.function, places, True)
    function = out_function(call)
    if function is not None:
        return BlockStep(function, places, True)
    body = body_function(call.function, [array.view.dtype for array in call.arrays[:-1]])
    assert body is not None
    return BlockStep(body, places, False)
