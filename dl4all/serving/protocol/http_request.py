"""Bodies of requests, and clients that leave."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request

from dl4all.serving.protocol.request_tensors import check_size
from dl4all.serving.request_error import Reason, RequestError, invalid

BODY_SECONDS = 60.0
"""In which a body must have come."""


@contextlib.contextmanager
def cancelled_when_gone(request: Request) -> Iterator[None]:
    """Cancel what waits within when the client leaves: after its body nothing else comes.

    Raises:
        RequestError: it has left.
    """
    task, waits = asyncio.current_task(), True

    def leave(message: asyncio.Task[Any]) -> None:
        if waits and task is not None and not message.cancelled():
            task.cancel()

    message = asyncio.ensure_future(request.receive())
    message.add_done_callback(leave)
    try:
        yield
    except asyncio.CancelledError:
        raise RequestError(Reason.GONE, "the client has left") from None
    finally:
        waits = False
        message.cancel()


async def whole_body(request: Request) -> bytes:
    """The bytes of a body.

    Raises:
        RequestError: it is too large, or too slow.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal():
        check_size(int(declared[:20]))
    first = await request.receive()
    if first["type"] == "http.request" and not first.get("more_body"):
        body: bytes = first.get("body", b"")
        check_size(len(body))
        return body
    try:
        return await asyncio.wait_for(_rest(request, first), BODY_SECONDS)
    except asyncio.TimeoutError:
        raise RequestError(Reason.SLOW, f"the body did not come within {BODY_SECONDS:.0f} seconds") from None


async def _rest(request: Request, message: Any) -> bytes:
    chunks, size = [], 0
    while True:
        if message["type"] == "http.disconnect":
            raise RequestError(Reason.GONE, "the client has left")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        check_size(size)
        if not message.get("more_body"):
            return b"".join(chunks)
        message = await request.receive()


async def json_object(request: Request) -> dict[str, Any]:
    """The object that a body holds; an empty one where there is none.

    Raises:
        RequestError: it is something else.
    """
    body = await whole_body(request)
    try:
        content = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise invalid("the body must be an object")
    return content
