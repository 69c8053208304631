"""Graphs of which some ops run on the CPU: what is in front of these and behind them is still recorded.

A graph's first call is observed node by node. If some nodes cannot be replayed, as those that fall back to
the CPU, the graph is cut into parts that run one after the other: nodes of the device, then nodes of the host
that need them, and so on. A node is in the first part that has what it needs, so that there are few parts.
Random numbers are drawn in the same order as before, and what writes to arguments keeps its place.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from dl4all.graph.tracing import trace
from dl4all.scheduler import listeners
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.listeners import capture


class Observed(NamedTuple):
    """The results of a call, and why nodes of the graph cannot be replayed, by name."""

    results: list[Any]
    reasons: dict[str, str]


class GraphPart(NamedTuple):
    """Some nodes of a graph, which run together."""

    module: torch.fx.GraphModule
    inputs: tuple[str, ...]
    """The names of the nodes whose values its placeholders take."""
    outputs: tuple[str, ...]
    on_host: bool
    last_uses: tuple[str, ...]
    """Nodes whose values no later part needs."""


class _Nodes(torch.fx.Interpreter):
    """Runs a graph and notes the nodes that a tracer refuses."""

    def __init__(self, module: torch.fx.GraphModule, tracer: trace.Tracer) -> None:
        super().__init__(module)
        self.tracer = tracer
        self.reasons: dict[str, str] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        if self.tracer.refusal:
            self.reasons[n.name] = self.tracer.refusal
            self.tracer.refusal = ""
        return result


def observe(module: torch.fx.GraphModule, arguments: Sequence[Any], device: Device) -> Observed | None:
    """Run a graph node by node; None, and nothing is run, while something else is traced."""
    if listeners.captured() or not capture.lock.acquire(blocking=False):
        return None
    try:
        tracer = trace.Tracer(device)
        nodes = _Nodes(module, tracer)
        results = trace.run(tracer, lambda: nodes.run(*arguments))
    finally:
        capture.lock.release()
    return Observed(list(results), nodes.reasons)


def cut(module: torch.fx.GraphModule, on_host: Iterable[str]) -> list[GraphPart]:
    """The parts of a graph in the order in which they run.

    Args:
        module: the graph.
        on_host: the names of the nodes that are to be in other parts than the rest.
    """
    levels = _levels(module.graph, frozenset(on_host))
    by_level: dict[int, list[torch.fx.Node]] = defaultdict(list)
    for node, level in levels.items():
        by_level[level].append(node)
    [returned] = [node for node in module.graph.nodes if node.op == "output"]
    last = {
        value.name: max((levels[user] for user in value.users if user in levels), default=-1)
        for value in module.graph.nodes
    }
    for value in returned.all_input_nodes:
        last[value.name] = max(by_level) + 1
    return [_part(module, level, by_level[level], last) for level in sorted(by_level)]


def _levels(graph: torch.fx.Graph, on_host: frozenset[str]) -> dict[torch.fx.Node, int]:
    """The number of each node's part: even for those of the device, odd for those of the host."""
    levels: dict[torch.fx.Node, int] = {}
    highest, after_writes, after_draws = 0, 0, 0
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        needed = [levels[one] for one in node.all_input_nodes if one in levels]
        if node.target is operator.getitem and needed:
            levels[node] = needed[0]
            continue
        draws, writes = _draws(node), _writes(node)
        needed += [after_writes, after_draws * draws, highest * writes]
        level = max(needed)
        level += (level % 2 == 1) is not (node.name in on_host)
        levels[node] = level
        highest = max(highest, level)
        after_writes, after_draws = level if writes else after_writes, level if draws else after_draws
    return levels


def _draws(node: torch.fx.Node) -> bool:
    """Whether a node takes random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _writes(node: torch.fx.Node) -> bool:
    """Whether a node changes an operand."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _part(
    module: torch.fx.GraphModule, level: int, nodes: Sequence[torch.fx.Node], last: Mapping[str, int]
) -> GraphPart:
    graph, copies = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    own = set(nodes)
    needed = dict.fromkeys(one for node in nodes for one in node.all_input_nodes if one not in own)
    inputs = [one for one in needed if one.op != "get_attr"]
    for one in inputs:
        copies[one] = graph.placeholder(one.name)
    for one in (one for one in needed if one.op == "get_attr"):
        copies[one] = graph.node_copy(one)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = [node for node in nodes if last[node.name] > level]
    graph.output(tuple(copies[node] for node in outputs))
    ended = [node.name for node in (*inputs, *outputs) if last[node.name] <= level]
    return GraphPart(
        torch.fx.GraphModule(module, graph),
        tuple(node.name for node in inputs),
        tuple(node.name for node in outputs),
        level % 2 == 1,
        tuple(ended),
    )


def returned_by(module: torch.fx.GraphModule, values: Mapping[str, Any]) -> Iterator[Any]:
    """The results of a graph, given the values of its nodes and arguments by name."""
    [returned] = [node for node in module.graph.nodes if node.op == "output"]
    for value in returned.args[0]:
        if not isinstance(value, torch.fx.Node):
            yield value
        elif value.op == "get_attr":
            yield getattr(module, str(value.target))
        else:
            yield values[value.name]
