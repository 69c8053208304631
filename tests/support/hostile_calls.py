"""Every public function, called with numbers that cannot be: sizes, counts, steps and axes out of all bounds.

A function's first call is a harmless one, found by trying small operands. Then each of its numbers is replaced by
hostile ones. Devices must agree: on the result, or on the class of a typed error.
"""

from __future__ import annotations

import inspect
import itertools
import math
import resource
import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import dl4all as dl
from dl4all.errors import Dl4allError
from dl4all.runtime.profiler import recorder  # noqa: F401  (imported before memory is limited)

INTS = (-1, 0, 2**31, 2**32 + 1, 2**40, 2**62, 2**63, 2**64 + 1, -(2**63) - 1)
FLOATS = (math.nan, math.inf, -math.inf, 1e30, -1e30, 2**1024)
WRONG_KIND = (2.5, math.nan)  # for ints
SECONDS = 4
"""What no call may exceed."""
MEMORY = 1 << 30
"""What calls may take beyond what the process has before the first one, in bytes."""

SHAPES = ((4,), (3, 4), (2, 3, 4), (2, 3, 5, 5), (1, 2, 3, 4, 4), (4, 4), (), (1, 1, 1))
TENSORS = ("Array", "T", "Tensor", "TensorBase")
# Functions that this is no test for: they print, open devices, change settings, or take functions.
OTHER = {
    "broadcast", "checkpoint", "data_parallel", "pipeline", "device", "devices", "numerical_gradient",
    "set_printoptions", "backward", "register_hook", "share_memory_", "fan_in_and_out", "Tensor.as_strided",
}  # fmt: skip


class Function(NamedTuple):
    """A public function and its name."""

    name: str
    call: Callable[..., Any]


class Plan(NamedTuple):
    """A harmless call: makers of the arguments by name, and the names of those that are numbers."""

    arguments: dict[str, Any]
    positional: tuple[str, ...]
    numbers: tuple[str, ...]


class Operand(NamedTuple):
    """A tensor argument, made on the device of the call."""

    shape: tuple[int, ...]
    dtype: str

    def on(self, device: str) -> Any:
        count = math.prod(self.shape)
        values = np.arange(count).reshape(self.shape) % 3
        if self.dtype == "float32":
            values = values * 0.25 + 0.5
        return dl.tensor(values.astype(self.dtype), device=device)


def functions() -> Iterator[Function]:
    """What ``dl``, ``nn.functional`` and tensors have, by name."""
    for space, prefix in (
        (dl, "dl."),
        (dl.nn.functional, "F."),
        (dl.Tensor, "Tensor."),
        (dl.nn.init, "init."),
    ):
        for name in sorted(dir(space)):
            call = getattr(space, name)
            if name.startswith("_") or {name, prefix + name} & OTHER or inspect.isclass(call) or not callable(call):
                continue
            if getattr(call, "__module__", "").startswith(("dl4all.", "functools")):
                yield Function(prefix + name, call)


def kind(parameter: inspect.Parameter) -> str:
    """What a parameter takes, by its annotation: "tensor", "int", "ints", "float" or ""."""
    words = [word.strip() for word in str(parameter.annotation).strip("'\"").split("|")]
    if parameter.name == "self" or any(word in TENSORS for word in words[:1]):
        return "tensor"
    if parameter.annotation is inspect.Parameter.empty and parameter.default is inspect.Parameter.empty:
        return "tensor"
    if any(word in ("Sequence[int]", "Shape", "Sizes", "OutputSizes", "Dims") for word in words):
        return "ints"
    if "int" in words:
        return "int"
    if any(word in ("float", "Scalar", "Number") for word in words):
        return "float"
    return ""


def plan(function: Function) -> Plan | None:
    """A harmless call of a function; None if none is found, or it takes no numbers."""
    try:
        parameters = inspect.signature(function.call).parameters.values()
    except ValueError:
        return None
    kinds = {p.name: kind(p) for p in parameters if p.kind is not p.VAR_KEYWORD}
    numbers = tuple(name for name, k in kinds.items() if k not in ("tensor", ""))
    if not numbers:
        return None
    variadic = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    required = {p.name for p in parameters if p.default is p.empty}
    for dtype, shape, n, count in itertools.product(
        ("float32", "int64", "bool"), SHAPES, (1, 2, 0), (0, 1, 2, 3)
    ):
        made: dict[str, Any] = {}
        for p in parameters:
            if p.name not in required or not kinds.get(p.name):
                continue
            k = kinds[p.name]
            if k == "tensor":
                made[p.name] = Operand(shape, dtype)
            elif k == "ints" or p.name in variadic:
                made[p.name] = (n,) * count if count else n
            else:
                made[p.name] = n if k == "int" else 0.5 * n
        found = Plan(
            made,
            tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)),
            numbers,
        )
        try:
            run(function, found, "cpu", {})
        except Exception:  # noqa: S112  (this operand does not fit; the next one may)
            continue
        return found
    return None


def run(function: Function, found: Plan, device: str, replaced: dict[str, Any]) -> Any:
    """The result of a call, with some of the arguments replaced."""
    dl.manual_seed(5)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    parameters = inspect.signature(function.call).parameters
    for name, value in {**found.arguments, **replaced}.items():
        value = value.on(device) if isinstance(value, Operand) else value
        if parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            positional += [value] if not isinstance(value, tuple) else [value]
        elif parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(value)
        else:
            named[name] = value
    if "device" in parameters and str(parameters["device"].annotation).startswith("DeviceLike"):
        named["device"] = device
    if any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):  # what comes before it is positional too
        before = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        positional = [named.pop(name) for name in before if name in named] + positional
    return function.call(*positional, **named)


def replacements(function: Function, found: Plan) -> Iterator[dict[str, Any]]:
    """Hostile numbers for each number of a call, alone and in a tuple."""
    parameters = inspect.signature(function.call).parameters
    for name in found.numbers:
        k = kind(parameters[name])
        for value in FLOATS if k == "float" else (*INTS, *WRONG_KIND):
            yield {name: value}
        if k == "ints":
            length = len(found.arguments[name]) if isinstance(found.arguments.get(name), tuple) else 2
            for value in (*INTS, *WRONG_KIND):
                yield {name: (value,) * max(length, 1)}
                if length > 1:
                    yield {name: (value, *(1,) * (length - 1))}
                    yield {name: (0, *(value,) * (length - 1))}


def outcome(function: Function, found: Plan, device: str, replaced: dict[str, Any]) -> tuple[str, Any]:
    """The class of the error, or "" and the result as arrays."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        result = arrays(run(function, found, device, replaced))
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Exception as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raw = "" if isinstance(error, Dl4allError) else "raw "
        return f"{raw}{type(error).__name__}", str(error)
    return "", result


def arrays(result: Any) -> Any:
    """The tensors in a result as arrays; of large ones, which are views, only the shape."""
    if isinstance(result, dl.Tensor):
        return result.numpy() if result.numel() < 1 << 20 else result.shape
    if isinstance(result, (tuple, list)):
        return [arrays(part) for part in result[:64]]
    return result if isinstance(result, (int, float, str, bool)) else type(result).__name__


def same(one: Any, other: Any) -> bool:
    """Whether two results are equal, up to rounding."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if one.dtype.kind != "f":
            return bool((one == other).all())
        return bool(np.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True))
    return bool(one == other) or (one != one and other != other)


def faults(function: Function, found: Plan, devices: list[str], chosen: Any = None) -> Iterator[str]:
    """What is wrong with a function, in words."""
    cases = list(replacements(function, found))
    for replaced in cases if chosen is None else chosen(cases):
        shown = (
            f"{function.name}({', '.join(f'{k}={v!r}' for k, v in {**found.arguments, **replaced}.items())})"
        )
        reference: tuple[str, Any] | None = None
        for device in devices:
            error, result = outcome(function, found, device, replaced)
            if error.startswith("raw"):
                yield f"{shown} on {device}: {error}: {result}"
            if reference is None:
                reference = error, result
            elif reference[0] != error:
                yield f"{shown}: {reference[0] or 'no error'} on {devices[0]}, {error or 'no error'} on {device}: {result if error else reference[1]}"
            elif not error and not same(reference[1], result):
                yield f"{shown}: {reference[1]!r} on {devices[0]}, {result!r} on {device}"


def limit_memory() -> None:
    """Let allocations fail that are larger than any call here should make."""
    with open("/proc/self/status", encoding="ascii") as status:
        [data] = [int(line.split()[1]) * 1024 for line in status if line.startswith("VmData")]
    resource.setrlimit(resource.RLIMIT_DATA, (data + MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
