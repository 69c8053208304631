"""What runs on the CPU because dl4all cannot compute it, counted by op.

PyTorch calls :func:`on_cpu` for every op without a kernel for ``dlall``; kernels call :func:`because` for
operands that they cannot take. Operands are downloaded, ATen's CPU kernel computes, results are uploaded, and
operands that the op's schema says it writes are written back.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging
import time
from typing import Any

import torch

from dl4all import config
from dl4all.config import FallbackMode
from dl4all.errors import FallbackError
from dl4all.scheduler import capture
from dl4all.torch import memory
from dl4all.torch.devices import NAME, is_here

logger = logging.getLogger("dl4all")

CPU = torch.device("cpu")


@dataclasses.dataclass
class Count:
    """How often an op fell back, how long that took, and why the first time."""

    calls: int = 0
    seconds: float = 0.0
    reason: str = ""


COUNTS: collections.defaultdict[str, Count] = collections.defaultdict(Count)
"""By the op's name with its overload, such as ``aten::sinc.out``."""

_mode: FallbackMode | None = None


def mode() -> FallbackMode:
    """What a fallback does: ``warn`` once per op, ``silent``, or ``error``; by DL4ALL_TORCH_FALLBACK."""
    return config.torch_fallback_setting() if _mode is None else _mode


def set_mode(new: FallbackMode | None) -> None:
    """Choose what a fallback does; None goes back to the setting."""
    global _mode
    _mode = new


@dataclasses.dataclass(frozen=True)
class Plan:
    """What of an op's schema matters to a fallback."""

    view: bool
    arguments: tuple[str, ...]
    positional: int
    written: tuple[str, ...]
    """The operands that the op changes."""
    returned: tuple[str | None, ...]
    """For each result, the operand that it is; None for a new tensor."""
    tensors: frozenset[str]
    """Arguments that the schema calls tensors; Python numbers may come in their places."""


HIDDEN_WRITES = {"aten::native_batch_norm": ("running_mean", "running_var")}
"""Operands that an op changes although its schema does not say so."""


@functools.cache
def plan(op: Any) -> Plan:
    """The plan of an overload."""
    schema = op._schema
    arguments = schema.arguments
    aliases = {a.name: a.alias_info for a in arguments if a.alias_info is not None}
    written = tuple(name for name, alias in aliases.items() if alias.is_write)
    returned = []
    for result in schema.returns:
        alias = result.alias_info
        source = None
        if alias is not None and alias.is_write:
            source = next(name for name, a in aliases.items() if a.before_set & alias.before_set)
        returned.append(source)
    return Plan(
        view=any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns),
        arguments=tuple(a.name for a in arguments),
        positional=sum(not a.kwarg_only for a in arguments),
        written=written + HIDDEN_WRITES.get(schema.name, ()),
        returned=tuple(returned),
        tensors=frozenset(a.name for a in arguments if "Tensor" in str(a.type) and "List" not in str(a.type)),
    )


def on_cpu(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute an op on the CPU.

    Raises:
        FallbackError: fallbacks are errors.
    """
    if plan(op).view:  # only metadata changes, which ATen's CPU kernels do for any device
        return op._handle.redispatch_boxed(memory.CPU_KEYS, *args, **kwargs)
    return because("there is no kernel", op, args, kwargs)


def because(reason: str, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute an op on the CPU, and count it with its reason.

    Raises:
        FallbackError: fallbacks are errors.
    """
    name = str(op._schema.name) + (f".{op._overloadname}" if op._overloadname != "default" else "")
    policy = mode()
    if policy == "error":
        raise FallbackError(
            f"[{name}] runs on the CPU ({reason}), and DL4ALL_TORCH_FALLBACK=error forbids it"
        )
    if capture.active is not None:
        capture.active.refused(f"runs {name} on the CPU, as {reason}")
    start = time.perf_counter()
    result = _compute(op, args, kwargs)
    count = COUNTS[name]
    if not count.calls:
        count.reason = reason
        if policy == "warn":
            logger.warning("[%s] runs on the CPU: %s", name, reason)
    count.calls += 1
    count.seconds += time.perf_counter() - start
    return result


def _compute(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    known = plan(op)
    bound = dict(zip(known.arguments, args, strict=False)) | kwargs
    index = next((t.get_device() for t in _tensors(bound.values()) if is_here(t)), None)
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
    positional = []
    for name in known.arguments[: known.positional]:
        if name not in given:
            break
        positional.append(given[name])
    keywords = {
        name: value for name, value in given.items() if name not in known.arguments[: len(positional)]
    }
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


def _tensors(values: Any) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


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
