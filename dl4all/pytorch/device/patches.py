"""Changes of PyTorch's Python layer for a backend in Python.

Each function below replaces one of PyTorch's, and calls that for everything that is not on ``dlall``.
:mod:`dl4all.pytorch.device.versions` looks first whether this version of PyTorch has what is replaced.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import graph as autograd_graph
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.utils import backend_registration

from dl4all.pytorch.device import accelerator, devices, distributed, substitutes
from dl4all.pytorch.device.device_guard import with_error_put_aside
from dl4all.pytorch.device.devices import NAME, device_at, is_here
from dl4all.pytorch.device.storage import interchange, storages
from dl4all.runtime import fork

LIBRARY = torch.library.Library("aten", "IMPL")


def patch() -> None:
    """Put everything in place, once for each process."""
    # Without this `module.to("dlall")` makes new parameters, and tied ones come apart silently.
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch.utils.swap_tensors = _despite_weak_references(torch.utils.swap_tensors)
    torch.nn.Module._load_from_state_dict = _copying(  # type: ignore[method-assign]
        torch.nn.Module._load_from_state_dict
    )
    backend_registration._generate_storage_methods_for_privateuse1_backend(NAME)
    storages.patch()
    substitutes.patch()
    accelerator.patch()
    interchange.patch()
    LIBRARY.impl("_pin_memory", pin_memory, "CPU", allow_override=True)
    LIBRARY.impl("is_pinned", is_pinned, "CPU", allow_override=True)
    run_backward = _in_this_thread(autograd_graph._engine_run_backward)
    for module in (autograd_graph, torch.autograd):
        module._engine_run_backward = run_backward  # type: ignore[attr-defined]
    torch.nn.DataParallel.forward = _on_one_device(  # type: ignore[method-assign]
        torch.nn.DataParallel.forward
    )
    LazyModuleMixin._apply = _move_lazily  # type: ignore[attr-defined]
    devices.when_not_first = _name_current_device


def _copying(own: Callable[..., Any]) -> Callable[..., Any]:
    """Loading of parameters by copies into them, which is PyTorch's default.

    Swapping serves conversions only, and cannot load what recurrent layers refer to weakly.
    """

    @functools.wraps(own)
    def load(*args: Any, **options: Any) -> Any:
        swaps = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(False)
        try:
            return own(*args, **options)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(swaps)

    return load


# Memory of the host


def pin_memory(host: torch.Tensor, device: Any = None) -> torch.Tensor:
    """A copy of a tensor on the CPU in memory that the current device copies from by itself.

    A plain copy where that device is the CPU, or cannot be used as this process was forked.
    """
    target = None if fork.refused else device_at(devices.current())
    if target is None or target.is_host or host.layout != torch.strided or not host.numel():
        return host.clone()
    pinned = target.copies.pin(host.detach().contiguous().view(-1).view(torch.uint8).numpy())
    copy = torch.from_numpy(pinned).view(host.dtype).view(host.shape)
    copy.untyped_storage().pinned = pinned  # type: ignore[attr-defined]
    return copy


def is_pinned(host: torch.Tensor, device: Any = None) -> bool:
    """Whether a tensor on the CPU lies in such memory."""
    return hasattr(host.untyped_storage(), "pinned")


# Autograd


def _in_this_thread(own: Callable[..., Any]) -> Callable[..., Any]:
    """Backward of tensors on ``dlall`` in the caller's thread.

    PyTorch has a thread for each device, and would make one for index 0 only. Work that is written in Python
    gains nothing from it, Ctrl-C reaches the main thread, and whatever belongs to a thread stays in force.
    """

    @functools.wraps(own)
    def run_backward(outputs: Any, *args: Any, **options: Any) -> Any:
        if not any(is_here(one) or not isinstance(one, torch.Tensor) for one in outputs):
            return own(outputs, *args, **options)
        with torch.autograd.grad_mode.set_multithreading_enabled(False), distributed.backward_mode():
            return with_error_put_aside(own, outputs, *args, **options)

    return run_backward


# Modules


def _despite_weak_references(own: Any) -> Any:
    """``swap_tensors`` of parameters that ``torch.compile`` holds weak references to.

    PyTorch refuses that. But what Dynamo asks such a reference for, device and strides, it compares before
    each call, so a model may be moved after it was compiled, as it may be without swaps.
    """
    none = types.SimpleNamespace(getweakrefs=lambda tensor: [])
    names = own.__globals__ | {"weakref": none}
    return types.FunctionType(own.__code__, names, own.__name__, own.__defaults__, own.__closure__)


def _move_lazily(self: Any, function: Callable[..., Any], recurse: bool = True) -> Any:
    """``Module._apply`` of a lazy module: parameters without a shape yet stay so, wherever they go.

    PyTorch's own would swap them for parameters of no elements.
    """
    owners = (self._parameters, self._buffers)
    lazy = [(owner, name, one) for owner in owners for name, one in owner.items() if is_lazy(one)]
    for owner, name, _ in lazy:
        owner[name] = None
    try:
        torch.nn.Module._apply(self, function, recurse)
    finally:
        for owner, name, one in lazy:
            owner[name] = one
    for _, _, one in lazy:
        now = one.data
        moved = function(torch.empty(0, dtype=now.dtype, device=now.device))
        if (moved.dtype, moved.device) != (now.dtype, now.device):
            made: Any = type(one)  # a parameter or a buffer; both take these
            fresh = made(one.requires_grad, device=moved.device, dtype=moved.dtype)
            torch.utils.swap_tensors(one, fresh)
    return self


# Several devices


def _on_one_device(own: Callable[..., Any]) -> Callable[..., Any]:
    """``DataParallel`` on ``dlall``: PyTorch scatters with CUDA only, so the module runs where it is."""

    @functools.wraps(own)
    def forward(module: Any, *args: Any, **options: Any) -> Any:
        first = next(module.module.parameters(), None)
        if first is None or not is_here(first):
            return own(module, *args, **options)
        if len(module.device_ids) > 1:
            warnings.warn(
                f"DataParallel runs on {first.device} alone; use DistributedDataParallel for several devices",
                stacklevel=2,
            )
        return module.module(*args, **options)

    return forward


def _name_current_device() -> None:
    """Have ``"dlall"`` mean the current device where PyTorch's extension takes index 0.

    Called when another device than the first becomes the current one: until then the two are the same, and
    nothing costs more.
    """
    for owner, name in ((torch.Tensor, "to"), (torch, "tensor"), (torch, "as_tensor")):
        setattr(owner, name, _naming(getattr(owner, name)))


def _naming(own: Callable[..., Any]) -> Callable[..., Any]:
    def indexed(value: Any) -> Any:
        if value == NAME and isinstance(value, str):
            return torch.device(NAME, devices.current())
        if isinstance(value, torch.device) and value.type == NAME and value.index is None:
            return torch.device(NAME, devices.current())
        return value

    @functools.wraps(own)
    def call(first: Any, *args: Any, **options: Any) -> Any:
        if "device" in options:
            options["device"] = indexed(options["device"])
        return own(first, *map(indexed, args), **options)

    return call
