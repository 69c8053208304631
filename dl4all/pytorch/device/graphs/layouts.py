"""Strides of the values of a graph of ``torch.compile``: those that it was traced with.

What PyTorch traced, views and the shapes of aliases above all, holds for the strides that it computed without
running an op. Kernels of ``dlall`` may lay their results out in another order, contiguous instead of channels
last above all; a view of such a result would show other elements. Values that are seen through views, or
returned, are therefore put in the order that was traced, where they come in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dl4all.pytorch.device.dispatch.registration import hidden_from_dynamo
from dl4all.pytorch.device.storage.memory import is_dense

ALIASING_WITHOUT_SCHEMA = (torch.ops.aten._unsafe_view.default,)
"""Ops that return views of which their schemas say nothing."""


def keep_layouts(module: torch.fx.GraphModule) -> None:
    """Have a graph's values in memory as they were when it was traced."""
    graph = module.graph
    [returned] = [node for node in graph.nodes if node.op == "output"]
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or _is_view(node):
            continue
        users = [user for user in node.users if user is returned or _is_view(user)]
        order = _order(value) if users else None
        if order is None:
            continue
        with graph.inserting_after(node):
            laid_out = graph.call_function(in_order, (node, order))
        laid_out.meta = dict(node.meta)
        for user in users:
            user.replace_input_with(node, laid_out)
    module.recompile()


def in_order(value: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """A tensor without gaps between its elements, whose axes have this order in memory.

    Args:
        value: returned itself if it is so.
        order: the axes from the outermost.
    """
    permuted = value.permute(*order)
    if permuted.is_contiguous():
        return value
    back = sorted(range(len(order)), key=order.__getitem__)
    return permuted.contiguous().permute(back)


hidden_from_dynamo(in_order)


def _order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The axes from the outermost in memory to the innermost; None where there is nothing to choose, and
    where gaps, overlaps or sizes that data decide on leave no order."""
    if value.layout != torch.strided or value.dim() < 2:
        return None
    shape, strides = _hints(value.shape), _hints(value.stride())
    if shape is None or strides is None or not is_dense(shape, strides):
        return None
    return tuple(sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis)))


def _hints(sizes: Sequence[Any]) -> list[int] | None:
    """Sizes as they were in the traced call. As numbers they would bind the graph to themselves."""
    hints = [one if isinstance(one, int) else one.node.hint for one in sizes]
    return None if None in hints else hints


def _is_view(node: torch.fx.Node) -> bool:
    """Whether a node's value lies in the memory of one of its operands."""
    source: Any = node
    while source.op == "call_function" and getattr(source.target, "__name__", "") == "getitem":
        source = source.args[0]
    if source.op != "call_function":
        return True
    schema = getattr(source.target, "_schema", None)
    aliases = schema is not None and any(one.alias_info is not None for one in schema.returns)
    return aliases or source.target in ALIASING_WITHOUT_SCHEMA
