"""A module whose batches several processes compute together, each on one device or several."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from dl4all.autograd import is_grad_enabled, no_grad
from dl4all.distributed.process_group import world as groups
from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.errors import ArgumentError, BackendMissingError, DistError
from dl4all.multi_device.alike import broadcast, check_alike
from dl4all.multi_device.data_parallel.model_parts import ModelParts
from dl4all.multi_device.data_parallel.module import DataParallel
from dl4all.multi_device.data_parallel.peers import NAME, Hook, LayerExchange, NetworkReduction
from dl4all.multi_device.data_parallel.reduction import (
    Array,
    Bucket,
    GradientReduction,
    buckets_of,
    reduce,
)
from dl4all.multi_device.data_parallel.rendezvous import Rendezvous
from dl4all.multi_device.data_parallel.shard import PeerExchange
from dl4all.multi_device.data_parallel.sharded_step import BatchSpan
from dl4all.nn.module import Module
from dl4all.ops.random.generator import State, default_generator
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup


class DistributedDataParallel(DataParallel):
    """A module that several processes train together, each with rows of its own of every batch.

    At first all processes get the parameters and buffers of rank 0. Then each calls the module with its
    rows, and the gradients that ``backward`` leaves in the parameters are those of the mean over the rows of
    all: while the backward pass goes on, buckets of gradients that are complete are added up over the
    network. So every process's optimizer does the same, and parameters stay equal to the last bit. Rows
    count, not processes: a process may have more of them than another, or none. With as many rows everywhere
    that is PyTorch's mean.

    Random numbers that belong to rows, such as dropout's, are those that one process would draw for the whole
    batch, where the first row of a process is a multiple of 4 (:meth:`dl4all.data.DataLoader.shard` cuts so).

    A pass without gradients (``no_grad``) is this process's alone. A group of one process computes as the
    module does by itself. Where a process ends or does not answer, the others raise DistNetworkError within
    the group's timeout.

    Args:
        module: as of :class:`dl4all.multi_device.data_parallel.module.DataParallel`.
        device_ids: as PyTorch has it: a list with the device of this process. Numbers name the device that
            the module is on.
        output_device, dim: accepted.
        broadcast_buffers: before a pass, take rank 0's buffers where processes may differ in them.
        process_group: the processes; by default all.
        bucket_cap_mb: MB of gradients, at least, that are added up together.
        find_unused_parameters, gradient_as_bucket_view, static_graph: accepted; parameters without gradients
            are found in any case.
        devices: the devices of this process, when it uses several: a list, a :class:`dl4all.DeviceGroup` or
            ``"all"``. By default the one that the module is on.
        sync_batch_norm: whether batch normalization uses the statistics of the rows of all processes.

    Raises:
        ArgumentError: the module is no module or has several devices, or an argument is out of range.
        DistError: there is no process group, or the processes have different modules; the message names the
            first difference.
        DistNetworkError: a process has ended, or does not come in time.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.init_process_group(rank=0, world_size=1, init_method="tcp://127.0.0.1:29517")
        >>> net = dl.nn.parallel.DistributedDataParallel(dl.nn.Linear(3, 1).to("cpu"))
        >>> net(dl.ones(5, 3, device="cpu")).sum().backward()
        >>> net.module.weight.grad.tolist()
        [[5.0, 5.0, 5.0]]
        >>> dl.distributed.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[str | Device | int] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        *,
        devices: DeviceGroup | Sequence[str | Device] | Literal["all"] | None = None,
        sync_batch_norm: bool = True,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        group = groups.world() if process_group is None else process_group
        if group is None:
            raise DistError(
                f"[{NAME}] there is no group of processes: call dl.distributed.init_process_group() before, "
                "in a script that `dl4all launch` starts; several devices of one process use dl.parallel"
            )
        if dim or (device_ids is not None and len(device_ids) > 1):
            raise ArgumentError(
                f"[{NAME}] rows are along axis 0, and device_ids names one device, got dim={dim}, "
                f"{device_ids}; pass devices=[...] to use several in a process"
            )
        if bucket_cap_mb is not None and bucket_cap_mb <= 0:
            raise ArgumentError(f"[{NAME}] bucket_cap_mb must be more than 0, got {bucket_cap_mb}")
        super().__init__(module, _devices(module, devices, device_ids), sync_batch_norm=sync_batch_norm)
        self.process_group, self.broadcast_buffers = group, broadcast_buffers
        if bucket_cap_mb is not None:
            self._bucket_nbytes = int(bucket_cap_mb * (1 << 20))
        self._synchronized = True  # whether backward passes of calls from now on add up over processes
        self._kept_back = False  # whether parameters have gradients of this process alone
        self._hook: Hook | None = None
        self._described: tuple[ModelParts | None, str] = None, ""
        if group.size() > 1:
            check_alike(NAME, group, module)
        # What layers exchange has a group, and so an order, of its own: it happens beside the gradients'.
        self._layers = group.beside(NAME)
        if group.size() > 1:
            broadcast(NAME, group, [*module.parameters(), *module.buffers()])

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within, backward passes of calls keep their gradients in this process.

        The first one after it adds them up, too, as it does its own.

        Example:
            >>> import dl4all as dl
            >>> dl.distributed.init_process_group(rank=0, world_size=1, init_method="tcp://127.0.0.1:29517")
            >>> net = dl.nn.parallel.DistributedDataParallel(dl.nn.Linear(3, 1).to("cpu"))
            >>> with net.no_sync():
            ...     net(dl.ones(5, 3, device="cpu")).sum().backward()
            >>> net(dl.ones(2, 3, device="cpu")).sum().backward()
            >>> net.module.bias.grad.tolist()
            [7.0]
            >>> dl.distributed.destroy_process_group()
        """
        before, self._synchronized = self._synchronized, False
        try:
            yield
        finally:
            self._synchronized = before

    def register_comm_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """Have a function of PyTorch's form compute the mean of each bucket in place of a plain sum.

        PyTorch's own hooks run as they are, such as ``fp16_compress_hook``, ``bf16_compress_hook`` and
        ``powerSGD_hook`` of ``torch.distributed.algorithms.ddp_comm_hooks``.

        Args:
            state: the hook's first argument; ``None`` stands for all processes.
            hook: gets `state` and a bucket with the methods of ``torch.distributed.GradBucket``, whose
                tensors are PyTorch's, and returns a ``torch.futures.Future`` of the bucket's mean over the
                processes.

        Raises:
            ArgumentError: it is no function, or there is a hook already.
            BackendMissingError: the backend of the group is not gloo, whose tensors hooks take.

        Example:
            >>> import dl4all as dl
            >>> def compress(net):
            ...     from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
            ...     net.register_comm_hook(None, bf16_compress_hook)
        """
        if not callable(hook) or self._hook is not None:
            raise ArgumentError(f"[register_comm_hook] expected one function for a module, got {hook!r}")
        if self.process_group.backend != "gloo":
            raise BackendMissingError(
                f"[register_comm_hook] hooks compute with PyTorch's tensors, over the backend 'gloo', not "
                f"{self.process_group.backend!r}"
            )
        from dl4all.distributed.process_group.gloo import hooked

        def begin(index: int, bucket: Bucket, flat: Array) -> Any:
            pieces = [*bucket.slices, slice(bucket.size, len(flat))]
            shapes = [tuple(parameter.shape) for parameter in bucket.parameters]
            last = bucket.numbers[-1] == self._last_number()
            return hooked(hook, state, index, last, flat, pieces, [*shapes, (len(bucket.numbers),)])

        self._hook = begin

    def _last_number(self) -> int:
        """The number of the parameter whose gradient ends the last bucket."""
        return next(n for n, parameter in enumerate(self._parts_now().parameters) if parameter.requires_grad)

    def reduce_gradients(self) -> None:
        """Add up, over all processes, the gradients that the parameters have of this process alone.

        Each process's count as they are: with so many of all rows, they are multiplied by that share before.

        Example:
            >>> import dl4all as dl
            >>> dl.distributed.init_process_group(rank=0, world_size=1, init_method="tcp://127.0.0.1:29517")
            >>> net = dl.nn.parallel.DistributedDataParallel(dl.nn.Linear(3, 1).to("cpu"))
            >>> with net.no_sync():
            ...     net(dl.ones(5, 3, device="cpu")).sum().backward()
            >>> net.reduce_gradients()
            >>> dl.distributed.destroy_process_group()
        """
        if self.process_group.size() == 1:
            return
        parameters = self._parts_now().parameters
        network = NetworkReduction(
            self.process_group, empty=False, before=self._taken_back(), hook=self._hook
        )
        buckets = buckets_of(parameters, self._bucket_nbytes)
        for bucket, flat, used in reduce(buckets, (), Rendezvous(0, 0.0), network):  # no pass: nobody to meet
            for number, gradient in bucket.views(flat, used, self.group.primary).items():
                parameters[number].grad = gradient

    # What the forward and backward pass of every DataParallel ask

    def _joins_peers(self) -> bool:
        return self.process_group.size() > 1 and is_grad_enabled()

    def _span(self, rows: int) -> BatchSpan:
        if not self._joins_peers():
            return super()._span(rows)
        group, parts = self.process_group, self._parts_now()
        if self._described[0] is not parts:
            self._described = parts, _digest(parts)
        told = group.agree(f"call of {NAME}", self._described[1], [rows, *default_generator().get_state()])
        counts = [numbers[0] for numbers in told]
        if self.broadcast_buffers and parts.training:
            differing = parts.buffers if self.sync_batch_norm else list(self.module.buffers())
            broadcast(NAME, group, differing)
        return BatchSpan(
            start=sum(counts[: group.rank()]),
            total=sum(counts),
            random=(told[0][1], told[0][2]),
            peers=LayerExchange(self._layers),
            patience=group.timeout.total_seconds(),
            vacant=0 in counts,
            synchronized=self._synchronized,
        )

    def _settled(self, span: BatchSpan, random: State) -> State:
        if not span.vacant:
            return random
        # A process without rows has not drawn what the others have.
        told = self.process_group.agree(f"end of a call of {NAME}", "", [span.start, *random])
        starts = [numbers[0] for numbers in told]
        ends = [*starts[1:], span.total]
        rank = next(rank for rank, (start, end) in enumerate(zip(starts, ends, strict=True)) if end > start)
        return told[rank][1], told[rank][2]

    def _exchanges(self, span: BatchSpan, rows: int) -> tuple[PeerExchange | None, GradientReduction | None]:
        if span.peers is None:
            return None, None
        layers = LayerExchange(self._layers)
        if not span.synchronized:
            if not self._kept_back:
                self._count_once()
                self._kept_back = True
            return layers, None
        before = self._taken_back() if self._kept_back else {}
        return layers, NetworkReduction(self.process_group, empty=not rows, before=before, hook=self._hook)

    def _weight(self, span: BatchSpan, rows: int) -> float:
        if span.peers is None:
            return 1.0
        # Hooks compute means over processes, not sums.
        scale = self.process_group.size() if self._hook is not None else 1
        return rows * scale / span.total

    @no_grad()
    def _count_once(self) -> None:
        """Divide gradients that are all processes' by these: the next sum counts each process's."""
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(1.0 if self._hook is not None else 1 / self.process_group.size())

    def _taken_back(self) -> dict[int, Array]:
        """The gradients of this process alone, by the parameters' numbers; these have none afterwards."""
        found = {}
        for number, parameter in enumerate(self._parts_now().parameters):
            if parameter.grad is not None and parameter.requires_grad:
                found[number] = parameter.grad.detach().numpy()
                parameter.grad = None
        self._kept_back = False
        return found


def _devices(
    module: Any,
    devices: DeviceGroup | Sequence[str | Device] | Literal["all"] | None,
    device_ids: Sequence[str | Device | int] | None,
) -> DeviceGroup | Sequence[str | Device]:
    """The devices of this process."""
    if devices is not None:
        return devices if isinstance(devices, DeviceGroup) else DeviceGroup(devices)
    named = [one for one in device_ids or () if not isinstance(one, int)]
    if named:
        return [named[0]]
    first = next(iter(module.parameters()), None) if isinstance(module, Module) else None
    return ["cpu" if first is None else first.device]


def _digest(parts: ModelParts) -> str:
    """A short text that differs between models whose calls would not fit together."""
    facts = [(tuple(p.shape), str(p.dtype), p.requires_grad) for p in parts.parameters]
    return f"a model of {len(facts)} parameters, {hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"
