"""Winograd's convolution computes what is not finite again at once, not in a launch of its own.

The two launches are apart because together they bind five buffers, and some devices allow four.
"""

from __future__ import annotations

from dataclasses import replace

from dl4all.graph.ir.graph import BoundLaunch, Command, Graph
from dl4all.graph.passes.device_limits import max_bindings
from dl4all.ops.conv.winograd import REPAIR, RESULT
from dl4all.ops.core.kernels.launch import pack
from dl4all.ops.core.kernels.push_block import push_constants

RESULT_PATHS = {shader.path for shader in RESULT.values()}
REPAIR_PATHS = {shader.path for shader in REPAIR.values()}
BINDINGS = 5


def winograd_repairs(graph: Graph) -> Graph:
    """The graph with one launch instead of each two that write results and repair them."""
    if max_bindings(graph.device) < BINDINGS:
        return graph
    nodes = []
    for node in graph.nodes:
        commands = list[Command]()
        for command in node.commands:
            merged = _merged(commands[-1], command) if commands else None
            if merged is None:
                commands.append(command)
            else:
                commands[-1] = merged
        changed = len(commands) < len(node.commands)
        nodes.append(replace(node, commands=tuple(commands)) if changed else node)
    return graph.with_nodes(nodes)


def _merged(results: Command, repair: Command) -> BoundLaunch | None:
    """One launch that does the work of both; None unless they belong together."""
    if not isinstance(results, BoundLaunch) or not isinstance(repair, BoundLaunch):
        return None
    first, second = results.launch, repair.launch
    if first.shader.path not in RESULT_PATHS or second.shader.path not in REPAIR_PATHS:
        return None
    products, bias, out = results.bindings
    x, w, _, repaired = repair.bindings
    if "EPILOGUE" in first.shader.macros or out != repaired or first.groups != second.groups:
        return None
    # The push constants of winograd_repair.comp that winograd_result.comp does not have.
    p = push_constants(second)
    push = pack(p.channels, p.in_height, p.in_width, p.padding_h, p.padding_w, p.x_offset, p.w_offset)
    shader = first.shader.with_macros({**second.shader.macros, "REPAIR": 1})
    launch = replace(first, shader=shader, push=first.push + push)
    return BoundLaunch(launch, (products, bias, x, w, out), (False, False, False, False, True))
