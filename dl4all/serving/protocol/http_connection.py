"""Connections of HTTP whose answers leave in one piece."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HttpConnection(HttpToolsProtocol):
    """uvicorn's protocol, which writes the head of an answer and its body one after the other.

    A process that is killed between the two has begun an answer: no proxy can ask another server for it then.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        pairs = _PairedWrites(cast("asyncio.Transport", transport), self.loop)
        super().connection_made(cast("asyncio.Transport", pairs))


class _PairedWrites:
    """A transport that holds what is written until more comes, or the event loop's next turn."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            self._transport.write(self._held + data)
            self._held = b""
        elif data:
            self._held = data
            self._loop.call_soon(self._release)

    def close(self) -> None:
        self._release()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _release(self) -> None:
        held, self._held = self._held, b""
        if held:
            self._transport.write(held)
