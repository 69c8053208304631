"""Exported graphs without nodes that do nothing: pairs of views, copies, what nobody reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dl4all.onnx.exporter.writer import DraftNode
from dl4all.onnx.graph import NDArray

INT64 = 7  # in ONNX


def simplified(
    nodes: Sequence[DraftNode], initializers: Mapping[str, NDArray], outputs: Sequence[str]
) -> tuple[list[DraftNode], dict[str, NDArray]]:
    """The nodes and initializers that the outputs need."""
    kept = list(nodes)
    while True:
        before = len(kept)
        kept = _alive(_without_copies(_joined(kept), outputs), outputs)
        if len(kept) == before:
            break
    read = {name for node in kept for name in node.inputs}
    return kept, {name: array for name, array in initializers.items() if name in read}


def _joined(nodes: Sequence[DraftNode]) -> list[DraftNode]:
    """Of two reshapes the second alone, of two transposes one, and indices of int64 that stay so."""
    made = {output: node for node in nodes for output in node.outputs}
    result = []
    for node in nodes:
        before = made.get(node.inputs[0]) if node.inputs else None
        if before is not None and node.op_type == before.op_type == "Reshape":
            node = replace(node, inputs=[before.inputs[0], node.inputs[1]])
        elif before is not None and node.op_type == before.op_type == "Transpose":
            order = [before.attributes["perm"][axis] for axis in node.attributes["perm"]]
            node = replace(node, inputs=list(before.inputs), attributes={"perm": order})
        elif before is not None and node.op_type == before.op_type == "Cast":
            source = made.get(before.inputs[0])
            if source is not None and source.op_type == "TopK" and node.attributes["to"] == INT64:
                node = replace(node, op_type="Identity", inputs=list(before.inputs), attributes={})
        made[node.outputs[0]] = node
        result.append(node)
    return result


def _without_copies(nodes: Sequence[DraftNode], outputs: Sequence[str]) -> list[DraftNode]:
    """No identities, and no transposes that leave the order; the last node of an output takes its name."""
    names: dict[str, str] = {}
    result = []
    for node in nodes:
        node = replace(node, inputs=[names.get(name, name) for name in node.inputs])
        order = node.attributes.get("perm")
        same = node.op_type == "Identity" or (node.op_type == "Transpose" and order == sorted(order or [1]))
        if same and node.outputs[0] not in outputs:
            names[node.outputs[0]] = node.inputs[0]
        else:
            result.append(node)
    return _renamed(result, outputs)


def _renamed(nodes: Sequence[DraftNode], outputs: Sequence[str]) -> list[DraftNode]:
    """Outputs computed where they were copied from, if nothing else is in the way."""
    copies = [n for n in nodes if n.op_type == "Identity" and n.outputs[0] in outputs]
    counts = Counter(n.inputs[0] for n in copies)
    computed = {name for node in nodes for name in node.outputs} - set(outputs)
    alone = (n for n in copies if counts[n.inputs[0]] == 1 and n.inputs[0] in computed)
    moved = {n.inputs[0]: n.outputs[0] for n in alone}
    return [
        replace(
            node, inputs=[moved.get(name, name) for name in node.inputs],
            outputs=[moved.get(name, name) for name in node.outputs],
        )
        for node in nodes
        if not (node.op_type == "Identity" and moved.get(node.inputs[0]) == node.outputs[0])
    ]  # fmt: skip


def _alive(nodes: Sequence[DraftNode], outputs: Sequence[str]) -> list[DraftNode]:
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted |= set(node.inputs)
    return list(reversed(kept))
