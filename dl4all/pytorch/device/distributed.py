"""``torch.distributed`` on ``dlall``: the collectives of the CPU, such as gloo's, with copies around them.

``init_process_group("gloo")`` takes tensors on ``dlall`` then, and so does ``DistributedDataParallel``. A
collective has come when its call returns; ``async_op=True`` returns a handle that is done. What ``isend`` and
``irecv`` return is done when it has been waited for, as each needs the other to begin.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dl4all.pytorch.device.devices import NAME, is_here
from dl4all.pytorch.device.storage import memory

WRITTEN = {
    "allgather_": (0,),
    "allgather_coalesced_": (0,),
    "allgather_into_tensor_coalesced_": (0,),
    "_allgather_base_": (0,),
    "allreduce_": (0,),
    "allreduce_coalesced_": (0,),
    "alltoall_": (0,),
    "alltoall_base_": (0,),
    "barrier": (),
    "broadcast_": (0,),
    "gather_": (0,),
    "recv_": (0,),
    "recv_any_source_": (0,),
    "reduce_": (0,),
    "reduce_scatter_": (0,),
    "reduce_scatter_tensor_coalesced_": (0,),
    "_reduce_scatter_base_": (0,),
    "scatter_": (0,),
    "send": (),
}
"""The ops behind PyTorch's collectives, and which of their arguments they write."""

POINT_TO_POINT = ("send", "recv_", "recv_any_source_")
"""The ops between two processes."""


class PlainHostMemory(TorchDispatchMode):
    """Takes plain memory of the CPU for pinned memory.

    The reducer of ``DistributedDataParallel`` asks for that in C++, to note which parameters were used, and
    only a backend in C++ can give it.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.is_pinned.default:
            return True
        kwargs = dict(kwargs or {})
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return func(*args, **kwargs)


searching: weakref.WeakSet[Any] = weakref.WeakSet()
"""Modules of ``DistributedDataParallel`` that note which parameters were used."""

CPU = torch.device("cpu")
_LIBRARIES: list[torch.library.Library] = []


def register() -> None:
    """Register the collectives' kernels, where PyTorch was built with them."""
    if not torch.distributed.is_available():
        return
    Backend = torch.distributed.distributed_c10d.Backend
    Backend.default_device_backend_map.setdefault(NAME, Backend.GLOO)
    gloo = Backend.backend_capability[Backend.GLOO]
    if NAME not in gloo:
        gloo.append(NAME)
    library = torch.library.Library("c10d", "IMPL")
    with warnings.catch_warnings():  # PyTorch's own kernels ask for a process group in C++
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for name, written in WRITTEN.items():
            packet = getattr(torch.ops.c10d, name, None)
            if packet is not None:
                kernel = _staged(packet.default, written, waits=name not in POINT_TO_POINT)
                library.impl(name, kernel, "PrivateUse1", allow_override=True)
    _LIBRARIES.append(library)  # the kernels are there as long as it is
    _note_searching(torch.nn.parallel.DistributedDataParallel)


def _note_searching(parallel: Any) -> None:
    own = parallel.__init__

    @functools.wraps(own)
    def init(self: Any, *args: Any, **options: Any) -> None:
        own(self, *args, **options)
        if (self.find_unused_parameters or self.static_graph) and self.device_type == NAME:
            searching.add(self)

    parallel.__init__ = init


def backward_mode() -> contextlib.AbstractContextManager[Any]:
    """The context in which backward of tensors on ``dlall`` runs."""
    return PlainHostMemory() if searching else contextlib.nullcontext()


def _staged(op: Any, written: tuple[int, ...], *, waits: bool) -> Callable[..., Any]:
    """A collective on copies on the CPU."""
    with_result = len(op._schema.returns) == 2

    def kernel(*args: Any) -> Any:
        hosts: dict[int, torch.Tensor] = {}

        def down(value: Any) -> Any:
            if is_here(value):
                if id(value) not in hosts:
                    hosts[id(value)] = value.cpu()
                return hosts[id(value)]
            return [down(one) for one in value] if isinstance(value, (list, tuple)) else value

        _serve_cpu(next(value for value in args if isinstance(value, torch.ScriptObject)))
        result = op._handle.redispatch_boxed(memory.CPU_KEYS, *map(down, args))
        work = result[1] if with_result else result
        results = [(value, hosts[id(value)]) for at in written for value in _tensors(args[at])]
        if not waits:
            from dl4all.pytorch.device.messages import Message  # only where PyTorch has torch.distributed

            return Message(work, tuple(hosts.values()), results).boxed()
        work.wait()
        for value, host in results:
            value.copy_(host)
        return (args[0], work) if with_result else work

    return kernel


def _serve_cpu(boxed: Any) -> None:
    """Let a process group that was made for ``dlall`` alone, as the default one, take tensors on the CPU."""
    group = torch.distributed.ProcessGroup.unbox(boxed)
    if CPU not in group._device_types:
        backend = group._get_backend(torch.device(NAME))
        group._register_backend(CPU, torch.distributed.ProcessGroup.BackendType.GLOO, backend)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if is_here(value):
            yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
