"""Copies of one whole buffer into another become nodes of the op ``clone``, which other passes know.

``x.copy_(y)`` is a command without an op. As a clone it can be fused with what computes ``y``.
"""

from __future__ import annotations

from dataclasses import replace

from dl4all.graph.ir.graph import BoundLaunch, Graph, Node, Operand, Value
from dl4all.ops.core.kernels.push_block import push_constants
from dl4all.ops.memory.copy import COPY

WORD_BYTES = {shader: nbytes for nbytes, shader in COPY[1].items()}
"""The kernels that copy along one axis, and the size of what they move at a time."""

DTYPES = {"float32": 4, "int32": 4}


def whole_copies(graph: Graph) -> Graph:
    """Replace copies of whole buffers whose elements' dtype is known."""
    dtypes: dict[Value, str] = {}
    for node in graph.nodes:
        for operand in (*node.tensors, *((node.result,) if node.result else ())):
            dtypes.setdefault(operand.value, operand.dtype)
    nodes = tuple(_as_clone(node, graph, dtypes) or node for node in graph.nodes)
    return graph if nodes == graph.nodes else graph.with_nodes(nodes)


def _as_clone(node: Node, graph: Graph, dtypes: dict[Value, str]) -> Node | None:
    """The node as a clone, if it is such a copy."""
    if node.op or len(node.commands) != 1 or len(node.writes) != 1:
        return None
    [command] = node.commands
    if not isinstance(command, BoundLaunch) or command.launch.shader not in WORD_BYTES:
        return None
    source, target = (graph.buffers[binding.buffer] for binding in command.bindings)
    if source is target:
        return None
    value = next(value for value in node.reads if value.buffer == source.number)
    dtype = dtypes.get(value, "")
    push = push_constants(command.launch)
    whole = push.n * WORD_BYTES[command.launch.shader]
    if (
        dtype not in DTYPES
        or push != (push.n, 0, 0, push.n, 1, 1)
        or not source.nbytes == target.nbytes == whole
    ):
        return None
    shape = (whole // DTYPES[dtype],)
    return replace(
        node,
        name="clone",
        op="clone",
        operands=(Operand(value, shape, dtype, (1,)),),
        result=Operand(node.writes[0], shape, dtype, (1,)),
        reads=(value,),
        parts=(),
    )
