"""Forward and backward of one batch, computed by several devices at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.autograd.engine import backpropagate
from dl4all.errors import ArgumentError, DeviceError
from dl4all.multi_device.data_parallel.copies import Fetch, wait_for_commands
from dl4all.multi_device.data_parallel.model_parts import ModelParts
from dl4all.multi_device.data_parallel.reduction import Bucket, Collector, GradientReduction, reduce
from dl4all.multi_device.data_parallel.rendezvous import Rendezvous
from dl4all.multi_device.data_parallel.shard import PeerExchange, Shard, working_on
from dl4all.multi_device.replica import Replica
from dl4all.multi_device.structure import map_tensors, tensors_of
from dl4all.nn.module import Parameter
from dl4all.ops.core import tape
from dl4all.ops.random.generator import State
from dl4all.runtime.profiler.phase import phase
from dl4all.runtime.simulated.backend import Hang
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.scheduler.streams.task import Task
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

Arrays = dict[int, npt.NDArray[Any]]
"""Elements of tensors, by the identities of the tensors."""

GRACE = 0.5  # of the timeout: how much longer to wait for devices that were told to stop


class ShardFailure(Exception):
    """A device has failed at its part of a batch."""

    def __init__(self, device: Device, rows: int, error: BaseException) -> None:
        super().__init__(f"{device}: {error}")
        self.device, self.rows, self.error = device, rows, error


class BatchSpan(NamedTuple):
    """The rows of this process within a batch that several processes compute.

    Args:
        start: the first of them.
        total: how many the batch has.
        random: the state of the generator from which the whole batch draws.
        peers: what the forward pass exchanges with the others; None where there are none.
        patience: seconds longer than for a device that a pass may take, as the others may be late.
        vacant: whether one of the processes has no rows.
        synchronized: whether the gradients are to be those of all processes.
    """

    start: int
    total: int
    random: State
    peers: PeerExchange | None = None
    patience: float = 0.0
    vacant: bool = False
    synchronized: bool = False


@dataclass
class ShardedCall:
    """A call of a model: what it was given, and the state in which it was called."""

    inputs: tuple[Any, ...]
    options: dict[str, Any]
    gradients: bool
    rows: int
    parts: ModelParts  # of the model, as it was
    span: BatchSpan


@dataclass
class ShardResult:
    """The result of one device for its shard."""

    shard: Shard
    replica: Replica
    outputs: Any = None  # on the device
    leaves: dict[int, Tensor] = field(default_factory=dict)  # by the identity of the call's inputs
    fetched: list[Any] = field(default_factory=list)  # the outputs' tensors on the host
    random: State = (0, 0)  # behind what the forward pass has drawn
    gradients: Arrays = field(default_factory=dict)  # of the leaves that the loss depends on
    seconds: float = 0.0


def forward(
    group: DeviceGroup,
    call: ShardedCall,
    shares: Sequence[tuple[Replica, int]],
    send: Callable[[], None],
    stop: Callable[[BaseException], None],
) -> list[ShardResult]:
    """Compute each device's rows.

    Args:
        group: whose streams do it.
        call: what to compute.
        shares: the replicas and how many rows each computes.
        send: called when all have begun: sends them what they wait for.
        stop: called when something has failed: they shall not wait for that any more.

    Raises:
        ShardFailure: a device has failed. None works on this batch any more.
    """
    meeting = Rendezvous(len(shares), group.timeout + call.span.patience)
    starts = [0, *itertools.accumulate(rows for _, rows in shares)]
    parts = [
        ShardResult(Shard(replica.device, party, len(shares), start, rows, meeting, call.span.peers), replica)
        for party, ((replica, rows), start) in enumerate(zip(shares, starts, strict=False))
    ]
    alone = len(parts) == 1 and parts[0].replica.device is group.primary
    on_host: Arrays = {}
    if not alone:
        _of_primary(group.primary, parts, lambda: on_host.update(_on_host([call.inputs, call.options])))
    _run(
        group,
        parts,
        meeting,
        lambda part: _forward_shard(part, call, on_host, fetch=not alone),
        lambda: _of_primary(group.primary, parts, send),
        stop,
        call.span.patience,
    )
    return parts


def _on_host(values: Any) -> Arrays:
    """The elements of tensors that are not on the host, by the tensors' identities; each is fetched once."""
    return {
        id(tensor): Fetch(tensor.detach(), "download").wait()
        for tensor in tensors_of(values)
        if not tensor.device.is_cpu
    }


def _rows_on(value: Tensor, rows: slice | None, device: Device, on_host: Arrays) -> Tensor:
    """Rows of a tensor, or all of it, on a device."""
    if value.device is device:
        return value.detach() if rows is None else value.detach()[rows]
    array = on_host[id(value)] if id(value) in on_host else value.detach().numpy()
    return from_numpy(array if rows is None else array[rows], device)


def _forward_shard(part: ShardResult, call: ShardedCall, on_host: Arrays, *, fetch: bool) -> None:
    shard = part.shard
    begun = shard.seconds()
    with phase("upload"), tape.gradients(False):
        rows = slice(shard.start, shard.start + shard.rows)

        def placed(value: Tensor) -> Tensor:
            if id(value) in part.leaves:
                return part.leaves[id(value)]  # given twice, so that its gradient is the sum of both uses
            of_batch = value.ndim > 0 and value.shape[0] == call.rows
            piece = _rows_on(value, rows if of_batch else None, shard.device, on_host)
            if call.gradients and tape.wants_gradient(value):
                part.leaves[id(value)] = piece = piece.detach().requires_grad_()
            return piece

        inputs = map_tensors(call.inputs, placed)
        options = map_tensors(call.options, placed)
    span = call.span
    drawing = working_on(shard, span.random, span.start, span.total)
    with phase("forward"), drawing as generator, tape.gradients(call.gradients):
        part.outputs = part.replica.module(*inputs, **options)
        part.random = generator.get_state()
    if fetch:
        with phase("download"), tape.gradients(False):
            for change in shard.afterwards:
                change.bring()
    for output in tensors_of(part.outputs):
        if output.ndim and output.shape[0] != shard.rows:
            raise ArgumentError(
                f"[parallel] an output has the shape {output.shape} for {shard.rows} rows; outputs must have "
                "the rows of the batch along their first axis, or be single numbers that are means over it"
            )
    if fetch:
        part.fetched = [Fetch(output.detach(), "download").wait() for output in tensors_of(part.outputs)]
    wait_for_commands(shard.device)
    part.seconds = shard.seconds() - begun - shard.waited


def backward(
    group: DeviceGroup,
    call: ShardedCall,
    parts: Sequence[ShardResult],
    grads: Sequence[Tensor | None],
    parameters: Sequence[Parameter],
    peers: PeerExchange | None,
    buckets: Sequence[Bucket],
    network: GradientReduction | None,
) -> list[Tensor | None]:
    """Gradients of the parameters. Those of the inputs stay with the parts.

    Args:
        group, call: as for :func:`forward`.
        parts: what that returned.
        grads: of the outputs, on the primary device.
        parameters: the model's.
        peers: what layers exchange with other processes.
        buckets: of the parameters' numbers.
        network: adds the gradients of other processes; None where they are this one's alone.

    Raises:
        ShardFailure
    """
    meeting = Rendezvous(len(parts), group.timeout + call.span.patience)
    primary = group.primary
    collectors = []
    for part in parts:
        part.shard.meet_again(meeting, peers)
        leaves = [part.replica.pairs[id(parameter)][1] for parameter in parameters]
        stays = part.replica.device is primary and network is None
        collectors.append(Collector(leaves, buckets, part.shard.party, meeting, stays=stays))
    elsewhere = [part.shard.party for part in parts if part.replica.device is not primary]
    on_host: Arrays = {}
    if elsewhere:
        _of_primary(primary, parts, lambda: on_host.update(_on_host(list(grads))))
    sums: dict[int, Tensor] = {}
    taken = elsewhere if network is None else [part.shard.party for part in parts]

    def collect() -> None:
        for bucket, flat, used in reduce(buckets, taken, meeting, network):
            _of_primary(primary, parts, lambda: sums.update(bucket.views(flat, used, primary)))  # noqa: B023

    _run(
        group,
        parts,
        meeting,
        lambda part: _backward_shard(part, call, grads, on_host, collectors[part.shard.party]),
        collect,
        patience=call.span.patience,
    )
    own: dict[int, Tensor] = {}
    for part, collector in zip(parts, collectors, strict=True):
        if part.replica.device is primary:
            own = collector.kept
    with tape.gradients(False):
        return [_sum(own.get(number), sums.get(number)) for number in range(len(parameters))]


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _backward_shard(
    part: ShardResult,
    call: ShardedCall,
    grads: Sequence[Tensor | None],
    on_host: Arrays,
    collector: Collector,
) -> None:
    shard = part.shard
    begun, waited = shard.seconds(), shard.waited
    rows = slice(shard.start, shard.start + shard.rows)
    roots, seeds = [], []
    with phase("backward"):
        with tape.gradients(False):
            for output, grad in zip(tensors_of(part.outputs), grads, strict=True):
                if grad is not None and tape.wants_gradient(output):
                    roots.append(output)
                    seed = _rows_on(grad, rows if output.ndim else None, shard.device, on_host)
                    seeds.append(seed if output.ndim else seed * (shard.rows / max(call.rows, 1)))
        backpropagate(roots, seeds, retain_graph=False, create_graph=False, leaf_ready=collector.add)
        collector.finish()
        part.gradients = {
            key: Fetch(collector.others[id(leaf)], "download").wait()
            for key, leaf in part.leaves.items()
            if id(leaf) in collector.others
        }
        wait_for_commands(shard.device)
    part.seconds += shard.seconds() - begun - (shard.waited - waited)


def _of_primary(device: Device, parts: Sequence[ShardResult], work: Callable[[], None]) -> None:
    """Run what concerns the primary device alone; its failure is that device's."""
    try:
        work()
    except DeviceError as error:
        rows = next((part.shard.rows for part in parts if part.replica.device is device), 0)
        raise ShardFailure(device, rows, error) from error


def _run(
    group: DeviceGroup,
    parts: Sequence[ShardResult],
    meeting: Rendezvous,
    work: Callable[[ShardResult], None],
    meanwhile: Callable[[], None],
    stop: Callable[[BaseException], None] = lambda error: None,
    patience: float = 0.0,
) -> None:
    """Work on all parts in their devices' streams, and on something else meanwhile.

    However it is left, none works any more: the state of the devices is not another batch's.

    Raises:
        ShardFailure: a device has failed, or did not come to an end in time.
        DeviceError: the group's streams were closed meanwhile.
    """

    def guarded(part: ShardResult) -> None:
        try:
            work(part)
        except BaseException as error:
            meeting.fail(part.shard.party, error)
            raise

    tasks: list[Task] = []
    failure: BaseException | None = None
    try:
        for part in parts:
            tasks.append(group.stream(part.replica.device).submit(guarded, part))
        meanwhile()
        late = _late(group, parts, tasks, patience)
    except BaseException as error:  # noqa: BLE001  # raised below, when no device works any more
        failure = error
        meeting.fail(None, error)
        stop(error)
        late = _late(group, parts, tasks, patience)
    if failure is not None and not isinstance(failure, (DeviceError, ShardFailure)):
        raise failure  # no device's: Ctrl-C, say
    if late and (meeting.error is None or isinstance(meeting.error, DeviceError)):
        # Before others that failed, too: those say so at once the next time, this one after a timeout.
        hang = Hang(f"it did not answer within {group.timeout:g} seconds")
        raise ShardFailure(late[0].replica.device, late[0].shard.rows, hang) from hang
    if isinstance(failure, ShardFailure):  # the cause of what the others met with
        raise failure
    if meeting.error is None:
        _check_computed(parts, tasks)
        return
    if meeting.failed is None:
        assert failure is not None
        raise failure
    part = parts[meeting.failed]
    raise ShardFailure(part.replica.device, part.shard.rows, meeting.error) from meeting.error


def _check_computed(parts: Sequence[ShardResult], tasks: Sequence[Task]) -> None:
    """
    Raises:
        DeviceError: a part was cancelled, as the streams were closed meanwhile.
    """
    for part, task in zip(parts, tasks, strict=False):
        if task.state == "cancelled":
            raise DeviceError(
                f"[parallel] {part.replica.device} did not compute its {part.shard.rows} rows, as its stream "
                "was closed meanwhile"
            )


def _late(
    group: DeviceGroup, parts: Sequence[ShardResult], tasks: Sequence[Task], patience: float
) -> list[ShardResult]:
    """Wait for the parts, and say which did not come to an end."""
    timeout = group.timeout * (1 + GRACE) + patience
    return [part for part, task in zip(parts, tasks, strict=False) if not task.wait(timeout)]


def joined(call: ShardedCall, parts: Sequence[ShardResult], device: Device) -> list[Tensor]:
    """The outputs of the whole batch on the primary device, without a history."""
    if len(parts) == 1 and parts[0].replica.device is device:
        given = {id(tensor.storage) for tensor in tensors_of([call.inputs, call.options])}
        outputs = [output.detach() for output in tensors_of(parts[0].outputs)]
        return [output.clone() if id(output.storage) in given else output for output in outputs]
    result = []
    for number in range(len(parts[0].fetched)):
        pieces = [part.fetched[number] for part in parts]
        if pieces[0].ndim:
            result.append(from_numpy(np.concatenate(pieces), device))
        else:
            weights = [part.shard.rows / call.rows for part in parts]
            mean = sum(piece * weight for piece, weight in zip(pieces, weights, strict=True))
            result.append(from_numpy(np.asarray(mean, pieces[0].dtype), device))
    return result


def connected(parts: Sequence[ShardResult]) -> list[bool]:
    """Of which outputs there are gradients: those that depend on parameters or inputs that want some."""
    wanting = [[tape.wants_gradient(output) for output in tensors_of(part.outputs)] for part in parts]
    return [any(of_parts) for of_parts in zip(*wanting, strict=True)]


def input_gradient(call: ShardedCall, parts: Sequence[ShardResult], tensor: Tensor) -> Tensor | None:
    """The gradient of a tensor that the model was called with; None if the loss does not depend on it."""
    key = id(tensor)
    if not any(key in part.gradients for part in parts):
        return None
    pieces = [
        part.gradients[key]
        if key in part.gradients
        else np.zeros(part.leaves[key].shape, part.leaves[key].dtype)
        for part in parts
    ]
    of_batch = tensor.ndim > 0 and tensor.shape[0] == call.rows
    whole = np.concatenate(pieces) if of_batch else np.asarray(np.sum(pieces, axis=0), pieces[0].dtype)
    return from_numpy(whole, tensor.device)
