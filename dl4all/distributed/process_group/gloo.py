"""Transport over gloo, PyTorch's collectives for the memory of hosts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.distributed.process_group.launch_variables import Membership, membership
from dl4all.distributed.process_group.transport import Array, ArrayTransfer, ReduceOp
from dl4all.errors import DistError, DistNetworkError
from dl4all.ops.core.dtypes import BFLOAT16

COMPUTES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8")


def _tensor(array: Array) -> torch.Tensor:
    """The array's memory as a tensor of PyTorch, which takes no bfloat16 of NumPy's."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def connected(
    rank: int, world_size: int, address: str | None, timeout: timedelta
) -> tuple[ProcessGroup, Membership]:
    """The group of all processes, when all have come, and the part of this one.

    Raises:
        ArgumentError: nothing tells the rank.
        DistError: PyTorch has another group in this process.
        DistNetworkError: the others did not come in time.
    """
    if dist.is_initialized():
        return _shared(rank, world_size, timeout)
    member = membership(rank, world_size, address)
    if address is None and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        method = "env://"  # torchrun listens at the port already
    else:
        host = f"[{member.master_addr}]" if ":" in member.master_addr else member.master_addr
        method = f"tcp://{host}:{member.master_port}"
    try:
        dist.init_process_group(
            "gloo", init_method=method, rank=member.rank, world_size=member.world_size, timeout=timeout
        )
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise DistNetworkError(
            f"[init_process_group] rank {member.rank} of {member.world_size} did not meet the others at "
            f"{member.master_addr}:{member.master_port} within {timeout.total_seconds():g} seconds: {first}. "
            "MASTER_ADDR must name rank 0's host for all, and MASTER_PORT a port that is free there"
        ) from error
    transport = GlooTransport(dist.group.WORLD)
    return ProcessGroup(transport, "gloo", timeout, range(member.world_size)), member


def _shared(rank: int, world_size: int, timeout: timedelta) -> tuple[ProcessGroup, Membership]:
    """The group that somebody else has made in this process by PyTorch, such as Ray, and that stays theirs.

    Raises:
        DistError: it has another rank or size, or does not carry arrays of hosts.
    """
    own = dist.get_rank(), dist.get_world_size()
    if any(given not in (-1, found) for given, found in zip((rank, world_size), own, strict=True)):
        raise DistError(
            f"[init_process_group] torch.distributed has a group already, in which this is rank {own[0]} of "
            f"{own[1]}, and not {rank} of {world_size}"
        )
    if "gloo" not in str(dist.get_backend()):
        raise DistError(
            f"[init_process_group] torch.distributed has a group already, over {dist.get_backend()}, and "
            "gloo carries arrays of hosts; make it with backend='gloo'"
        )
    local = [
        int(os.environ.get(name, default)) for name, default in (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1))
    ]
    transport = GlooTransport(dist.group.WORLD, owned=False)
    member = Membership(*own, local[0], local[1], os.environ.get("MASTER_ADDR", ""), 0)
    return ProcessGroup(transport, "gloo", timeout, range(own[1])), member


class GlooTransport:
    """A group of ``torch.distributed``, which ends with it where it is `owned`."""

    computes = frozenset((*map(np.dtype, COMPUTES), BFLOAT16))

    def __init__(self, group: Any, *, owned: bool = True) -> None:
        self._group, self._owned = group, owned
        self.rank, self.world_size = group.rank(), group.size()

    def all_reduce(self, array: Array, op: ReduceOp) -> ArrayTransfer:
        return self._begin(dist.all_reduce, _tensor(array), _op(op))

    def all_gather(self, array: Array, parts: Array) -> ArrayTransfer:
        return self._begin(dist.all_gather, [_tensor(part) for part in parts], _tensor(array))

    def broadcast(self, array: Array, source: int) -> ArrayTransfer:
        return self._begin(dist.broadcast, _tensor(array), group_src=source)

    def gather(self, array: Array, parts: Array | None, destination: int) -> ArrayTransfer:
        into = None if parts is None else [_tensor(part) for part in parts]
        return self._begin(dist.gather, _tensor(array), into, group_dst=destination)

    def scatter(self, array: Array, parts: Array | None, source: int) -> ArrayTransfer:
        given = None if parts is None else [_tensor(part) for part in parts]
        return self._begin(dist.scatter, _tensor(array), given, group_src=source)

    def reduce_scatter(self, array: Array, parts: Array, op: ReduceOp) -> ArrayTransfer:
        return self._begin(dist.reduce_scatter, _tensor(array), [_tensor(part) for part in parts], _op(op))

    def send(self, array: Array, destination: int, tag: int) -> ArrayTransfer:
        made: Any = dist.isend(_tensor(array), group=self._group, tag=tag, group_dst=destination)
        sent: ArrayTransfer = made
        return sent

    def receive(self, array: Array, source: int, tag: int) -> ArrayTransfer:
        made: Any = dist.irecv(_tensor(array), group=self._group, tag=tag, group_src=source)
        received: ArrayTransfer = made
        return received

    def subgroup(self, ranks: Sequence[int], timeout: timedelta) -> GlooTransport:
        everybody = dist.get_process_group_ranks(self._group)
        made = dist.new_group(
            [everybody[rank] for rank in ranks],
            timeout=timeout,
            backend="gloo",
            use_local_synchronization=True,
        )
        return GlooTransport(made)

    def close(self) -> None:
        if not self._owned:
            pass
        elif isinstance(self._group, dist.ProcessGroup):
            dist.destroy_process_group(self._group)
        elif self._group is not None:  # torch.distributed does not know of it
            self._group.abort()
        self._group = None  # its threads end with the last reference

    def _begin(self, collective: Any, *args: Any, **options: Any) -> ArrayTransfer:
        made: ArrayTransfer = collective(*args, group=self._group, async_op=True, **options)
        return made


def _op(op: ReduceOp) -> Any:
    return getattr(dist.ReduceOp, op.name)


class HookBucket:
    """A bucket of gradients as hooks of PyTorch's take it, in place of ``torch.distributed.GradBucket``.

    Args:
        flat: the gradients, and whatever else has to be added up behind them.
        pieces: of `flat`, one for each gradient.
        shapes: theirs.
    """

    def __init__(
        self, index: int, last: bool, flat: Array, pieces: Sequence[slice], shapes: Sequence[tuple[int, ...]]
    ) -> None:
        self._index, self._last = index, last
        self._pieces, self._shapes = pieces, shapes
        self._buffer = _tensor(flat)

    def index(self) -> int:
        """The number of the bucket."""
        return self._index

    def is_last(self) -> bool:
        """Whether it is the last one of a backward pass."""
        return self._last

    def buffer(self) -> torch.Tensor:
        """All gradients, with one axis."""
        return self._buffer

    def set_buffer(self, tensor: torch.Tensor) -> None:
        """Put others in their place."""
        self._buffer = tensor

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer in the shapes of the parameters."""
        return [
            self._buffer[piece].view(shape) for piece, shape in zip(self._pieces, self._shapes, strict=True)
        ]

    def parameters(self) -> list[torch.Tensor]:
        """Tensors of the parameters' shapes, whose elements say nothing."""
        return [torch.empty(shape, dtype=self._buffer.dtype) for shape in self._shapes]


class HookTransfer:
    """A hook's result on its way into the memory of a bucket."""

    def __init__(self, flat: Array, future: Any) -> None:
        self._flat, self._future = flat, future

    def is_completed(self) -> bool:
        return bool(self._future.done())

    def wait(self) -> None:
        result = self._future.wait()
        result = result[0] if isinstance(result, (list, tuple)) else result
        _tensor(self._flat).copy_(result.reshape(-1))


def hooked(
    hook: Any,
    state: Any,
    index: int,
    last: bool,
    flat: Array,
    pieces: Sequence[slice],
    shapes: Sequence[tuple[int, ...]],
) -> HookTransfer:
    """Begin what a hook does with a bucket, whose memory gets the result."""
    return HookTransfer(flat, hook(state, HookBucket(index, last, flat, pieces, shapes)))
