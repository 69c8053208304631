"""Elementwise nodes that follow each other become one generated kernel.

A group of nodes runs over the same elements. What only the group reads never goes through memory; what others
read as well is stored by the same kernel. Groups grow along data flow in the order of the program, as long as
no node outside has to run between two of their nodes and a cost model finds less to do.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from dl4all.graph.codegen import elementwise
from dl4all.graph.codegen.elementwise_kernel import (
    FusedKernel,
    combine,
    is_elementwise,
    is_whole,
)
from dl4all.graph.ir.graph import BoundLaunch, Graph, Node, Value, buffers_of, is_private
from dl4all.runtime import spirv
from dl4all.scheduler.device.current import device as find_device
from dl4all.scheduler.device.device import Device

MAX_NODES = 32  # of a kernel: with more, its variables do not stay in registers
LAUNCH_BYTES = 1 << 16  # what can be read or written in the time of a launch, about
ELEMENT_WISE_FACTOR = 2  # how much longer a byte takes where invocations compute one element at a time


def elementwise_fusion(graph: Graph) -> Graph:
    """Replace groups of elementwise nodes by nodes with one generated kernel each."""
    groups = _Groups(graph, find_device(graph.device))
    for position in range(len(graph.nodes)):
        groups.grow(position)
    return graph.with_nodes(groups.nodes()) if groups.have_joined else graph


def cost(kernels: Iterable[FusedKernel]) -> int:
    """The cost of running kernels one after the other, in bytes."""
    return sum(
        LAUNCH_BYTES + kernel.nbytes * (1 if kernel.layout.width == 4 else ELEMENT_WISE_FACTOR)
        for kernel in kernels
    )


def is_candidate(node: Node, graph: Graph, read: Container[Value]) -> bool:
    """Whether a node is elementwise, writes one whole buffer, and depends on no number that varies from call
    to call. `read` are the values that any node reads: others that it writes are for itself."""
    result = node.result
    if not is_elementwise(node) or result is None or not is_whole(graph, result):
        return False
    others = [value for value in node.writes if value != result.value]
    return (
        result.value in node.writes
        and not any(value in read or not is_private(graph, value) for value in others)
        and {value.buffer for value in node.reads} <= {operand.value.buffer for operand in node.tensors}
        and all(isinstance(c, BoundLaunch) and not c.varying for c in node.commands)
    )


def parts_of(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The nodes that nodes stand for, in order."""
    return tuple(part for node in nodes for part in (node.parts or (node,)))


def fused(parts: Sequence[Node], stored: Iterable[Value], graph: Graph, device: Device) -> Node | None:
    """One node for elementwise ones, with a generated kernel; None where there can be none, or no compiler
    is installed."""
    kernel = combine(parts, frozenset(stored))
    if kernel is None or not elementwise.fits(kernel, device):
        return None
    bound = elementwise.bind(kernel, graph, device)
    if not spirv.is_built(bound.launch.shader):
        return None
    operands = tuple(load.operand for load in kernel.loads)
    results = [store.operand for store in kernel.stores]
    return Node(
        elementwise.name_of(kernel.ops),
        operands=operands,
        result=results[-1],
        reads=tuple(dict.fromkeys(operand.value for operand in operands)),
        writes=tuple(result.value for result in results),
        commands=(bound,),
        parts=tuple(parts),
        line=parts[-1].line,
        recomputation=parts[-1].recomputation,
    )


@dataclass
class _FusionGroup:
    """Nodes that become one, or a node alone. Sets of positions are bits of an int."""

    members: int
    before: int  # nodes outside that must run before one of the members, directly or not
    after: int  # and those that must run after one
    kernel: FusedKernel | None  # of candidates
    recomputation: int  # of all members


class _Groups:
    """All nodes of a graph in groups, at first of one node each."""

    def __init__(self, graph: Graph, device: Device) -> None:
        self.graph, self.device = graph, device
        self.have_joined = False
        self.readers: dict[Value, int] = {}  # positions
        self.writers: dict[Value, int] = {}  # position
        for position, node in enumerate(graph.nodes):
            for value in node.reads:
                self.readers[value] = self.readers.get(value, 0) | 1 << position
            for value in node.writes:
                self.writers[value] = position
        before, after = reachability(graph.nodes)
        self.of = [
            _FusionGroup(
                1 << position,
                before[position],
                after[position],
                self._kernel(1 << position),
                node.recomputation,
            )
            for position, node in enumerate(graph.nodes)
        ]

    def grow(self, position: int) -> None:
        """Join a node with the groups that make its operands, then with those that read the same ones."""
        if self.of[position].kernel is None:
            return
        node = self.graph.nodes[position]
        near: dict[int, None] = {}
        for operand in reversed(node.tensors):
            if operand.value in self.writers:
                near[self.writers[operand.value]] = None
        for operand in node.tensors:
            others = self.readers[operand.value] & ((1 << position) - 1)
            near.update(dict.fromkeys(reversed(_bits(others))))
        for other in near:
            self._join(self.of[position], self.of[other])

    def _join(self, one: _FusionGroup, other: _FusionGroup) -> None:
        """Make one group of two if they can be one and that costs less."""
        if one is other or one.kernel is None or other.kernel is None:
            return
        members = one.members | other.members
        if members.bit_count() > MAX_NODES or self._has_node_between(one, other):
            return
        if one.recomputation != other.recomputation:  # what is computed again comes when it is needed
            return
        kernel = self._kernel(members)
        if kernel is None or not elementwise.fits(kernel, self.device):
            return
        if cost([kernel]) >= cost([one.kernel, other.kernel]):
            return
        self.have_joined = True
        joined = _FusionGroup(
            members,
            (one.before | other.before) & ~members,
            (one.after | other.after) & ~members,
            kernel,
            one.recomputation,
        )
        for position in _bits(members):
            self.of[position] = joined
        behind, ahead = members | joined.before, members | joined.after
        seen = set[int]()
        for group in self.of:
            if id(group) in seen:
                continue
            seen.add(id(group))
            if group.members & joined.after:
                group.before |= behind & ~group.members
            elif group.members & joined.before:
                group.after |= ahead & ~group.members

    @staticmethod
    def _has_node_between(one: _FusionGroup, other: _FusionGroup) -> bool:
        outside = ~(one.members | other.members)
        return bool((one.after & other.before | other.after & one.before) & outside)

    def _kernel(self, members: int) -> FusedKernel | None:
        """The kernel of nodes that are candidates, if one can compute them all."""
        nodes = [self.graph.nodes[position] for position in _bits(members)]
        if len(nodes) == 1 and not is_candidate(nodes[0], self.graph, self.readers):
            return None
        kernel = combine(nodes, self._stored(nodes, members))
        if kernel is not None and len(nodes) == 1 and nodes[0].op == "clone":
            # A copy of transposed elements keeps the kernel that goes through them by tiles.
            return None if any(strides[-1] > 1 for strides in kernel.layout.strides) else kernel
        return kernel

    def _stored(self, nodes: Sequence[Node], members: int) -> frozenset[Value]:
        """The results of a group that others see."""
        written = (value for node in nodes for value in node.writes)
        return frozenset(
            value for value in written if value in self.graph.kept or self.readers.get(value, 0) & ~members
        )

    def nodes(self) -> list[Node]:
        """The new program: each group at the place of its last node, directly behind what it waits for.

        Nothing else comes earlier than it was: the memory that it takes would be held meanwhile.
        """
        groups = list({id(group): group for group in self.of}.values())
        waiting = sorted(groups, key=lambda group: -group.members.bit_length())
        done = 0
        result: list[Node] = []
        while waiting:
            group = waiting[-1]
            if needed := group.before & ~done:
                waiting.append(self.of[_lowest(needed)])
                assert len(waiting) <= 2 * len(groups), "groups wait for each other"
                continue
            waiting.pop()
            if not group.members & done:
                result += self._nodes(group)
                done |= group.members
        return result

    def _nodes(self, group: _FusionGroup) -> list[Node]:
        """A group as one node; as it was where there is no compiler."""
        nodes = [self.graph.nodes[position] for position in _bits(group.members)]
        if len(nodes) == 1:
            return nodes
        node = fused(parts_of(nodes), self._stored(nodes, group.members), self.graph, self.device)
        return nodes if node is None else [node]


def reachability(nodes: Sequence[Node]) -> tuple[list[int], list[int]]:
    """For each node, those that must run before it and those that must run after it, as bits.

    A node depends on the one that last wrote what it reads or writes, and a node that writes also on those
    that read what it replaces.
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    before = [0] * len(nodes)
    for position, node in enumerate(nodes):
        written = {value.buffer for value in node.writes}
        for buffer in buffers_of(node):
            needed = [writer[buffer]] if buffer in writer else []
            if buffer in written:
                needed += readers.get(buffer, [])
            for other in needed:
                before[position] |= before[other] | 1 << other
        for buffer in buffers_of(node):
            if buffer in written:
                writer[buffer], readers[buffer] = position, []
            else:
                readers.setdefault(buffer, []).append(position)
    after = [0] * len(nodes)
    for position, needed_before in enumerate(before):
        for other in _bits(needed_before):
            after[other] |= 1 << position
    return before, after


def _bits(positions: int) -> list[int]:
    """The positions in a set, ascending."""
    found = []
    while positions:
        found.append(_lowest(positions))
        positions &= positions - 1
    return found


def _lowest(positions: int) -> int:
    return (positions & -positions).bit_length() - 1
