"""Cheap elementwise values are computed again by each node that reads them, where that saves memory traffic.

A value whose readers cannot run in the kernel that makes it, because other nodes run between, is written once
and read by each of them. If all of them are elementwise and what it is made of is still there, they can make
it themselves, and it never goes through memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dl4all.graph.codegen.elementwise_kernel import FusedKernel, combine, is_elementwise
from dl4all.graph.ir.graph import Graph, Node, Value, is_private
from dl4all.graph.passes.fusion.elementwise_fusion import cost, fused, is_candidate, parts_of
from dl4all.ops.core.expressions.expression import functions_of
from dl4all.scheduler.device.current import device as find_device
from dl4all.scheduler.device.device import Device

CHEAP = frozenset(
    (
        *("abs", "sign", "max", "min", "larger", "smaller", "floor", "ceil", "trunc"),
        *("int", "float", "is_nan", "is_inf", "is_finite"),
    )
)
"""Functions that take no longer than a sum or a product."""

STEP_BYTES = 1  # what an expression takes for an element, in bytes that could be read meanwhile


def recomputation(graph: Graph) -> Graph:
    """Leave out values that cost less to compute again than to write and read.

    The pass comes after the fusion of elementwise nodes, whose kernels it makes anew.
    """
    device = find_device(graph.device)
    nodes: list[Node | None] = list(graph.nodes)
    read = frozenset(value for node in graph.nodes for value in node.reads)
    for position, node in enumerate(graph.nodes):
        for value in node.writes if _can_change(node, graph, read) else ():
            if is_private(graph, value):
                _leave_out(value, position, nodes, graph, read, device)
    if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
        return graph
    return graph.with_nodes(node for node in nodes if node is not None)


def _can_change(node: Node, graph: Graph, read: Collection[Value]) -> bool:
    """Whether a node is elementwise, or stands for such nodes alone."""
    if node.parts:
        return not node.op and all(is_elementwise(part) for part in node.parts)
    return is_candidate(node, graph, read)


def _leave_out(
    value: Value,
    position: int,
    nodes: list[Node | None],
    graph: Graph,
    read: Collection[Value],
    device: Device,
) -> None:
    """Change `nodes` so that all readers of a value compute it, if they can and that costs less."""
    maker = nodes[position]
    users = {i: node for i, node in enumerate(nodes) if node is not None and value in node.reads}
    if maker is None or not users or not all(_can_change(node, graph, read) for node in users.values()):
        return
    needed = _slice(parts_of([maker]), {value})
    if not _is_cheap(needed) or not _is_available(needed, position, max(users), nodes):
        return
    kept = [result for result in _results(maker) if result != value]
    before = [_kernel(parts_of([node]), _results(node)) for node in (maker, *users.values())]
    changed: dict[int, Node | None] = {position: None}
    if kept:
        changed[position] = fused(_slice(parts_of([maker]), set(kept)), kept, graph, device)
        if changed[position] is None:
            return
    for place, user in users.items():
        made = fused(_merged(needed, parts_of([user])), _results(user), graph, device)
        if made is None:
            return
        changed[place] = made
    after = [_kernel(node.parts, _results(node)) for node in changed.values() if node is not None]
    work = (
        STEP_BYTES
        * len(needed)
        * len(users)
        * sum(part.result.elements for part in needed[-1:] if part.result)
    )
    if None in before or None in after or _total(after) + work >= _total(before):
        return
    for place, node in changed.items():
        nodes[place] = node


def _results(node: Node) -> tuple[Value, ...]:
    """The results of a node that others may read."""
    if node.parts:
        return node.writes
    assert node.result is not None
    return (node.result.value,)


def _kernel(parts: Sequence[Node], stored: Iterable[Value]) -> FusedKernel | None:
    return combine(parts, frozenset(stored))


def _total(kernels: Iterable[FusedKernel | None]) -> int:
    return cost(kernel for kernel in kernels if kernel is not None)


def _slice(parts: Sequence[Node], wanted: set[Value]) -> tuple[Node, ...]:
    """The nodes among several that make given values, in their order."""
    needed = set(wanted)
    found: list[Node] = []
    for part in reversed(parts):
        if part.result is not None and part.result.value in needed:
            found.append(part)
            needed.update(operand.value for operand in part.tensors)
    return tuple(reversed(found))


def _merged(first: Sequence[Node], second: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes of both, without repetitions."""
    have = {part.result.value for part in first if part.result is not None}
    return (*first, *(part for part in second if part.result is None or part.result.value not in have))


def _is_cheap(parts: Iterable[Node]) -> bool:
    """Whether parts call no function that takes long."""
    kernel = combine(tuple(parts), {part.result.value for part in parts if part.result is not None})
    steps = () if kernel is None else kernel.steps
    return kernel is not None and all(functions_of(step.tree) <= CHEAP for step in steps)


def _is_available(parts: Sequence[Node], first: int, last: int, nodes: Sequence[Node | None]) -> bool:
    """Whether what parts read is still there for a node later on."""
    made = {part.result.value for part in parts if part.result is not None}
    inputs = {operand.value.buffer for part in parts for operand in part.tensors if operand.value not in made}
    between = (node for node in nodes[first:last] if node is not None)
    return not any(value.buffer in inputs for node in between for value in node.writes)
