"""ONNX models as plain data: graphs of nodes whose attributes are Python's and NumPy's values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.untracked import Untracked

NDArray = npt.NDArray[Any]
Key = tuple[str, str]
"""An operator: its domain, empty for ONNX's own, and its name."""


class AttributeReference(NamedTuple):
    """An attribute of a function's body that is one of the node that calls it."""

    name: str


class ValueInfo(NamedTuple):
    """The declaration of an input or output of a graph."""

    name: str
    kind: str  # "tensor", "sequence" or "optional"
    dtype: np.dtype[Any] | None  # of a tensor's elements; None where the file does not say
    shape: tuple[int | str | None, ...] | None  # sizes, names of sizes, or None where the file does not say


@dataclass(frozen=True, eq=False)
class OnnxNode(Untracked):
    """One call of an operator."""

    domain: str
    op_type: str
    name: str
    inputs: tuple[str, ...]  # empty where an optional one is left out
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    overload: str = ""

    @property
    def key(self) -> Key:
        return self.domain, self.op_type

    def __str__(self) -> str:
        return f"node {self.name or self.outputs[0]!r} ({self.op_type})"

    @cached_property
    def graphs(self) -> tuple[OnnxGraph, ...]:
        """The graphs among the attributes."""
        return tuple(value for value in self.attributes.values() if isinstance(value, OnnxGraph))

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names that the node reads, those that its graphs take from around them among them."""
        free = (graph.free_names for graph in self.graphs)
        return frozenset(name for name in self.inputs if name).union(*free)

    def with_attributes(self, given: Mapping[str, Any]) -> OnnxNode:
        """The node of a function's body with the caller's attributes in place of references to them."""
        bound = {}
        for name, value in self.attributes.items():
            if isinstance(value, AttributeReference):
                if value.name in given:
                    bound[name] = given[value.name]
            elif isinstance(value, OnnxGraph):
                bound[name] = value.with_attributes(given)
            else:
                bound[name] = value
        return OnnxNode(self.domain, self.op_type, self.name, self.inputs, self.outputs, bound, self.overload)


@dataclass(frozen=True, eq=False)
class OnnxGraph(Untracked):
    """Nodes in an order in which each comes after those that it reads from."""

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    nodes: tuple[OnnxNode, ...]
    initializers: Mapping[str, NDArray] = field(default_factory=dict)

    @cached_property
    def arguments(self) -> tuple[ValueInfo, ...]:
        """The inputs that a caller gives: old files name initializers among them, too."""
        return tuple(info for info in self.inputs if info.name not in self.initializers)

    @cached_property
    def free_names(self) -> frozenset[str]:
        """The names that come from around the graph."""
        own = {info.name for info in self.inputs} | set(self.initializers)
        free = set[str]()
        for node in self.nodes:
            free |= node.reads - own
            own |= set(node.outputs)
        return frozenset(free | ({info.name for info in self.outputs} - own))

    @cached_property
    def last_uses(self) -> tuple[tuple[str, ...], ...]:
        """For each node, the names of results and inputs that nobody reads after it."""
        wanted = {info.name for info in self.outputs} | set(self.initializers)
        own = {info.name for info in self.inputs}.union(*(node.outputs for node in self.nodes)) - {""}
        found = []
        for node in reversed(self.nodes):
            last = ((node.reads | set(node.outputs)) & own) - wanted
            wanted |= last
            found.append(tuple(last))
        return tuple(reversed(found))

    def with_attributes(self, given: Mapping[str, Any]) -> OnnxGraph:
        nodes = tuple(node.with_attributes(given) for node in self.nodes)
        return OnnxGraph(self.name, self.inputs, self.outputs, nodes, self.initializers)

    def with_nodes(self, nodes: Iterable[OnnxNode], initializers: Mapping[str, NDArray]) -> OnnxGraph:
        return OnnxGraph(self.name, self.inputs, self.outputs, tuple(nodes), initializers)


@dataclass(frozen=True, eq=False)
class OnnxFunction(Untracked):
    """An operator that is a graph of others."""

    body: OnnxGraph
    defaults: Mapping[str, Any]  # of attributes
    opsets: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class OnnxModel(Untracked):
    """A whole file."""

    graph: OnnxGraph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], OnnxFunction]  # by domain, name and overload
    producer: str = ""


def every_node(graph: OnnxGraph) -> Iterable[OnnxNode]:
    """The nodes of a graph and of the graphs within it."""
    for node in graph.nodes:
        yield node
        for inner in node.graphs:
            yield from every_node(inner)
