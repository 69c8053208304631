"""The fallback to the CPU of ops that dl4all cannot compute, counted by op.

PyTorch calls :func:`on_cpu` for every op without a kernel for ``dlall``; kernels call :func:`because` for
operands that they cannot take. Operands are downloaded, ATen's CPU kernel computes, results are uploaded, and
operands that the op's schema says it writes are written back.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
from typing import Any

import torch

from dl4all import config
from dl4all.config import FallbackMode
from dl4all.errors import DeviceError, FallbackError
from dl4all.pytorch.device.devices import NAME, is_here
from dl4all.pytorch.device.dispatch.schemas import plan, tensors_in
from dl4all.pytorch.device.storage import memory
from dl4all.scheduler import listeners

logger = logging.getLogger("dl4all")

CPU = torch.device("cpu")


@dataclasses.dataclass
class Count:
    """The number and the time of an op's fallbacks, and the reason of the first one."""

    calls: int = 0
    seconds: float = 0.0
    reason: str = ""


COUNTS: collections.defaultdict[str, Count] = collections.defaultdict(Count)
"""By the op's name with its overload, such as ``aten::sinc.out``."""

_mode: FallbackMode | None = None


def mode() -> FallbackMode:
    """The effect of a fallback: ``warn`` once per op, ``silent``, or ``error``; by DL4ALL_TORCH_FALLBACK."""
    return config.torch_fallback_setting() if _mode is None else _mode


def set_mode(new: FallbackMode | None) -> None:
    """Choose what a fallback does; None goes back to the setting."""
    global _mode
    _mode = new


HOST_OPERANDS = frozenset(
    f"aten::{name}"
    for name in (
        "_copy_from", "_copy_from_and_resize", "_ctc_loss", "_ctc_loss.Tensor", "_foreach_copy_",
        "_index_put_impl_", "_pack_padded_sequence", "_unsafe_index.Tensor", "copy_", "index.Tensor",
        "index.Tensor_out", "index_put", "index_put.out", "index_put_",
        "tensor_split.tensor_indices_or_sections",
    )
)  # fmt: skip
"""Ops that take tensors on the CPU, such as indices, beside tensors on the device."""


def on_cpu(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute an op on the CPU.

    Raises:
        FallbackError: fallbacks are errors.
    """
    if plan(op).view:  # only metadata changes, which ATen's CPU kernels do for any device
        return op._handle.redispatch_boxed(memory.CPU_KEYS, *args, **kwargs)
    return because("there is no kernel", op, args, kwargs)


def refused(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse an op of sparse or quantized tensors.

    Raises:
        DeviceError
    """
    raise DeviceError(
        f"[{op._schema.name}] expected strided tensors on {NAME}, got sparse or quantized ones; "
        f"{memory.ON_CPU_ONLY}: compute with them there"
    )


def because(reason: str, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute an op on the CPU, and count it with its reason.

    Raises:
        FallbackError: fallbacks are errors.
        DeviceError: operands are on several devices, or results are sparse or quantized.
    """
    name = str(op._schema.name) + (f".{op._overloadname}" if op._overloadname != "default" else "")
    _check_devices(name, args, kwargs)
    policy = mode()
    if policy == "error":
        raise FallbackError(
            f"[{name}] runs on the CPU ({reason}), and DL4ALL_TORCH_FALLBACK=error forbids it"
        )
    listeners.refuse(f"runs {name} on the CPU, as {reason}")
    start = time.perf_counter()
    try:
        result = _compute(op, args, kwargs)
    except memory.NotNative as error:  # of a result that no tensor on the device can hold
        raise DeviceError(f"[{name}] {error}; call .cpu() first") from None
    count = COUNTS[name]
    if not count.calls:
        count.reason = reason
        if policy == "warn":
            logger.warning("[%s] runs on the CPU: %s", name, reason)
    count.calls += 1
    count.seconds += time.perf_counter() - start
    return result


def _check_devices(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """
    Raises:
        DeviceError: operands are on several devices, numbers without axes on the CPU aside.
    """
    if name in HOST_OPERANDS:
        return
    found = dict.fromkeys(
        value.device
        for value in tensors_in((*args, *kwargs.values()))
        if value.dim() or value.device.type != "cpu"
    )
    if len(found) > 1:
        raise DeviceError(
            f"[{name}] expected all tensors to be on the same device, got {', '.join(map(str, found))}; "
            "move them with .to(...)"
        )


def _compute(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    known = plan(op)
    bound = dict(zip(known.arguments, args, strict=False)) | kwargs
    index = next((t.get_device() for t in tensors_in(bound.values()) if is_here(t)), None)
    if index is None:
        device = bound.get("device")
        index = 0 if device is None or device.index is None else device.index
    hosts: dict[int, torch.Tensor] = {}  # of one tensor that is given twice, one copy

    def down(value: Any) -> Any:
        if is_here(value):
            if id(value) not in hosts:
                hosts[id(value)] = memory.download(value)
            return hosts[id(value)]
        if isinstance(value, (list, tuple)):
            return type(value)(map(down, value))
        return CPU if isinstance(value, torch.device) and value.type == NAME else value

    given = {name: down(value) for name, value in bound.items()}
    if "device" in known.arguments and given.get("device") is None and "device" not in known.tensors:
        given["device"] = CPU
    for name in known.tensors & given.keys():
        if isinstance(given[name], (bool, int, float, complex)):
            given[name] = torch.tensor(given[name])
    positional, keywords = known.call(given)
    result = op(*positional, **keywords)
    for name in known.written:
        if bound.get(name) is not None:
            _write_back(bound[name], given[name])
    if not known.returned:
        return None
    results = (result,) if len(known.returned) == 1 else result
    moved = [
        _up(one, index) if source is None else bound[source]
        for one, source in zip(results, known.returned, strict=True)
    ]
    return moved[0] if len(moved) == 1 else tuple(moved)


def _write_back(target: Any, host: Any) -> None:
    if isinstance(target, (list, tuple)):
        for one, other in zip(target, host, strict=True):
            _write_back(one, other)
    elif is_here(target):
        if target.shape != host.shape:
            target.resize_(host.shape)
        memory.write(target, host)


def _up(value: Any, index: int) -> Any:
    if isinstance(value, torch.Tensor):
        return memory.upload(value, index) if value.device.type == "cpu" else value
    return type(value)(_up(one, index) for one in value) if isinstance(value, (list, tuple)) else value
