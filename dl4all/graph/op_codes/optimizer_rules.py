"""Steps of optimizers as instructions: all parameters that share the numbers of a step at once.

Their memory in the arena is put side by side, so that one instruction works on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dl4all.graph.ir.graph import Binding, BoundLaunch, MultiTensorLaunch, Node, VaryingWord
from dl4all.graph.op_codes.emitter import Emitter, Source, Unsupported
from dl4all.graph.op_codes.instruction import Register, register
from dl4all.graph.op_codes.statement_emitter import StatementEmitter
from dl4all.ops.core.expressions.statements import parse_statements
from dl4all.ops.core.kernels.multi_tensor import BATCH_PUSH
from dl4all.ops.core.kernels.push_block import push_constants, words_of
from dl4all.optim.step.kernels import RULES, UpdateRule


class OptimizerUpdate(NamedTuple):
    """A step for some parameters. A job binds gradient, state if there is one, and parameter."""

    rule: UpdateRule
    jobs: tuple[tuple[Binding, ...], ...]
    counts: tuple[int, ...]  # elements of each job
    numbers: tuple[int, ...]  # 32-bit words
    varying: tuple[tuple[int, VaryingWord], ...]  # positions among the numbers

    @property
    def key(self) -> tuple[object, ...]:
        """The key by which updates are merged into one."""
        words = tuple((position, word._replace(offset=0)) for position, word in self.varying)
        return self.rule, self.numbers, words


def is_update(node: Node) -> bool:
    """Whether a node is a step of an optimizer that has a rule."""
    if len(node.commands) != 1:
        return False
    [command] = node.commands
    if not isinstance(command, BoundLaunch | MultiTensorLaunch):
        return False
    return command.launch.shader.source in RULES


def update_of(node: Node) -> OptimizerUpdate:
    """The step that a node is.

    Raises:
        Unsupported: its tensors do not begin at the start of their memory.
    """
    [command] = node.commands
    assert isinstance(command, BoundLaunch | MultiTensorLaunch)
    shader = command.launch.shader
    if isinstance(command, BoundLaunch):
        one = push_constants(command.launch)
        push, shift = command.launch.push[BATCH_PUSH.size :], BATCH_PUSH.size
        jobs: tuple[tuple[Binding, ...], ...] = (command.bindings,)
        counts: tuple[int, ...] = (one.n,)
        if one.p_offset or one.g_offset:
            raise Unsupported("updates a part of a tensor")
    else:
        push, shift, jobs = command.push, 0, command.jobs
        counts = tuple(job[-1].nbytes // 4 for job in jobs)
        if command.before or command.after:
            raise Unsupported("binds more than gradients, states and parameters")
    if any(binding.offset for job in jobs for binding in job):
        raise Unsupported("updates a part of a tensor")
    numbers = words_of(push)
    varying = tuple(((word.offset - shift) // 4, word) for word in command.varying)
    return OptimizerUpdate(RULES[shader.source], jobs, counts, numbers, varying)


def reserve_updates(emitter: Emitter, nodes: Sequence[Node]) -> None:
    """Put the tensors of steps side by side, where they have no place yet.

    Raises:
        Unsupported: they are not the whole of their memory.
    """
    updates = [update_of(node) for node in nodes]
    _check_sizes(emitter, updates)
    columns = _columns(updates)
    buffers = [number for column in columns for number in column]
    if len(set(buffers)) < len(buffers) or any(number in emitter.pieces for number in buffers):
        return
    counts = [count for update in updates for count in update.counts]
    for position, column in enumerate(columns):
        is_state = len(columns) == 3 and position == 1
        parts = len(updates[0].rule.states) if is_state else 1
        starts = [emitter.reserve(sum(counts)) for _ in range(parts)]
        before = 0
        for number, count in zip(column, counts, strict=True):
            emitter.place(number, [start + before for start in starts])
            before += count


def emit_updates(emitter: Emitter, nodes: Sequence[Node]) -> None:
    """Append the instructions of steps with the same numbers.

    Raises:
        Unsupported: there are none, or the tensors do not lie side by side.
    """
    updates = [update_of(node) for node in nodes]
    reserve_updates(emitter, nodes)
    first = updates[0]
    varying = dict(first.varying)
    numbers = [emitter.number(word, varying.get(position)) for position, word in enumerate(first.numbers)]
    columns = _columns(updates)
    for column in columns:
        for number in column:
            emitter.read(number)
    for column in columns[1:]:
        for number in column:
            emitter.write(number, emitter.words_of(number))
    gradient, *states, parameter = (block for column in columns for block in _blocks(emitter, column))
    _emit_rule(emitter, first.rule, parameter, gradient, states, numbers)


def _check_sizes(emitter: Emitter, updates: Sequence[OptimizerUpdate]) -> None:
    """
    Raises:
        Unsupported: a tensor is not the whole of its memory.
    """
    for update in updates:
        states = len(update.rule.states)
        widths = (1, states, 1) if states else (1, 1)
        for job, count in zip(update.jobs, update.counts, strict=True):
            words = tuple(emitter.words_of(binding.buffer) for binding in job)
            if words != tuple(width * count for width in widths):
                raise Unsupported("updates a part of a tensor")


def _columns(updates: Sequence[OptimizerUpdate]) -> list[list[int]]:
    """The buffers of each role."""
    jobs = [job for update in updates for job in update.jobs]
    return [[binding.buffer for binding in role] for role in zip(*jobs, strict=True)]


def _blocks(emitter: Emitter, column: Sequence[int]) -> list[Register]:
    """The memory of a role's tensors, a block for each part of them.

    Raises:
        Unsupported: they do not lie side by side.
    """
    blocks = []
    for parts in zip(*(emitter.place(number) for number in column), strict=True):
        start = end = parts[0].register.offset
        for piece in parts:
            if piece.register.offset != end:
                raise Unsupported("has tensors that lie apart")
            end += piece.register.elements
        blocks.append(register(start, (end - start,)))
    return blocks


def _emit_rule(
    emitter: Emitter,
    rule: UpdateRule,
    parameter: Register,
    gradient: Register,
    states: Sequence[Register],
    numbers: Sequence[Source],
) -> None:
    """
    Raises:
        Unsupported: no instruction does what the rule does.
    """
    places = {"p": parameter, **dict(zip(rule.states, states, strict=True))}
    constants = dict(zip(rule.constants, numbers, strict=True))
    emitting = StatementEmitter(emitter, {"g": gradient, **places, **constants})
    for name, value in parse_statements(rule.statements):
        emitting.assign(name, value, places.get(name))
