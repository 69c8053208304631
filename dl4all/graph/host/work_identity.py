"""When two traces ask the host for the same work."""

from __future__ import annotations

import dataclasses
import enum
import functools
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from dl4all.ops.core.kernels.host_work import BodyCall, HostWork
from dl4all.scheduler.push_constants import VaryingFloat, VaryingInt


def work_identity(value: Any) -> Any:
    """A key that is equal for two pieces of work that do the same.

    Functions are the same by their code and what it refers to, arrays by their elements, varying numbers by
    their source. Other objects, such as an optimizer, are the same only as themselves.

    >>> def adding(number):
    ...     return lambda x: x + number
    >>> work_identity(adding(1)) == work_identity(adding(1)) != work_identity(adding(2))
    True
    """
    if isinstance(value, (VaryingInt, VaryingFloat)):
        return "varying", value.mark
    if isinstance(value, (int, float, str, bytes, np.dtype, type(None))):
        return type(value), repr(value) if isinstance(value, float) else value
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(work_identity, value))
    if type(value) is dict:
        return dict, tuple((work_identity(key), work_identity(item)) for key, item in value.items())
    if isinstance(value, (np.ndarray, np.generic)):
        return "array", value.shape, value.dtype, value.tobytes()
    if isinstance(value, HostWork):
        return work_identity(value.function), value.views, work_identity(value.numbers)
    if isinstance(value, BodyCall):
        arguments = {name: work_identity(argument) for name, argument in value.arguments.items()}
        return value.name, work_identity(value.operands), arguments, value.deferred
    if isinstance(value, slice):
        return slice, work_identity((value.start, value.stop, value.step))
    if isinstance(value, enum.Enum):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]
        return type(value), work_identity(fields)
    if isinstance(value, functools.partial):
        named = tuple((name, work_identity(argument)) for name, argument in value.keywords.items())
        return "partial", work_identity(value.func), work_identity(value.args), named
    if isinstance(value, MethodType):
        return value.__func__, id(value.__self__)
    if isinstance(value, FunctionType) and value.__closure__:
        cells = tuple(work_identity(cell.cell_contents) for cell in value.__closure__)
        return value.__code__, work_identity(value.__defaults__), cells
    if isinstance(value, FunctionType):
        return value.__code__, work_identity(value.__defaults__)
    return "object", id(value)
