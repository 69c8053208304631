"""Language models over HTTP as OpenAI's API has them: completions, whole or as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dl4all.llm.completion_batcher import Completion, CompletionPiece
from dl4all.serving.language_models import LanguageModel, LanguageModels, unix_time
from dl4all.serving.protocol.http_request import cancelled_when_gone, json_object
from dl4all.serving.protocol.openai_body import (
    CompletionBody,
    chat_logprobs,
    event,
    read_completion,
    text_logprobs,
    usage,
)
from dl4all.serving.request_error import Reason, RequestError, as_request_error, invalid
from dl4all.serving.served_models import reason_of

ERROR_TYPES = {400: "invalid_request_error", 404: "invalid_request_error", 503: "overloaded_error"}
"""Names of kinds of errors by their status."""
EVENTS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers by which proxies pass events on as they come."""

Counted = Callable[[str, int, int], None]
"""Counts a model's request by the status of its answer, and the answer's tokens."""


def openai_routes(models: LanguageModels, counted: Counted) -> list[Route]:
    """The routes of a server's language models."""
    routes = _OpenAiRoutes(models, counted)
    return [
        Route("/v1/chat/completions", _AnsweringInForm(routes.chat), methods=["POST"]),
        Route("/v1/completions", _AnsweringInForm(routes.text), methods=["POST"]),
        Route("/v1/models", _AnsweringInForm(routes.models), methods=["GET"]),
        Route("/v1/models/{name:path}", _AnsweringInForm(routes.model), methods=["GET"]),
    ]


class _AnsweringInForm:
    """An endpoint that answers in OpenAI's form where it fails."""

    def __init__(self, endpoint: Callable[[Request], Awaitable[Response]]) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response: ASGIApp = await self._endpoint(Request(scope, receive))
        except Exception as error:  # noqa: BLE001  # the client gets its reason
            refused = reason_of(error)
            headers = {"Retry-After": "1"} if refused.reason is Reason.FULL else None
            response = JSONResponse({"error": _error(refused)}, refused.reason.http, headers)
        await response(scope, receive, send)


def _error(refused: RequestError) -> dict[str, Any]:
    code = "model_not_found" if refused.reason is Reason.UNKNOWN else None
    kind = ERROR_TYPES.get(refused.reason.http, "server_error")
    return {"message": str(refused), "type": kind, "param": None, "code": code}


class _Pieces:
    """The pieces of a completion, for the event loop."""

    def __init__(self, model: LanguageModel, body: CompletionBody) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[CompletionPiece | Exception] = asyncio.Queue()
        self._completion: Completion = model.batcher.submit(body.request, self._tell)

    def _tell(self, piece: CompletionPiece | Exception) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, piece)

    async def __aiter__(self) -> AsyncIterator[CompletionPiece]:
        try:
            reason = None
            while reason is None:
                piece = await self._arrived.get()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
                reason = piece.reason
        finally:
            self._completion.cancel()


class _OpenAiRoutes:
    """The endpoints."""

    def __init__(self, models: LanguageModels, counted: Counted) -> None:
        self._models, self._counted = models, counted

    async def models(self, request: Request) -> Response:
        found = [_description(model) for model in self._models.by_name.values()]
        return JSONResponse({"object": "list", "data": found})

    async def model(self, request: Request) -> Response:
        return JSONResponse(_description(self._models.get(request.path_params["name"])))

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, chat=True)

    async def text(self, request: Request) -> Response:
        return await self._answer(request, chat=False)

    async def _answer(self, request: Request, *, chat: bool) -> Response:
        content = await json_object(request)
        name = content.get("model")
        if not isinstance(name, str):
            raise invalid("model must be the name of one of /v1/models")
        model = self._models.get(name)
        try:
            body = read_completion(content, model.batcher.tokenizer, chat=chat)
            pieces = _Pieces(model, body)
            answer = _CompletionForm(model, body, chat)
            if body.stream:
                events = answer.events(pieces, self._counted)
                return StreamingResponse(events, headers=EVENTS, media_type="text/event-stream")
            with cancelled_when_gone(request):
                whole = [piece async for piece in pieces]
        except Exception as error:
            self._counted(name, as_request_error(error).reason.http, 0)
            raise
        self._counted(name, 200, len(whole))
        return JSONResponse(answer.whole(whole))


def _description(model: LanguageModel) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "dl4all"}


class _CompletionForm:
    """The answer to one request, in the form of its route."""

    def __init__(self, model: LanguageModel, body: CompletionBody, chat: bool) -> None:
        self._body, self._chat = body, chat
        self._tokenizer = model.batcher.tokenizer
        kind = "chat.completion" if chat else "text_completion"
        prefix = "chatcmpl" if chat else "cmpl"
        self._head: dict[str, Any] = {
            "id": f"{prefix}-{secrets.token_hex(12)}",
            "created": unix_time(),
            "model": model.name,
            "object": kind + (".chunk" if body.stream and chat else ""),
        }

    def whole(self, pieces: list[CompletionPiece]) -> dict[str, Any]:
        """The answer in one piece."""
        text = "".join(piece.text for piece in pieces)
        choice: dict[str, Any] = {"index": 0, "finish_reason": pieces[-1].reason}
        if self._chat:
            message = {"role": "assistant", "content": text, "refusal": None}
            choice |= {"message": message, "logprobs": chat_logprobs(pieces, self._tokenizer)}
        else:
            choice |= {"text": text, "logprobs": text_logprobs(pieces, self._tokenizer)}
        return {
            **self._head,
            "choices": [choice],
            "usage": usage(len(self._body.request.tokens), len(pieces)),
        }

    async def events(self, pieces: _Pieces, counted: Counted) -> AsyncIterator[bytes]:
        """The answer piece by piece; an error after the first is an event, too."""
        if self._chat:
            yield self._chunk({"delta": {"role": "assistant", "content": ""}}, None)
        count, status = 0, Reason.GONE.http  # unless it comes to its end
        try:
            async for piece in pieces:
                count += 1
                if not piece.text and piece.reason is None and piece.logprobs is None:
                    continue  # within a character
                if self._chat:
                    told = chat_logprobs([piece], self._tokenizer)
                    delta: dict[str, Any] = {"content": piece.text} if piece.text else {}
                    yield self._chunk({"delta": delta, "logprobs": told}, piece.reason)
                else:
                    told = text_logprobs([piece], self._tokenizer)
                    yield self._chunk({"text": piece.text, "logprobs": told}, piece.reason)
            status = 200
        except Exception as error:  # noqa: BLE001  # the head has left: the client gets the reason so
            refused = reason_of(error)
            status = refused.reason.http
            yield event({"error": _error(refused)})
            return
        finally:
            counted(self._head["model"], status, count)
        if self._body.include_usage:
            tokens = usage(len(self._body.request.tokens), count)
            yield event({**self._head, "choices": [], "usage": tokens})
        yield event("[DONE]")

    def _chunk(self, choice: dict[str, Any], reason: str | None) -> bytes:
        return event({**self._head, "choices": [{"index": 0, **choice, "finish_reason": reason}]})
