"""Graphs made smaller before the first call: constants, dead nodes, batch norms after convolutions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dl4all.errors import Dl4allError
from dl4all.onnx.call import Call, EvaluationContext, is_array
from dl4all.onnx.evaluation import compute
from dl4all.onnx.graph import NDArray, OnnxGraph, OnnxModel, OnnxNode
from dl4all.onnx.registry import find
from dl4all.ops.core.dtypes import kind_of

MOST_FOLDED = 1 << 24
"""Bytes of inputs and of a result that are computed before the first call."""

CONSTANT_RESULTS = ("Shape", "Size")
"""Operators whose results are on the host wherever the input is."""


def folded(model: OnnxModel) -> tuple[OnnxGraph, dict[str, NDArray]]:
    """A model's graph without what needs no input, and by name what that has computed.

    Initializers stay what they are, as they may be parameters; constants and numbers of the host are folded.
    """
    graph = _without_batch_norms(_without_identities(model.graph))
    known: dict[str, Any] = {
        name: array
        for name, array in graph.initializers.items()
        if array.ndim == 0 or kind_of(array.dtype) != "f"
    }
    computed: dict[str, NDArray] = {}
    nodes = []
    for node in graph.nodes:
        results = _computed(node, known, model)
        if results is None:
            nodes.append(node)
            continue
        for name, result in zip(node.outputs, results, strict=False):
            known[name] = computed[name] = np.asarray(result)
    return _alive(graph, nodes, computed)


def _computed(node: OnnxNode, known: Mapping[str, Any], model: OnnxModel) -> Any:
    """The results of a node all of whose inputs are known on the host; None otherwise."""
    declared = find(node.domain, node.op_type, model.opsets.get(node.domain, 1))
    own = (node.domain, node.op_type, node.overload) in model.functions
    if declared is None or own or declared.on_host is None or node.graphs:
        return None
    if any(name and name not in known for name in node.inputs):
        return None
    inputs = [known[name] if name else None for name in node.inputs]
    if sum(value.nbytes for value in inputs if value is not None) > MOST_FOLDED:
        return None
    try:
        context = EvaluationContext(model.opsets, model.functions, 0, {})
        results = compute(declared, Call(node, context, {}, None), inputs)  # type: ignore[arg-type]  # no tensor is made
    except (Dl4allError, ValueError, TypeError, IndexError, ArithmeticError, AttributeError):
        return None  # the call will say what is wrong, if it comes to this node
    if not all(is_array(result) and result.nbytes <= MOST_FOLDED for result in results):
        return None
    return results


def _alive(
    graph: OnnxGraph, nodes: list[OnnxNode], computed: dict[str, NDArray]
) -> tuple[OnnxGraph, dict[str, NDArray]]:
    """The nodes whose results are read, and the constants and initializers that they read."""
    wanted = {info.name for info in graph.outputs}
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted |= node.reads
    initializers = {name: array for name, array in graph.initializers.items() if name in wanted}
    # Old files list initializers as inputs, too, and those that nobody reads any more are none.
    inputs = tuple(info for info in graph.inputs if info.name not in graph.initializers)
    smaller = OnnxGraph(graph.name, inputs, graph.outputs, tuple(reversed(kept)), initializers)
    return smaller, {name: array for name, array in computed.items() if name in wanted}


def wanted_on_host(graph: OnnxGraph, opsets: Mapping[str, int]) -> frozenset[str]:
    """The names whose numbers decide about shapes: operators read them on the host."""
    wanted = set[str]()
    for node in reversed(graph.nodes):
        declared = find(node.domain, node.op_type, opsets.get(node.domain, 1))
        for inner in node.graphs:
            wanted |= wanted_on_host(inner, opsets)
        if declared is None:
            continue
        wanted |= {node.inputs[i] for i in declared.reads if i < len(node.inputs)}
        if (
            declared.on_host is not None
            and node.op_type not in CONSTANT_RESULTS
            and wanted & set(node.outputs)
        ):
            wanted |= set(node.inputs)
    return frozenset(wanted - {""})


def _without_identities(graph: OnnxGraph) -> OnnxGraph:
    """The nodes without those that hand on their input, whose readers read that instead."""
    inner = (part.free_names for node in graph.nodes for part in node.graphs)
    fixed = {info.name for info in graph.outputs}.union(*inner)
    names: dict[str, str] = {}
    nodes = []
    for node in graph.nodes:
        inputs = tuple(names.get(name, name) for name in node.inputs)
        if node.key == ("", "Identity") and node.outputs[0] not in fixed:
            names[node.outputs[0]] = inputs[0]
        else:
            nodes.append(node if inputs == node.inputs else replace(node, inputs=inputs))
    return graph.with_nodes(nodes, graph.initializers)


def _without_batch_norms(graph: OnnxGraph) -> OnnxGraph:
    """Convolutions with the factors of the batch norms that alone read their results."""
    reads = Counter(name for node in graph.nodes for name in node.reads)
    reads.update(info.name for info in graph.outputs)
    producers = {node.outputs[0]: node for node in graph.nodes if node.op_type == "Conv" and not node.domain}
    initializers, replaced = dict(graph.initializers), dict[str, OnnxNode | None]()
    taken = {*initializers, *reads, *(info.name for info in graph.inputs)}
    for node in graph.nodes:
        conv = (
            producers.get(node.inputs[0])
            if node.op_type == "BatchNormalization" and not node.domain
            else None
        )
        if conv is None or node.attributes.get("training_mode") or len(list(filter(None, node.outputs))) != 1:
            continue
        own, factors = conv.inputs[1:], node.inputs[1:]
        alone = all(reads[name] == 1 for name in (conv.outputs[0], *own))
        if not alone or not all(name in initializers for name in (*own, *factors)):
            continue
        weight = initializers[conv.inputs[1]]
        scale, bias, mean, var = (initializers[name].astype(np.float64) for name in node.inputs[1:])
        factor = scale / np.sqrt(var + node.attributes.get("epsilon", 1e-5))
        offset = initializers[conv.inputs[2]].astype(np.float64) if len(conv.inputs) > 2 else 0.0
        bias_name = conv.inputs[2] if len(conv.inputs) > 2 else _bias_name(conv.inputs[1], taken)
        taken.add(bias_name)
        initializers[conv.inputs[1]] = (weight * factor.reshape(-1, *[1] * (weight.ndim - 1))).astype(
            weight.dtype
        )
        initializers[bias_name] = ((offset - mean) * factor + bias).astype(weight.dtype)
        inputs = (conv.inputs[0], conv.inputs[1], bias_name)
        replaced[conv.outputs[0]] = None
        replaced[node.outputs[0]] = OnnxNode("", "Conv", conv.name, inputs, node.outputs, conv.attributes)
    nodes = (replaced.get(node.outputs[0], node) for node in graph.nodes)
    return graph.with_nodes((node for node in nodes if node is not None), initializers)


def _bias_name(weight: str, taken: set[str]) -> str:
    """A name for the bias beside a weight.

    >>> _bias_name("layer.weight", set()), _bias_name("w", {"w.bias"})
    ('layer.bias', 'w.bias_')
    """
    name = f"{weight.removesuffix('.weight')}.bias"
    while name in taken:
        name += "_"
    return name
