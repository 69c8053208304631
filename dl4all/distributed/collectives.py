"""Collectives on tensors of any device, under PyTorch's names. All go through the memory of the hosts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.autograd.grad_mode import no_grad
from dl4all.distributed.membership import group_of
from dl4all.distributed.process_group.group import TEXT, Pending, ProcessGroup
from dl4all.distributed.process_group.transport import Array, ReduceOp
from dl4all.errors import ArgumentError, ShapeError
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor


def barrier(group: ProcessGroup | None = None) -> None:
    """Wait until all processes of a group have come here.

    Raises:
        DistError: another process calls something else, or there is no group.
        DistNetworkError: one has ended, or does not come in time.

    Example:
        >>> import dl4all as dl
        >>> if dl.distributed.is_initialized():
        ...     dl.distributed.barrier()
    """
    group_of("barrier", group).agree("barrier", "")


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Pending | None:
    """Sum a tensor, or combine it otherwise, over all processes, in place; all get the same bits.

    Args:
        tensor: of one shape and dtype in all processes, each on any device.
        op: how elements are combined.
        group: the processes; by default all.
        async_op: return at once what :meth:`wait` waits for; the tensor has its values then.

    Raises:
        DistError: the processes call different collectives, or with other shapes or dtypes.
        DistNetworkError: one has ended, or does not come in time.
        ArgumentError: the dtype cannot be combined.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.init_process_group(rank=0, world_size=1, init_method="tcp://127.0.0.1:29517")
        >>> losses = dl.tensor([0.5, 0.25])
        >>> dl.distributed.all_reduce(losses, dl.distributed.ReduceOp.AVG)
        >>> losses.tolist()
        [0.5, 0.25]
        >>> dl.distributed.destroy_process_group()
    """
    own = group_of("all_reduce", group)
    array = _array("all_reduce", tensor)
    _check_op("all_reduce", op, array)
    own.agree("all_reduce", f"{_kind(array)} by {op.name}")
    return _ended(
        own.all_reduce("all_reduce", array.reshape(-1), op, lambda: _write(tensor, array)), async_op
    )


def reduce(
    tensor: Tensor,
    dst: int,
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Pending | None:
    """As :func:`all_reduce`, but only process `dst` gets the result.

    Raises:
        DistError, DistNetworkError, ArgumentError: as :func:`all_reduce`.

    Example:
        >>> import dl4all as dl
        >>> if dl.distributed.is_initialized():
        ...     dl.distributed.reduce(dl.ones(3), dst=0)
    """
    own, array = group_of("reduce", group), _array("reduce", tensor)
    _check_op("reduce", op, array)
    place = own.rank_of("reduce", dst)
    own.agree("reduce", f"{_kind(array)} by {op.name} to rank {dst}")
    # The others get it, too, and drop it: gloo's and MPI's own need as many messages.
    arrived = (lambda: _write(tensor, array)) if own.rank() == place else (lambda: None)
    return _ended(own.all_reduce("reduce", array.reshape(-1), op, arrived), async_op)


def broadcast(
    tensor: Tensor, src: int, group: ProcessGroup | None = None, async_op: bool = False
) -> Pending | None:
    """Fill a tensor in all processes with that of process `src`.

    Raises:
        DistError, DistNetworkError: as :func:`all_reduce`.
        ArgumentError: `src` is not in the group.

    Example:
        >>> import dl4all as dl
        >>> if dl.distributed.is_initialized():
        ...     dl.distributed.broadcast(dl.ones(3), src=0)
    """
    own, array = group_of("broadcast", group), _array("broadcast", tensor)
    source = own.rank_of("broadcast", src)
    own.agree("broadcast", f"{_kind(array)} from rank {src}")
    arrived = (lambda: None) if own.rank() == source else (lambda: _write(tensor, array))
    start = functools.partial(own.transport.broadcast, array.reshape(-1), source)
    return _ended(own.begin("broadcast", start, arrived), async_op)


def all_gather(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Pending | None:
    """Fill a list of tensors with those of all processes, in the order of their ranks.

    Args:
        tensor_list: one for each process, of the shape and dtype of `tensor`.
        tensor: what this process gives.

    Raises:
        DistError, DistNetworkError: as :func:`all_reduce`.
        ShapeError: the list has another length, or tensors of another shape or dtype.

    Example:
        >>> import dl4all as dl
        >>> if dl.distributed.is_initialized():
        ...     parts = [dl.zeros(2) for _ in range(dl.distributed.get_world_size())]
        ...     dl.distributed.all_gather(parts, dl.ones(2))
    """
    own, array = group_of("all_gather", group), _array("all_gather", tensor)
    _check_list("all_gather", tensor_list, array, own)
    own.agree("all_gather", _kind(array))
    parts = np.empty((own.size(), array.size), array.dtype)
    parts[own.rank()] = array.reshape(-1)
    start = functools.partial(own.transport.all_gather, array.reshape(-1), parts)
    return _ended(own.begin("all_gather", start, lambda: _write_all(tensor_list, parts)), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Pending | None:
    """As :func:`all_gather`, into one tensor along its first axis.

    Raises:
        DistError, DistNetworkError: as :func:`all_reduce`.
        ShapeError: the output has another number of elements or dtype.

    Example:
        >>> import dl4all as dl
        >>> if dl.distributed.is_initialized():
        ...     whole = dl.zeros(dl.distributed.get_world_size() * 2)
        ...     dl.distributed.all_gather_into_tensor(whole, dl.ones(2))
    """
    parts = _cut("all_gather_into_tensor", output_tensor, input_tensor, group)
    return all_gather(parts, input_tensor, group, async_op)


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int = 0,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Pending | None:
    """Bring the tensors of all processes to process `dst`, whose `gather_list` they fill.

    Raises:
        DistError, DistNetworkError: as :func:`all_reduce`.
        ShapeError: the list has another length, or tensors of another shape or dtype.
        ArgumentError: `dst` has no list, or another process has one.

    Example:
        >>> import dl4all as dl
        >>> if dl.distributed.is_initialized() and dl.distributed.get_world_size() == 1:
        ...     dl.distributed.gather(dl.ones(2), [dl.zeros(2)])
    """
    own, array = group_of("gather", group), _array("gather", tensor)
    place = own.rank_of("gather", dst)
    _check_given("gather", "gather_list", gather_list, dst, own.rank() == place)
    if gather_list is not None:
        _check_list("gather", gather_list, array, own)
    own.agree("gather", f"{_kind(array)} to rank {dst}")
    parts = None if gather_list is None else np.empty((own.size(), array.size), array.dtype)
    if parts is not None:
        parts[place] = array.reshape(-1)
    start = functools.partial(own.transport.gather, array.reshape(-1), parts, place)
    arrived = functools.partial(_write_all, gather_list or (), () if parts is None else parts)
    return _ended(own.begin("gather", start, arrived), async_op)


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int = 0,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Pending | None:
    """Give each process one of the tensors of process `src`.

    Raises:
        DistError, DistNetworkError, ShapeError, ArgumentError: as :func:`gather`.

    Example:
        >>> import dl4all as dl
        >>> if dl.distributed.is_initialized() and dl.distributed.get_world_size() == 1:
        ...     dl.distributed.scatter(dl.zeros(2), [dl.ones(2)])
    """
    own, array = group_of("scatter", group), _array("scatter", tensor)
    source = own.rank_of("scatter", src)
    _check_given("scatter", "scatter_list", scatter_list, src, own.rank() == source)
    if scatter_list is not None:
        _check_list("scatter", scatter_list, array, own)
    own.agree("scatter", f"{_kind(array)} from rank {src}")
    parts = (
        None if scatter_list is None else np.stack([_array("scatter", t).reshape(-1) for t in scatter_list])
    )
    if parts is not None:
        array[...] = parts[source].reshape(array.shape)
    start = functools.partial(own.transport.scatter, array.reshape(-1), parts, source)
    return _ended(own.begin("scatter", start, lambda: _write(tensor, array)), async_op)


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Pending | None:
    """Combine the lists of all processes tensor by tensor, and give each process the one of its rank.

    Raises:
        DistError, DistNetworkError, ArgumentError: as :func:`all_reduce`.
        ShapeError: the list has another length, or tensors of another shape or dtype.

    Example:
        >>> import dl4all as dl
        >>> if dl.distributed.is_initialized() and dl.distributed.get_world_size() == 1:
        ...     dl.distributed.reduce_scatter(dl.zeros(2), [dl.ones(2)])
    """
    name = "reduce_scatter"
    own, array = group_of(name, group), _array(name, output)
    _check_op(name, op, array)
    _check_list(name, input_list, array, own)
    own.agree(name, f"{_kind(array)} by {op.name}")
    parts = np.stack([_array(name, tensor).reshape(-1) for tensor in input_list])
    arrived = functools.partial(_write_part, output)
    return _ended(own.reduce_scatter(name, parts, op, arrived), async_op)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Pending | None:
    """As :func:`reduce_scatter`, of one tensor that is cut along its first axis.

    Raises:
        DistError, DistNetworkError, ArgumentError, ShapeError: as :func:`reduce_scatter`.

    Example:
        >>> import dl4all as dl
        >>> if dl.distributed.is_initialized() and dl.distributed.get_world_size() == 1:
        ...     dl.distributed.reduce_scatter_tensor(dl.zeros(2), dl.ones(2))
    """
    return reduce_scatter(output, _cut("reduce_scatter_tensor", input, output, group), op, group, async_op)


def send(tensor: Tensor, dst: int, group: ProcessGroup | None = None, tag: int = 0) -> None:
    """Send a tensor to a process, which calls :func:`recv`; waits until it has left.

    Raises:
        ArgumentError: `dst` is this process, or not in the group.
        ShapeError: it expects another shape or dtype.
        DistNetworkError: it has ended, or does not come in time.

    Example:
        >>> import dl4all as dl
        >>> if dl.distributed.is_initialized() and dl.distributed.get_rank() == 0:
        ...     dl.distributed.send(dl.ones(3), dst=1)
    """
    own, array = group_of("send", group), _array("send", tensor)
    place = _other("send", own, dst)
    _exchange("send", own, place, tag, _text(_kind(array)), None)
    answer = np.empty(TEXT, np.uint8)
    _exchange("send", own, place, tag, None, answer)
    _check_pair("send", _kind(array), dst, answer)
    _exchange("send", own, place, tag, array.reshape(-1), None)


def recv(tensor: Tensor, src: int, group: ProcessGroup | None = None, tag: int = 0) -> int:
    """Fill a tensor with what a process sends by :func:`send`; returns its rank.

    Raises:
        ArgumentError: `src` is this process, or not in the group.
        ShapeError: it sent another shape or dtype.
        DistNetworkError: it has ended, or does not send in time.

    Example:
        >>> import dl4all as dl
        >>> if dl.distributed.is_initialized() and dl.distributed.get_rank() == 1:
        ...     dl.distributed.recv(dl.zeros(3), src=0)
    """
    own, array = group_of("recv", group), _array("recv", tensor)
    place = _other("recv", own, src)
    sent = np.empty(TEXT, np.uint8)
    _exchange("recv", own, place, tag, None, sent)
    _exchange("recv", own, place, tag, _text(_kind(array)), None)
    _check_pair("recv", _kind(array), src, sent)
    _exchange("recv", own, place, tag, None, array.reshape(-1))
    _write(tensor, array)
    return src


def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Fill a list with values of all processes, by pickle: only for processes that trust each other.

    Raises:
        DistError, DistNetworkError: as :func:`all_reduce`.
        ShapeError: the list has another length than the group.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.init_process_group(rank=0, world_size=1, init_method="tcp://127.0.0.1:29517")
        >>> names = [None]
        >>> dl.distributed.all_gather_object(names, {"device": "cpu"})
        >>> names
        [{'device': 'cpu'}]
        >>> dl.distributed.destroy_process_group()
    """
    own = group_of("all_gather_object", group)
    if len(object_list) != own.size():
        raise ShapeError(
            f"[all_gather_object] expected a list of {own.size()}, one a process, got {len(object_list)}"
        )
    object_list[:] = own.gather_objects("all_gather_object", obj)


def broadcast_object_list(object_list: list[Any], src: int = 0, group: ProcessGroup | None = None) -> None:
    """Fill a list with that of process `src`, by pickle: only for processes that trust each other.

    Raises:
        DistError, DistNetworkError: as :func:`all_reduce`.
        ArgumentError: `src` is not in the group.

    Example:
        >>> import dl4all as dl
        >>> settings = [{"lr": 0.1}]
        >>> if dl.distributed.is_initialized():
        ...     dl.distributed.broadcast_object_list(settings, src=0)
    """
    own = group_of("broadcast_object_list", group)
    source = own.rank_of("broadcast_object_list", src)
    object_list[:] = own.broadcast_object("broadcast_object_list", object_list, source)


# Between tensors and arrays


def _array(name: str, tensor: Any) -> Array:
    """A copy of the elements: a transport writes into what it is given."""
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"[{name}] expected a tensor, got {type(tensor).__name__}")
    return np.array(tensor.detach().numpy(), order="C")


@no_grad()
def _write(tensor: Tensor, array: Array) -> None:
    tensor.copy_(from_numpy(array, "cpu"))


def _write_part(tensor: Tensor, part: Array) -> None:
    _write(tensor, part.reshape(tensor.shape))


def _write_all(tensors: Sequence[Tensor], parts: Sequence[Array] | Array) -> None:
    for tensor, part in zip(tensors, parts, strict=True):
        _write_part(tensor, part)


def _kind(array: Array) -> str:
    return f"{array.dtype} of shape {array.shape}"


def _text(text: str) -> Array:
    return np.frombuffer(text.encode().ljust(TEXT, b"\0")[:TEXT], np.uint8).copy()


def _exchange(
    name: str, group: ProcessGroup, rank: int, tag: int, given: Array | None, taken: Array | None
) -> None:
    """Send one array to a process, or receive one."""
    if given is not None:
        group.guarded(name, lambda: group.transport.send(given, rank, tag).wait())
    if taken is not None:
        group.guarded(name, lambda: group.transport.receive(taken, rank, tag).wait())


def _check_pair(name: str, own: str, rank: int, answer: Array) -> None:
    """
    Raises:
        ShapeError: the tensors of sender and receiver differ; it is raised in both.
    """
    other = answer.tobytes().rstrip(b"\0").decode(errors="replace")
    if other != own:
        raise ShapeError(f"[{name}] the tensor here is {own}, that of rank {rank} {other}")


def _check_op(name: str, op: Any, array: Array) -> None:
    if not isinstance(op, ReduceOp):
        raise ArgumentError(f"[{name}] expected an op such as dl.distributed.ReduceOp.SUM, got {op!r}")
    whole = array.dtype.kind in "iu"
    if op.name.startswith("B") and not whole:
        raise ArgumentError(f"[{name}] {op.name} combines the bits of ints, got {array.dtype}")
    if op is ReduceOp.AVG and whole:
        raise ArgumentError(f"[{name}] AVG needs floats, got {array.dtype}; use SUM, and divide")
    if array.dtype == np.bool_:
        raise ArgumentError(f"[{name}] expected floats or ints, got bool; convert with .to(dl.uint8)")


def _check_list(name: str, tensors: Sequence[Tensor], array: Array, group: ProcessGroup) -> None:
    found = [f"{tensor.dtype} of shape {tuple(tensor.shape)}" for tensor in tensors]
    if found != [_kind(array)] * group.size():
        raise ShapeError(f"[{name}] expected {group.size()} tensors, each {_kind(array)}, got {found}")


def _check_given(name: str, argument: str, given: Any, rank: int, wanted: bool) -> None:
    if (given is not None) != wanted:
        raise ArgumentError(
            f"[{name}] {argument} belongs to rank {rank} alone" + (", and is missing" if wanted else "")
        )


def _cut(name: str, whole: Tensor, part: Tensor, group: ProcessGroup | None) -> list[Tensor]:
    """Views of a contiguous tensor, one for each process."""
    count = group_of(name, group).size()
    if whole.numel() != count * part.numel() or not whole.is_contiguous():
        raise ShapeError(
            f"[{name}] expected a contiguous tensor of {count} times the elements of {tuple(part.shape)}, "
            f"got {tuple(whole.shape)}"
        )
    flat = whole.detach().reshape(count, part.numel())
    return [flat[index].reshape(part.shape) for index in range(count)]


def _other(name: str, group: ProcessGroup, rank: int) -> int:
    place = group.rank_of(name, rank)
    if place == group.rank():
        raise ArgumentError(f"[{name}] rank {rank} is this process")
    return place


def _ended(work: Pending, async_op: bool) -> Pending | None:
    """The transfer for whoever waits for it later; None when it has been waited for."""
    if async_op:
        return work
    work.wait()
    return None
