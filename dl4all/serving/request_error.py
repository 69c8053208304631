"""Requests that get no output, and what both protocols call the reason."""

from __future__ import annotations

from enum import Enum

from dl4all.errors import (
    ArgumentError,
    CancelledError,
    DeviceError,
    Dl4allError,
    DTypeError,
    InferenceTimeoutError,
    OutOfMemoryError,
    QueueFullError,
    ShapeError,
)

SHOWN = 400  # characters of a reason


class Reason(Enum):
    """The status of HTTP and the name of gRPC's code; each member is one reason."""

    INVALID = 400, "INVALID_ARGUMENT"
    FORBIDDEN = 403, "PERMISSION_DENIED"
    UNKNOWN = 404, "NOT_FOUND"
    SLOW = 408, "CANCELLED"
    TOO_LARGE = 413, "RESOURCE_EXHAUSTED"
    ENCODING = 415, "UNIMPLEMENTED"
    GONE = 499, "CANCELLED"
    FAILED = 500, "INTERNAL"
    UNAVAILABLE = 503, "UNAVAILABLE"
    FULL = 503, "RESOURCE_EXHAUSTED"
    LATE = 504, "DEADLINE_EXCEEDED"

    @property
    def http(self) -> int:
        return self.value[0]

    @property
    def grpc(self) -> str:
        return self.value[1]


class RequestError(Exception):
    """A request that is answered by a reason.

    >>> str(RequestError(Reason.UNKNOWN, "there is no model 'x'"))
    "there is no model 'x'"
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text[:SHOWN])
        self.reason = reason


def invalid(text: str) -> RequestError:
    """The error of a request that no server would take."""
    return RequestError(Reason.INVALID, text)


REASONS = (
    (QueueFullError, Reason.FULL),
    (InferenceTimeoutError, Reason.LATE),
    (CancelledError, Reason.GONE),
    (OutOfMemoryError, Reason.FULL),
    (DeviceError, Reason.UNAVAILABLE),
    ((ArgumentError, DTypeError, IndexError, ShapeError), Reason.INVALID),
)
"""The reasons of errors that the queue and the library's ops raise; the first that fits counts."""


def as_request_error(error: BaseException) -> RequestError:
    """The error that a client gets.

    What ops refuse is the input's fault, as sizes that do not fit each other; anything else that a model
    raises is the server's.
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, Dl4allError):
        for kinds, reason in REASONS:
            if isinstance(error, kinds):
                return RequestError(reason, str(error))
    return RequestError(Reason.FAILED, f"{type(error).__name__}: {error}")
