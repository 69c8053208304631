"""Merges the dispatches of an optimizer, one for each parameter, into few for all of them.

So it does with the other commands that treat many tensors alike: the moving average of parameters, the sums
of squares and the scaling of gradient clipping, and copies of small gradients that share memory. They are
captured one by one, as the table of a dispatch for many tensors (:mod:`dl4all.ops.core.kernels.multi_tensor`)
holds offsets that only the memory plan knows.

Updates, scaling and copies are the same bit by bit. Partial sums of squares may come in another order, and
those of tensors of more than ``STEP`` elements are of other elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from dl4all.graph.ir.graph import (
    Binding,
    BoundLaunch,
    Graph,
    MultiTensorLaunch,
    Node,
    Operand,
    Value,
    bindings_of,
    buffers_of,
)
from dl4all.graph.run.memory_pieces import conflict, pieces_of_node
from dl4all.graph.run.multi_tensor_launches import ROW_BYTES
from dl4all.ops.core.kernels.launch import MAX_GRID_SIZE, ceil_div, pack, shader
from dl4all.ops.core.kernels.push_block import push_constants
from dl4all.ops.core.op import SHARED
from dl4all.ops.core.tensor_base import contiguous_strides
from dl4all.ops.reduce.global_norm import ELEMENTS_PER_INVOCATION, MAX_PARTS, SCALE, SQUARES, SQUARES_OF_BATCH
from dl4all.ops.reduce.global_norm import WORKGROUP as SQUARES_WORKGROUP
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.programs import Launch

STEP = SQUARES_WORKGROUP * ELEMENTS_PER_INVOCATION
"""Elements of which a workgroup sums up the squares."""

COPY = shader("optim/copy.comp", MULTI_TENSOR=1, STATES=0)
SHARED.append(COPY)

MOST_COPIED = 1 << 14
"""Elements of a copy that is merged: until the last of a group runs, the sources of all take memory."""


def optimizer_fusion(graph: Graph) -> Graph:
    """The graph with commands that treat many tensors alike merged, each group where its last one was."""
    groups = [group for group in _groups(graph) if len(group.positions) > 1]
    if not groups:
        return graph
    last = {group.positions[-1]: group for group in groups}
    merged = {position for group in groups for position in group.positions}
    nodes = list[Node]()
    for position, node in enumerate(graph.nodes):
        if position in last:
            nodes.append(_merged(last[position], graph.nodes))
        elif position not in merged:
            nodes.append(node)
    return graph.with_nodes(nodes)


@dataclass(frozen=True)
class _Job:
    """A node as one job of a launch; launches that are equal but for jobs can be merged."""

    launch: MultiTensorLaunch
    workgroups: int = 0  # where they are numbered


@dataclass
class _JobGroup:
    """Nodes that can run where the last of them does."""

    launch: MultiTensorLaunch
    positions: list[int] = field(default_factory=list)
    jobs: list[tuple[Binding, ...]] = field(default_factory=list)
    workgroups: int = 0
    read: list[Binding] = field(default_factory=list)
    written: list[Binding] = field(default_factory=list)

    def add(self, position: int, job: _Job) -> None:
        pieces = job.launch.jobs[0]
        self.positions.append(position)
        self.jobs.append(pieces)
        self.workgroups += job.workgroups
        for piece, written in zip(pieces, job.launch.writes, strict=True):
            (self.written if written else self.read).append(piece)

    def takes(self, job: _Job) -> bool:
        """Whether a job of this kind may run together with those that the group has."""
        pieces = list(zip(job.launch.jobs[0], job.launch.writes, strict=True))
        if conflict(pieces, self.read, self.written):
            return False
        if not job.launch.numbered:
            return True
        start, next_start = (
            int.from_bytes(launch.push[:4], "little") for launch in (self.launch, job.launch)
        )
        return next_start == start + self.workgroups and self.workgroups + job.workgroups <= MAX_GRID_SIZE

    def is_passed_by(self, node: Node) -> bool:
        """Whether the group's nodes may run behind another one that followed on them."""
        shared = self.launch
        return not conflict(
            pieces_of_node(node), [*self.read, *shared.before], [*self.written, *shared.after]
        )


def _groups(graph: Graph) -> Iterator[_JobGroup]:
    users = Counter(buffer for node in graph.nodes for buffer in buffers_of(node))
    scratch = {n for n, b in graph.buffers.items() if b.kind == "temporary" and users[n] == 1}
    lasting = {n for n, b in graph.buffers.items() if b.kind == "state"}
    # A dispatch binds one span for all jobs; arguments and results lie elsewhere in each call, one by one.
    moving = {n for n, b in graph.buffers.items() if b.kind in ("input", "output")}
    open_groups: dict[Any, _JobGroup] = {}
    for position, node in enumerate(graph.nodes):
        job = None if moving & buffers_of(node) else _job(node, scratch, lasting)
        key = None if job is None else _kind(job.launch)
        for other in [kind for kind in open_groups if kind != key]:
            if not open_groups[other].is_passed_by(node):
                yield open_groups.pop(other)
        if job is None:
            continue
        if key in open_groups and not open_groups[key].takes(job):
            yield open_groups.pop(key)
        open_groups.setdefault(key, _JobGroup(job.launch)).add(position, job)
    yield from open_groups.values()


def _kind(launch: MultiTensorLaunch) -> MultiTensorLaunch:
    """The key of launches that can be merged."""
    push = bytearray(launch.push)
    for word in launch.varying:
        push[word.offset : word.offset + 4] = bytes(4)
    return replace(launch, jobs=(), push=bytes(push[4:] if launch.numbered else push))


def _merged(group: _JobGroup, nodes: Sequence[Node]) -> Node:
    """The node in place of those of a group."""
    parts = tuple(nodes[position] for position in group.positions)
    launch = replace(group.launch, jobs=tuple(group.jobs))
    used = {binding.buffer for binding in bindings_of(launch)}
    written = dict.fromkeys(value for node in parts for value in node.writes if value.buffer in used)
    read, known = dict[Value, None](), set[Value]()
    for node in parts:
        read.update(dict.fromkeys(value for value in node.reads if value not in known))
        known.update(node.writes)
    return Node(
        f"{parts[0].name} of {len(parts)} tensors",
        reads=tuple(read),
        writes=tuple(written),
        commands=(launch,),
        parts=parts,
        line=parts[0].line,
    )


# Nodes as jobs


def _job(node: Node, scratch: Set[int], lasting: Set[int]) -> _Job | None:
    """A node as a job for a shader for many tensors; None if there is none for it.

    ``scratch`` are the temporaries that one node alone uses, ``lasting`` the buffers that outlive the call.
    """
    launches = [command for command in node.commands if isinstance(command, BoundLaunch)]
    if not launches or len(launches) < len(node.commands):  # the host has no such shaders
        return None
    if node.op:
        return _copy(node, lasting) if node.op == "clone" else _scaling(node, scratch)
    if len(launches) > 1:
        return None
    [command] = launches
    code = command.launch.shader
    if code == SQUARES:
        return _squares(command)
    if code.path.startswith("optim/") and code.macros["MULTI_TENSOR"] == 0:
        return _update(command)
    return None


def _update(command: BoundLaunch) -> _Job | None:
    """The update of a parameter by its gradient and its state, which has arrays one after another."""
    states = int(command.launch.shader.macros["STATES"])
    if any(word.offset < ROW_BYTES for word in command.varying):
        return None
    push = push_constants(command.launch)
    gradient, *state, parameter = command.bindings
    job = (
        _words(gradient, push.g_offset, push.n),
        *(_words(binding, 0, states * push.n) for binding in state),
        _words(parameter, push.p_offset, push.n),
    )
    launch = Launch(_for_many(command.launch.shader), (1, 1, 1), b"", command.launch.constants)
    return _Job(
        MultiTensorLaunch(
            launch,
            (job,),
            writes=(False, *(True for _ in state), True),
            widths=(1, *(states for _ in state), 1),
            push=bytes(command.launch.push[ROW_BYTES:]),
            varying=tuple(word._replace(offset=word.offset - ROW_BYTES) for word in command.varying),
        )
    )


def _squares(command: BoundLaunch) -> _Job | None:
    """Partial sums of a tensor's squares, behind those of the tensors before; None for large tensors."""
    push = push_constants(command.launch)
    workgroups = ceil_div(push.n, STEP)
    if command.varying or workgroups > MAX_PARTS or command.launch.groups != (workgroups, 1, 1):
        return None
    tensor, sums = command.bindings
    launch = MultiTensorLaunch(
        Launch(SQUARES_OF_BATCH, (1, 1, 1)),
        ((_words(tensor, push.x_offset, push.n),),),
        writes=(False,),
        widths=(1,),
        push=pack(push.out_offset),
        after=(sums,),
        group_elements=STEP,
        numbered=True,
    )
    return _Job(launch, workgroups)


def _scaling(node: Node, scratch: Set[int]) -> _Job | None:
    """The multiplication of a tensor in place by a tensor of one element, maybe by way of a copy."""
    result, operands = node.result, node.operands
    if node.op != "mul" or result is None or not all(isinstance(o, Operand) for o in operands):
        return None
    x, factor = node.tensors
    in_place = x.value != result.value and replace(x, value=result.value) == result
    contiguous = result.strides == contiguous_strides(result.shape)
    floats = x.dtype == factor.dtype == "float32"
    if not (in_place and x.value.buffer == result.value.buffer and contiguous and floats):
        return None
    if factor.elements != 1 or factor.offset or factor.value.buffer == x.value.buffer or not x.elements:
        return None
    if any(value != result.value and value.buffer not in scratch for value in node.writes):
        return None
    launch = MultiTensorLaunch(
        Launch(SCALE, (1, 1, 1)),
        ((Binding(x.value.buffer, 4 * x.offset, 4 * x.elements),),),
        writes=(True,),
        widths=(1,),
        before=(Binding(factor.value.buffer, 0, 4),),
    )
    return _Job(launch)


def _copy(node: Node, lasting: Set[int]) -> _Job | None:
    """A copy of a small tensor to memory that outlives the call; others may become part of a kernel."""
    source, result = node.operands[0], node.result
    if not isinstance(source, Operand) or result is None or result.value.buffer not in lasting:
        return None
    plain = all(operand.strides == contiguous_strides(operand.shape) for operand in (source, result))
    floats = source.dtype == result.dtype == "float32"
    if not (plain and floats and source.shape == result.shape and 0 < source.elements <= MOST_COPIED):
        return None
    if source.value.buffer == result.value.buffer or len(node.writes) > 1:
        return None
    job = tuple(Binding(o.value.buffer, 4 * o.offset, 4 * o.elements) for o in (source, result))
    return _Job(MultiTensorLaunch(Launch(COPY, (1, 1, 1)), (job,), writes=(False, True), widths=(1, 1)))


def _for_many(single: Shader) -> Shader:
    """The variant of a shader for one tensor that takes many."""
    return single.with_macros({"MULTI_TENSOR": 1})


def _words(binding: Binding, first: int, count: int) -> Binding:
    return Binding(binding.buffer, binding.offset + 4 * first, 4 * count)
