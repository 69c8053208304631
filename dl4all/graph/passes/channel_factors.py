"""Batch norm computes the factors of its channels where their statistics and sums are complete.

In immediate mode each op makes the factors that its kernel needs in a small launch of its own. In a graph the
launch that combines statistics or sums knows who needs which factors, and writes them as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dl4all.graph.ir.graph import Binding, BoundLaunch, Graph, Node, Value, bindings_of, is_private
from dl4all.graph.passes.device_limits import max_bindings
from dl4all.ops.core.kernels.launch import pack
from dl4all.ops.core.kernels.push_block import push_constants

COMBINE_STATISTICS = "normalization/statistics_combine.comp"
COMBINE_SUMS = "normalization/sums_combine.comp"
FOLD = "normalization/batch_norm_fold.comp"
BACKWARD_FOLD = "normalization/batch_norm_backward_fold.comp"


class _Fold(NamedTuple):
    """A launch that makes factors, and where it is."""

    position: int
    command: BoundLaunch

    @property
    def is_weighted(self) -> bool:
        return self.command.launch.shader.macros["WEIGHT"] == 1


class _Extension(NamedTuple):
    """The part of other launches that a launch that combines takes over."""

    macros: dict[str, int]
    push: bytes
    reads: tuple[Binding, ...]
    bindings: tuple[Binding, ...]
    writes: tuple[bool, ...]
    folds: tuple[_Fold, ...]


def channel_factors(graph: Graph) -> Graph:
    """The graph without launches for factors that an earlier launch can write."""
    nodes: list[Node | None] = list(graph.nodes)
    limit = max_bindings(graph.device)
    for position in range(len(nodes)):
        node = nodes[position]
        for command in () if node is None else node.commands:
            if not isinstance(command, BoundLaunch) or "FACTORS" in command.launch.shader.macros:
                continue
            if command.launch.shader.path == COMBINE_STATISTICS:
                extension = _of_statistics(graph, nodes, position, command)
            elif command.launch.shader.path == COMBINE_SUMS:
                extension = _of_sums(graph, nodes, position, command)
            else:
                continue
            if extension is not None and len(command.bindings) + len(extension.bindings) <= limit:
                _extend(nodes, position, command, extension)
    return graph.with_nodes(node for node in nodes if node is not None)


def _of_statistics(
    graph: Graph, nodes: Sequence[Node | None], position: int, command: BoundLaunch
) -> _Extension | None:
    """The factors of mean and variance: those for the gradient, and those with the weight for the result."""
    channels = push_constants(command.launch).groups
    chosen: dict[bool, _Fold] = {}
    eps, weight_offset = None, 0
    for fold in _folds(graph, nodes, position, FOLD):
        push, bindings = push_constants(fold.command.launch), fold.command.bindings
        if bindings[0] != command.bindings[1] or bindings[1] != command.bindings[1]:
            continue
        places = push.channels, push.mean_offset, push.variance_offset
        if places != (channels, 0, channels) or fold.is_weighted in chosen:
            continue
        if eps not in (None, push.eps) or not _stays(nodes, position, fold, bindings[2:-1]):
            continue
        chosen[fold.is_weighted], eps = fold, push.eps
        if fold.is_weighted:
            weight_offset = push.weight_offset
    if eps is None:
        return None
    macros, bindings, writes = {}, tuple[Binding, ...](), tuple[bool, ...]()
    if False in chosen:
        macros["FACTORS"] = len(command.bindings)
        bindings, writes = (chosen[False].command.bindings[-1],), (True,)
    if True in chosen:
        macros["WEIGHTED"] = len(command.bindings) + len(bindings)
        weight, factors = chosen[True].command.bindings[2:]
        bindings, writes = (*bindings, factors, weight), (*writes, True, False)
    reads = tuple(b for b, written in zip(bindings, writes, strict=True) if not written)
    return _Extension(macros, pack(eps, weight_offset), reads, bindings, writes, tuple(chosen.values()))


def _of_sums(
    graph: Graph, nodes: Sequence[Node | None], position: int, command: BoundLaunch
) -> _Extension | None:
    """The factors of the gradient of the input."""
    doubled = push_constants(command.launch).n
    for fold in _folds(graph, nodes, position, BACKWARD_FOLD):
        folded, sums, *weights, factors = fold.command.bindings
        push = push_constants(fold.command.launch)
        if sums != command.bindings[1] or (2 * push.channels, push.sums_offset) != (doubled, 0):
            continue
        if not _stays(nodes, position, fold, (folded, *weights)):
            continue
        return _Extension(
            {"FACTORS": len(command.bindings), "WEIGHT": int(fold.is_weighted)},
            pack(push.count, push.weight_offset),
            (folded, *weights),
            (factors, folded, *weights),
            (True, *(False for _ in (folded, *weights))),
            (fold,),
        )
    return None


def _folds(graph: Graph, nodes: Sequence[Node | None], first: int, path: str) -> list[_Fold]:
    """The launches behind a node that make factors which only the graph sees."""
    found = []
    for position in range(first + 1, len(nodes)):
        node = nodes[position]
        for command in () if node is None else node.commands:
            if isinstance(command, BoundLaunch) and command.launch.shader.path == path:
                made = Value(command.bindings[-1].buffer, 1)
                if node is not None and made in node.writes and is_private(graph, made):
                    found.append(_Fold(position, command))
    return found


def _stays(nodes: Sequence[Node | None], first: int, fold: _Fold, bindings: Sequence[Binding]) -> bool:
    """Whether what a launch reads is the same already when a node ran."""
    buffers = {binding.buffer for binding in bindings}
    between = (node for node in nodes[first + 1 : fold.position + 1] if node is not None)
    return not any(value.buffer in buffers for node in between for value in node.writes)


def _extend(nodes: list[Node | None], position: int, command: BoundLaunch, extension: _Extension) -> None:
    """Have a launch make the factors of others, which go."""
    node = nodes[position]
    assert node is not None
    launch = command.launch
    shader = launch.shader.with_macros(extension.macros)
    extended = replace(
        command,
        launch=replace(launch, shader=shader, push=launch.push + extension.push),
        bindings=(*command.bindings, *extension.bindings),
        writes=(*command.writes, *extension.writes),
    )
    values = {binding.buffer for binding in extension.reads} - {value.buffer for value in node.writes}
    reads = tuple(
        value
        for fold in extension.folds
        for value in _node(nodes, fold.position).reads
        if value.buffer in values
    )
    made = tuple(Value(fold.command.bindings[-1].buffer, 1) for fold in extension.folds)
    nodes[position] = replace(
        node,
        commands=tuple(extended if other is command else other for other in node.commands),
        reads=tuple(dict.fromkeys((*node.reads, *reads))),
        writes=(*node.writes, *made),
    )
    for fold, value in zip(extension.folds, made, strict=True):
        nodes[fold.position] = _without(_node(nodes, fold.position), fold.command, value)


def _node(nodes: Sequence[Node | None], position: int) -> Node:
    node = nodes[position]
    assert node is not None
    return node


def _without(node: Node, command: BoundLaunch, made: Value) -> Node | None:
    """A node that reads factors instead of making them; None if it did nothing else."""
    commands = tuple(other for other in node.commands if other is not command)
    bound = {binding.buffer for other in commands for binding in bindings_of(other)}
    if not commands:
        return None
    return replace(
        node,
        commands=commands,
        reads=(*(value for value in node.reads if value.buffer in bound), made),
        writes=tuple(value for value in node.writes if value != made),
    )
