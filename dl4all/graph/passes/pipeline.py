"""The pipeline: passes in their order, which can be left out one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from dl4all import config
from dl4all.errors import ArgumentError, GraphError
from dl4all.graph.ir.graph import Graph, shaders_of
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.algebraic_simplification import algebraic_simplification
from dl4all.graph.passes.channel_factors import channel_factors
from dl4all.graph.passes.common_commands import common_commands
from dl4all.graph.passes.common_subexpressions import common_subexpressions
from dl4all.graph.passes.concatenation import concatenation
from dl4all.graph.passes.constant_folding import constant_folding
from dl4all.graph.passes.dead_code import dead_code
from dl4all.graph.passes.fusion.batch_norm_folding import batch_norm_folding
from dl4all.graph.passes.fusion.elementwise_fusion import elementwise_fusion
from dl4all.graph.passes.fusion.epilogues import epilogues
from dl4all.graph.passes.fusion.optimizer_fusion import optimizer_fusion
from dl4all.graph.passes.fusion.reduction_fusion import reduction_fusion
from dl4all.graph.passes.fusion.winograd_repairs import winograd_repairs
from dl4all.graph.passes.in_place import in_place
from dl4all.graph.passes.preamble import preamble
from dl4all.graph.passes.recomputation import recomputation
from dl4all.graph.passes.row_statistics import row_statistics
from dl4all.graph.passes.slice_gradients import slice_gradients
from dl4all.graph.passes.whole_copies import whole_copies
from dl4all.runtime import spirv
from dl4all.runtime.registry import hardware_name


class Pass(NamedTuple):
    """A function that returns a graph which computes the same with less; graphs are never changed."""

    name: str
    run: Callable[[Graph], Graph]


PASSES: tuple[Pass, ...] = (
    # What is known of single ops comes first: later passes see fewer and simpler ones.
    Pass("constant_folding", constant_folding),
    Pass("algebraic_simplification", algebraic_simplification),
    Pass("concatenation", concatenation),
    Pass("slice_gradients", slice_gradients),
    Pass("common_subexpressions", common_subexpressions),
    Pass("dead_code", dead_code),
    Pass("batch_norm_folding", batch_norm_folding),
    # What is done to all parameters alike, before fusion takes parts of it.
    Pass("optimizer_fusion", optimizer_fusion),
    # Fusion goes from the largest kernels to the smallest.
    Pass("winograd_repairs", winograd_repairs),
    Pass("epilogues", epilogues),
    Pass("row_statistics", row_statistics),
    Pass("reduction_fusion", reduction_fusion),
    Pass("whole_copies", whole_copies),
    Pass("elementwise_fusion", elementwise_fusion),
    Pass("recomputation", recomputation),
    # Single kernels of ops that were not the same as a whole.
    Pass("common_commands", common_commands),
    Pass("channel_factors", channel_factors),
    # What is left of work that does not change from call to call leaves the graph.
    Pass("preamble", preamble),
    # Last, as it decides what lies where.
    Pass("in_place", in_place),
)
"""All passes, in the order in which they run."""

ON_HOST = frozenset(("constant_folding", "algebraic_simplification", "common_subexpressions", "dead_code"))
"""Passes for graphs of the CPU.

Its calls are fused when they are prepared (:mod:`dl4all.graph.host.fusion`), without another bit in their
results, and nothing derived from parameters is kept: NumPy changes them without being counted.
"""

NAMES = tuple(dict.fromkeys(one.name for one in PASSES))


def run(graph: Graph, disabled: Collection[str] | None = None, *, verifies: bool | None = None) -> Graph:
    """Run all passes on a graph.

    Args:
        graph: as it was traced.
        disabled: names of passes that are left out; None for those that ``DL4ALL_PASSES`` names.
        verifies: whether to verify the graph before the first pass and after each; None for what
            ``DL4ALL_VERIFY_GRAPHS`` says.

    Returns:
        A graph that computes the same. Its notes say how many nodes and commands a pass has left, where it
        has changed anything.

    Raises:
        ArgumentError: there is no pass of a disabled name.
        ConfigError: a setting has an unusable value.
        GraphError: the graph, or what a pass has made of it, is not sound; the message names the pass.

    >>> from dl4all.graph.ir.parser import parse_graph
    >>> graph = parse_graph('''graph cpu
    ... buffer @0: input, 4 bytes
    ... buffer @1: temporary, 4 bytes
    ... buffer @2: output, 4 bytes
    ... inputs @0
    ... %1: float32[1] = mul(%0.0: float32[1], 1.0)
    ... %2: float32[1] = exp(%1)
    ... return %2
    ... ''')
    >>> smaller = run(graph)
    >>> [node.name for node in smaller.nodes], smaller.notes
    (['exp'], {'algebraic_simplification': '2 nodes became 1, 0 commands 0'})
    >>> len(run(graph, {"algebraic_simplification"}).nodes)
    2
    """
    left_out = config.disabled_passes(NAMES) if disabled is None else frozenset(disabled)
    if unknown := sorted(left_out.difference(NAMES)):
        raise ArgumentError(f"[passes] there is no pass {unknown[0]!r}; there are {', '.join(NAMES)}")
    checks = config.verifies_graphs() if verifies is None else verifies
    if checks:
        verify(graph)
    on_host = hardware_name(graph.device) == "cpu"
    compiles = on_host or spirv.can_compile()
    for one in PASSES:
        if one.name in left_out or (on_host and one.name not in ON_HOST):
            continue
        before, graph = graph, one.run(graph)
        if graph is before:
            continue
        if not compiles and not all(map(spirv.is_built, shaders_of(graph) - shaders_of(before))):
            graph = before  # without a compiler, ops run by the kernels that are there
            continue
        if checks:
            _verify_after(one.name, graph)
        if graph.nodes != before.nodes:
            graph = replace(graph, notes={**before.notes, **graph.notes, one.name: _change(before, graph)})
    return graph


def _verify_after(name: str, graph: Graph) -> None:
    """
    Raises:
        GraphError: it is not sound.
    """
    try:
        verify(graph)
    except GraphError as error:
        raise GraphError(f"{error} (after the pass {name}; DL4ALL_PASSES=-{name} leaves it out)") from None


def _change(before: Graph, after: Graph) -> str:
    nodes = f"{len(before.nodes)} nodes became {len(after.nodes)}"
    return f"{nodes}, {_commands(before)} commands {_commands(after)}"


def _commands(graph: Graph) -> int:
    return sum(len(node.commands) for node in graph.nodes)
