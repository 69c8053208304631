"""When two traces ask the host for the same work."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from dl4all.ops.core.arguments.tensor_argument import TensorArgument
from dl4all.ops.core.kernels.host_work import BodyCall, HostWork
from dl4all.scheduler.push_constants import VaryingFloat, VaryingInt


def work_identity(value: Any, within: tuple[Any, ...] = ()) -> Any:
    """A key that is equal for two pieces of work that do the same.

    Functions are the same by their code and what it refers to, arrays by their elements, varying numbers by
    their source. Other objects, such as an optimizer, are the same only as themselves.

    Args:
        value: the work, or a part of it.
        within: the functions that it is a part of; what they refer to may be one of them.

    >>> def adding(number):
    ...     return lambda x: x + number
    >>> work_identity(adding(1)) == work_identity(adding(1)) != work_identity(adding(2))
    True
    """
    identity = functools.partial(work_identity, within=within)
    if isinstance(value, (VaryingInt, VaryingFloat)):
        return "varying", value.mark
    if isinstance(value, (int, float, str, bytes, np.dtype, type(None))):
        return type(value), repr(value) if isinstance(value, float) else value
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(identity, value))
    if type(value) is dict:
        return dict, tuple((identity(key), identity(item)) for key, item in value.items())
    if isinstance(value, (np.ndarray, np.generic)):
        return "array", value.shape, value.dtype, value.tobytes()
    if isinstance(value, HostWork):
        return identity(value.function), value.views, identity(value.numbers)
    if isinstance(value, BodyCall):
        arguments = {name: identity(argument) for name, argument in value.arguments.items()}
        return value.name, identity(value.operands), arguments, value.deferred
    if isinstance(value, TensorArgument) and (elements := value.known_elements()) is not None:
        return type(value), identity(elements)
    if isinstance(value, slice):
        return slice, identity((value.start, value.stop, value.step))
    if isinstance(value, enum.Enum):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]
        return type(value), identity(fields)
    if isinstance(value, functools.partial):
        named = tuple((name, identity(argument)) for name, argument in value.keywords.items())
        return "partial", identity(value.func), identity(value.args), named
    if isinstance(value, MethodType):
        return value.__func__, id(value.__self__)
    if isinstance(value, FunctionType):
        if any(value is function for function in within):
            return value.__code__
        inner = functools.partial(work_identity, within=(*within, value))
        return value.__code__, inner(value.__defaults__), tuple(map(inner, _variables(value)))
    return "object", id(value)


def _variables(function: FunctionType) -> list[Any]:
    """The values of a function's closure, of those that have one by now."""
    found = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            found.append(cell.cell_contents)
    return found
