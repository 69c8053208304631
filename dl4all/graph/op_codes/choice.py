"""The choice of calls that run as programs: those that are estimated to be faster so."""

from __future__ import annotations

from dl4all import config
from dl4all.graph.ir.graph import Graph
from dl4all.graph.op_codes.costs import is_measured, is_worthwhile
from dl4all.graph.op_codes.interpreter import variant_for
from dl4all.graph.op_codes.translator import lower
from dl4all.graph.passes import pipeline
from dl4all.runtime.device_info import DeviceInfo

SINGLE_OPS = ("constant_folding", "algebraic_simplification", "common_subexpressions", "dead_code")
"""Passes that leave ops: those that make kernels of several leave nothing that has instructions."""


def with_programs(traced: Graph, compiled: Graph, info: DeviceInfo) -> Graph:
    """The faster one of two forms of a call: with programs, or as it was compiled.

    Args:
        traced: the graph before all passes.
        compiled: the same after them.
        info: of the device.

    Returns:
        A graph of programs, or `compiled`.
    """
    if not is_measured(info):
        return compiled
    left_out = set(pipeline.NAMES).difference(SINGLE_OPS) | config.disabled_passes(pipeline.NAMES)
    variant = variant_for(info)
    lowered = lower(pipeline.run(traced, left_out), variant)
    if is_worthwhile(compiled, lowered.graph, lowered.programs, variant, info):
        return lowered.graph
    return compiled
