"""Data parallelism: each device of a group computes some rows of every batch."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from dl4all.autograd import is_grad_enabled
from dl4all.errors import (
    ArgumentError,
    DeviceError,
    DeviceLostError,
    GradientError,
    OutOfMemoryError,
)
from dl4all.multi_device.data_parallel import sharded_step
from dl4all.multi_device.data_parallel.balance import Balance, Estimate
from dl4all.multi_device.data_parallel.batch_norm import ShardedBatchNorm
from dl4all.multi_device.data_parallel.broadcast import Broadcast
from dl4all.multi_device.data_parallel.buffers import Buffers
from dl4all.multi_device.data_parallel.copies import give_memory
from dl4all.multi_device.data_parallel.model_parts import ModelParts
from dl4all.multi_device.data_parallel.reduction import BUCKET_BYTES, GradientReduction, buckets_of
from dl4all.multi_device.data_parallel.shard import PeerExchange
from dl4all.multi_device.data_parallel.sharded_step import BatchSpan, ShardedCall, ShardFailure, ShardResult
from dl4all.multi_device.data_parallel.step_plan import StepPlan, estimate, parameters_of, predict
from dl4all.multi_device.group_module import GroupModule, check_parts
from dl4all.multi_device.replica import Replica
from dl4all.multi_device.structure import map_tensors, tensors_of
from dl4all.multi_device.trace.work_trace import BatchWork, batch_work
from dl4all.nn.module import Module, Parameter
from dl4all.nn.modules.normalization import BatchNorm
from dl4all.ops.core import tape
from dl4all.ops.random.generator import MisalignedShard, State, default_generator
from dl4all.runtime.simulated.backend import Hang
from dl4all.scheduler.cost.cost_model import is_measured, speeds
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.tensor.tensor import Tensor

TRACED_ROWS = 8  # work is linear in the rows: so many show it
ALIGNED = 4  # rows: a counter of the random generator makes four words
FLOPS_PER_ROW = 1e9  # for the first split, where only ratios count

logger = logging.getLogger("dl4all")


def parallel(
    model: Module, group: DeviceGroup | Sequence[str | Device], *, sync_batch_norm: bool = True
) -> DataParallel:
    """Spread every batch that a model is called with over the devices of a group.

    See :class:`DataParallel`.

    Example:
        >>> import dl4all as dl
        >>> net = dl.parallel(dl.nn.Linear(3, 1), dl.DeviceGroup(["cpu", "cpu#1"]))
        >>> net(dl.ones(5, 3, device="cpu")).sum().backward()
        >>> net.module.weight.grad.tolist()
        [[5.0, 5.0, 5.0]]
    """
    return DataParallel(model, group, sync_batch_norm=sync_batch_norm)


class DataParallel(GroupModule):
    """A model whose batches several unlike devices compute together, as if one device did.

    The model lies on the group's first device, where the optimizer works and results arrive. Every call
    splits the batch along the first axis of its tensors, in proportion to what the devices were measured to
    do. The backward pass runs on all of them, too, and adds the gradients up while it runs. Each is the
    gradient of the whole batch's loss, so shards of any size count by their rows. What differs from one
    device is the order in which float numbers are added.

    Random numbers that belong to rows, such as dropout's, are those that one device would draw. A device that
    fails or does not answer within ``group.timeout`` seconds is retired, and the others compute its rows. If
    that is the first one, the parameters are lost with it, and DeviceLostError says so.

    Args:
        model: takes and returns tensors with the batch along their first axis, within tuples, lists and
            dicts; it may also return single numbers that are means over the batch. Other tensors are given to
            all devices.
        group: the devices; a list makes a group.
        sync_batch_norm: whether batch normalization uses the statistics of the whole batch, as one device
            does. Otherwise each device uses those of its rows, which waits for nobody, and the running
            statistics are the first device's.

    Raises:
        ArgumentError: the model is not a module, or a part of it is itself over several devices.

    Example:
        >>> import dl4all as dl
        >>> group = dl.DeviceGroup(["cpu", "cpu#1"])
        >>> net = dl.parallel(dl.models.MLP(2, [8], 1), group)
        >>> optimizer = dl.optim.SGD(net.parameters(), lr=0.1)
        >>> loss = net(dl.ones(6, 2, device="cpu")).square().mean()
        >>> loss.backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        model: Module,
        group: DeviceGroup | Sequence[str | Device],
        *,
        sync_batch_norm: bool = True,
    ) -> None:
        super().__init__()
        check_parts("parallel", model)
        self.group = group if isinstance(group, DeviceGroup) else DeviceGroup(group)
        self.module = self._placed(model)
        self.sync_batch_norm = sync_batch_norm
        self._replicas: dict[Device, Replica] = {}
        self._broadcast = Broadcast(self.group.timeout)
        self.balance = Balance({device: _estimate(device) for device in self.group.devices})
        self._parts: ModelParts | None = None
        self._work: BatchWork | None = None
        self._traced = False  # whether that was tried
        self._bucket_nbytes = BUCKET_BYTES

    def plan(self, *inputs: Any) -> StepPlan:
        """The split of a batch among the devices now, and the time of a step.

        Args:
            inputs: a batch; its numbers do not matter.

        Raises:
            ArgumentError: there are no tensors, or they have no rows.
            TraceError: the model looks at numbers while it runs, so that its work is not known before.

        Example:
            >>> import dl4all as dl
            >>> from dl4all.scheduler.cost.simulation import simulated_device
            >>> devices = [simulated_device(gflops=2.0), simulated_device(gflops=1.0)]
            >>> net = dl.parallel(dl.models.MLP(256, [2048], 256), devices)
            >>> net.plan(dl.zeros(96, 256, device="cpu")).rows
            (64, 32)
        """
        tensors = tensors_of(list(inputs))
        if not tensors or not tensors[0].ndim or not tensors[0].shape[0]:
            raise ArgumentError(
                "[plan] expected a batch, the tensors that the model is called with, with rows along axis 0; "
                f"got {', '.join(type(one).__name__ for one in inputs) or 'nothing'}"
            )
        if self._work is None:
            self._work = batch_work(self.module, *inputs)
            self._set_estimates()
        rows, devices = tensors[0].shape[0], self.group.alive
        sizes = parameters_of(self.module, synchronized=self.sync_batch_norm)
        row_nbytes = sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors) / rows
        return predict(devices, self.balance.shares(rows, devices), self._work, sizes, row_nbytes)

    def _trace(self, call: ShardedCall) -> None:
        """Find out what the model does with a row, for the first split."""
        self._traced = True
        if self._work is None and not call.options and all(map(is_measured, self.group.devices)):
            rows = slice(0, min(call.rows, TRACED_ROWS))
            inputs = map_tensors(call.inputs, lambda t: t.detach()[rows] if t.ndim else t.detach())
            try:
                self._work = batch_work(self.module, *inputs)
            except Exception as error:  # noqa: BLE001  # a model may do anything where there are no numbers
                logger.debug("[parallel] the first split is by the devices' speeds alone: %s", error)
                return
            self._set_estimates()

    def _set_estimates(self) -> None:
        """Split by the model's work, where enough is known of the devices to leave one out."""
        if self._work is None or not all(map(is_measured, self.group.devices)):
            return
        sizes = parameters_of(self.module, synchronized=self.sync_batch_norm)
        for device in self.group.devices:
            self.balance.estimates[device] = estimate(device, self._work, sizes)

    def _placed(self, model: Module) -> Module:
        """The model on the primary device, or on the next one where that fails meanwhile."""
        tensors = [*model.parameters(), *model.buffers()]
        arrays = [tensor.detach().numpy() for tensor in tensors]
        while True:
            primary = self.group.primary
            try:
                return model.to(primary)
            except (DeviceLostError, Hang, OutOfMemoryError) as error:
                self.group.retire(primary, str(error))
                for tensor, array in zip(tensors, arrays, strict=True):
                    give_memory(tensor, array, open_device("cpu"))

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The model's outputs for the whole batch, on the group's first device."""
        if len(self.group) == 1 and not self._joins_peers():
            return self._on_primary(inputs, options)
        tensors = tensors_of([inputs, options])
        rows = next((tensor.shape[0] for tensor in tensors if tensor.ndim), None)
        if rows is None:
            raise ArgumentError("[parallel] expected tensors with the rows of a batch along axis 0, got none")
        span = self._span(rows)
        if not span.total:
            return self._on_primary(inputs, options)
        call = ShardedCall(inputs, options, is_grad_enabled(), rows, self._parts_now(), span)
        if call.gradients and rows and len(self.group) > 1 and not self._traced:
            with tape.gradients(False):
                self._trace(call)
        parts = self._forward(call)
        with tape.gradients(False):
            for change in parts[0].shard.afterwards:
                change.apply()
            outputs = sharded_step.joined(call, parts, self.group.primary)
        default_generator().set_state(self._settled(span, parts[0].random))
        if call.gradients:
            wanting = {id(tensor): tensor for tensor in tensors if tape.wants_gradient(tensor)}
            self._add_node(call, parts, outputs, list(wanting.values()))
        remaining = iter(outputs)
        return map_tensors(parts[0].outputs, lambda _: next(remaining))

    def _joins_peers(self) -> bool:
        """Whether other processes compute rows of the batch of this call, too."""
        return False

    def _span(self, rows: int) -> BatchSpan:
        """The part of this process in the batch, of which it has so many rows."""
        return BatchSpan(0, rows, default_generator().get_state())

    def _settled(self, span: BatchSpan, random: State) -> State:
        """The state of the default generator after a forward pass that left off at `random` here."""
        return random

    def _weight(self, span: BatchSpan, rows: int) -> float:
        """The factor of the gradients of this process's rows, which are those of a mean over them."""
        return 1.0

    def _exchanges(self, span: BatchSpan, rows: int) -> tuple[PeerExchange | None, GradientReduction | None]:
        """The exchange of layers with other processes in a backward pass, and the sums of gradients."""
        return None, None

    def _parts_now(self) -> ModelParts:
        """The model's modules and tensors, which are looked for again when something has changed."""
        if self._parts is None or not self._parts.snapshot.holds():
            self._parts = ModelParts.of(self.module)
        return self._parts

    def _on_primary(self, inputs: Any, options: Any) -> Any:
        """The model's outputs where nothing is to be split."""
        primary = self.group.primary
        inputs, options = map_tensors((inputs, options), lambda tensor: tensor.to(primary))
        return self.module(*inputs, **options)

    def _forward(self, call: ShardedCall, *, again: bool = False) -> list[ShardResult]:
        """Compute all rows, on other devices where some fail. With `again`, buffers stay as they are."""
        while True:
            buffers: Buffers | None = None
            try:
                shares = self._shares(call.rows)
                elsewhere = [replica for replica, _ in shares if replica.device is not self.group.primary]
                buffers = Buffers(call.parts, shares[0][0])
                arrivals = self._begin_broadcast(elsewhere, call.parts)
                send = functools.partial(self._broadcast.send, arrivals)
                parts = sharded_step.forward(self.group, call, shares, send, self._broadcast.stop)
                if not again:
                    self._keep(buffers, parts[0])
            except ShardFailure as failure:
                self._recover(failure)
                if buffers is not None:
                    buffers.restore()
            else:
                if again:
                    buffers.restore()
                return parts
            gc.collect()  # the error is gone, whose traceback held what the devices had computed

    def _keep(self, buffers: Buffers, part: ShardResult) -> None:
        """Bring the first shard's changes of buffers to the model.

        Raises:
            ShardFailure: its device has failed meanwhile.
        """
        try:
            buffers.keep()
        except DeviceError as error:
            raise ShardFailure(part.replica.device, part.shard.rows, error) from error

    def _begin_broadcast(self, replicas: list[Replica], parts: ModelParts) -> Any:
        try:
            return self._broadcast.begin(replicas, parts)
        except DeviceError as error:
            primary = self.group.primary
            raise ShardFailure(primary, self.balance.estimates[primary].given, error) from error

    def _shares(self, rows: int) -> list[tuple[Replica, int]]:
        """The replicas that get rows of a batch, and how many."""
        if not rows:
            return [(self._replica(self.group.primary), 0)]  # other processes have some
        devices = self.group.alive
        shares = self.balance.shares(rows, devices)
        return [(self._replica(d), share) for d, share in zip(devices, shares, strict=True) if share]

    def _replica(self, device: Device) -> Replica:
        """A device's replica as the model is now.

        Raises:
            ShardFailure: the device has failed before, or has no memory for the parameters.
        """
        try:
            replica = self._replicas.get(device)
            if replica is None:
                replica = self._replicas[device] = Replica(self.module, device, self._converted)
            replica.follow()
            return replica
        except DeviceError as error:
            raise ShardFailure(device, 0, error) from error  # fewer rows would not help

    def _converted(self, source: Module, made: Module) -> Module:
        if isinstance(source, BatchNorm) and isinstance(made, BatchNorm):
            return ShardedBatchNorm(source, made, self.sync_batch_norm)
        return made

    def _recover(self, failure: ShardFailure) -> None:
        """Arrange for another try.

        Raises:
            DeviceLostError: the primary device has failed, and the parameters with it.
            Dl4allError: it was no device's failure.
        """
        device, error = failure.device, failure.error
        if isinstance(error, MisalignedShard):
            self.balance.grain = ALIGNED
            return
        if isinstance(error, OutOfMemoryError) and failure.rows > self.balance.grain:
            self.balance.estimates[device].most = failure.rows // 2
            logger.warning("[parallel] %s has no memory for %d rows: %s", device, failure.rows, str(error))
            return
        primary = device is self.group.primary
        if not isinstance(error, (DeviceLostError, Hang)) and (
            primary or not isinstance(error, OutOfMemoryError)
        ):
            raise error
        self.group.retire(device, str(error))
        replica = self._replicas.pop(device, None)
        if replica is not None:
            self._broadcast.forget(replica)
        if primary:
            raise DeviceLostError(
                f"[parallel] {device}, on which the parameters are, has failed ({error}); move the model to "
                "another device and load its last state, or let dl.Trainer(devices=...) do that"
            ) from error

    def relieve(self, device: Device) -> None:
        """Give a device half of the rows from now on, so that more of its memory is free."""
        estimate = self.balance.estimates[device]
        estimate.most = max(self.balance.grain, (estimate.most or max(estimate.given, 2)) // 2)

    def _add_node(
        self, call: ShardedCall, parts: list[ShardResult], outputs: list[Tensor], inputs: list[Tensor]
    ) -> None:
        parameters = call.parts.parameters
        versions = [(p.storage, p.storage.version) for p in parameters]
        held: list[list[ShardResult]] = [parts]
        connected = sharded_step.connected(parts)

        def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
            if tape.state.enabled:
                raise GradientError(
                    "[parallel] gradients of gradients are not computed across devices; call the module of "
                    "one device instead"
                )
            if not held:
                raise GradientError("[parallel] a second backward needs another forward")
            if [(p.storage, p.storage.version) for p in parameters] != versions:
                raise GradientError("[parallel] parameters were changed between forward and backward")
            remaining = iter(grads)
            of_outputs = [next(remaining) if depends else None for depends in connected]
            of_parameters, of_inputs = self._backward(call, held.pop(), of_outputs, parameters, inputs)
            return [*of_parameters, *of_inputs]

        made = [output for output, depends in zip(outputs, connected, strict=True) if depends]
        tape.add_node("parallel", [*parameters, *inputs], made, backward, single_use=True)

    def _backward(
        self,
        call: ShardedCall,
        parts: list[ShardResult],
        grads: Sequence[Tensor | None],
        parameters: Sequence[Parameter],
        inputs: Sequence[Tensor],
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        peers, network = self._exchanges(call.span, call.rows)
        buckets, weight = buckets_of(parameters, self._bucket_nbytes), self._weight(call.span, call.rows)
        if weight != 1:
            with tape.gradients(False):
                grads = [None if grad is None else grad * weight for grad in grads]
        while True:
            try:
                gradients = sharded_step.backward(
                    self.group, call, parts, grads, parameters, peers, buckets, network
                )
                break
            except ShardFailure as failure:
                self._recover(failure)
            parts = []
            gc.collect()  # what the devices had computed, before it is computed again
            with _in_modes(call.parts.modes):
                parts = self._forward(call, again=True)
        for part in parts:
            if part.shard.rows:
                self.balance.estimates[part.replica.device].observe(part.shard.rows, part.seconds)
        return gradients, [sharded_step.input_gradient(call, parts, tensor) for tensor in inputs]


@contextlib.contextmanager
def _in_modes(modes: list[tuple[Module, bool]]) -> Iterator[None]:
    """Within, modules are in training mode or not as they were at a call."""
    now = [(module, module.training) for module, _ in modes]
    try:
        for module, training in modes:
            module.training = training
        yield
    finally:
        for module, training in now:
            module.training = training


def _estimate(device: Device) -> Estimate:
    return Estimate(per_row=FLOPS_PER_ROW * speeds(device).per_flop)
