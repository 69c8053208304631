"""The operators of a model that are not here."""

from __future__ import annotations

from collections import Counter

import dl4all.onnx.operators  # noqa: F401 - declares them
from dl4all.onnx.graph import OnnxGraph, OnnxModel, every_node
from dl4all.onnx.registry import find
from dl4all.onnx.standard_functions import is_standard


def missing_operators(model: OnnxModel) -> Counter[str]:
    """The operators of a model, and of the functions that it calls, that nothing here computes."""
    missing = Counter[str]()
    for graph, opsets in _graphs(model):
        for node in every_node(graph):
            opset = opsets.get(node.domain, 1)
            known = (
                (node.domain, node.op_type, node.overload) in model.functions
                or find(node.domain, node.op_type, opset) is not None
                or is_standard(node.domain, node.op_type, opset)
            )
            if not known:
                missing[f"{node.domain}::{node.op_type}" if node.domain else node.op_type] += 1
    return missing


def _graphs(model: OnnxModel) -> list[tuple[OnnxGraph, dict[str, int]]]:
    functions = [(f.body, {**model.opsets, **f.opsets}) for f in model.functions.values()]
    return [(model.graph, dict(model.opsets)), *functions]
