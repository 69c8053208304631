"""Requests of OpenAI's API, checked, and the parts of their answers.

The forms are those of https://platform.openai.com/docs/api-reference/chat and .../completions. `top_k`,
`min_p` and `repetition_penalty` are further fields that servers of open models take.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dl4all.errors import ArgumentError
from dl4all.llm.completion_batcher import CompletionPiece, CompletionRequest
from dl4all.llm.samplers import make_sampler
from dl4all.llm.tokenizer import Tokenizer
from dl4all.serving.request_error import invalid

USUAL_TOKENS = {True: 1024, False: 16}
"""Tokens of an answer where a request names no number: of a talk, and of a text."""
MOST_STOPS, MOST_LOGPROBS, MOST_BIAS = 4, 20, 2.0
REFUSED = {
    "tools": (None, []),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "response_format": (None, {"type": "text"}),
    "n": (None, 1),
    "best_of": (None, 1),
    "suffix": (None, ""),
    "echo": (None, False),
    "modalities": (None, ["text"]),
    "audio": (None,),
}
"""Fields that ask for what is not there, and the values with which they do not."""


class CompletionBody(NamedTuple):
    """A request, read from its body.

    Attributes:
        request: for the batcher.
        stream: whether pieces are told as they come.
        include_usage: whether the last event counts tokens.
    """

    request: CompletionRequest
    stream: bool
    include_usage: bool


def read_completion(body: Mapping[str, Any], tokenizer: Tokenizer | None, *, chat: bool) -> CompletionBody:
    """The request of a body.

    Args:
        chat: whether it is of ``/v1/chat/completions``.

    Raises:
        RequestError: a field is missing, of another type, out of its range, or asks for what is not there.
        ArgumentError: the model has no template, or it refuses the messages.
    """
    for name, allowed in REFUSED.items():
        if body.get(name) not in allowed:
            raise invalid(f"{name} is not supported")
    temperature = _number(body, "temperature", 1.0, 0, 2)
    try:
        sampler = make_sampler(
            temperature,
            _number(body, "top_p", 1.0, 0, 1) or 1e-9,  # the likeliest token alone
            _number(body, "min_p", 0.0, 0, 1),
            _integer(body, "top_k", 0, 0) or 0,
        )
    except ArgumentError as error:
        raise invalid(str(error)) from None
    tokens = _messages(body, tokenizer) if chat else _prompt(body, tokenizer)
    count = _integer(body, "max_completion_tokens", None, 1) or _integer(body, "max_tokens", None, 1)
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise invalid("stream_options must be an object")
    request = CompletionRequest(
        tokens,
        count or USUAL_TOKENS[chat],
        sampler,
        _stops(body, tokenizer),
        _integer(body, "seed", None, -(2**63)),
        _number(body, "repetition_penalty", 1.0, 1e-3, 100),
        _number(body, "presence_penalty", 0.0, -MOST_BIAS, MOST_BIAS),
        _number(body, "frequency_penalty", 0.0, -MOST_BIAS, MOST_BIAS),
        _top_logprobs(body, chat),
    )
    return CompletionBody(request, _flag(body, "stream"), _flag(options, "include_usage"))


def _flag(body: Mapping[str, Any], name: str) -> bool:
    found = body.get(name)
    if found is not None and not isinstance(found, bool):
        raise invalid(f"{name} must be true or false, got {_shown(found)}")
    return bool(found)


def _number(body: Mapping[str, Any], name: str, usual: float, least: float, most: float) -> float:
    found = body.get(name)
    if found is None:
        return usual
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if not is_number or not math.isfinite(found) or not least <= found <= most:
        raise invalid(f"{name} must be a number from {least} to {most}, got {_shown(found)}")
    return float(found)


def _integer(body: Mapping[str, Any], name: str, usual: int | None, least: int) -> int | None:
    found = body.get(name)
    if found is None:
        return usual
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found < 2**63:
        raise invalid(f"{name} must be an integer from {least} on, got {_shown(found)}")
    return found


def _shown(value: Any) -> str:
    return repr(value)[:60]


def _top_logprobs(body: Mapping[str, Any], chat: bool) -> int | None:
    if not chat:
        wanted = _integer(body, "logprobs", None, 0)
    elif _flag(body, "logprobs"):
        wanted = _integer(body, "top_logprobs", 0, 0)
    elif body.get("top_logprobs"):
        raise invalid("top_logprobs needs logprobs")
    else:
        return None
    if wanted is not None and wanted > MOST_LOGPROBS:
        raise invalid(f"at most {MOST_LOGPROBS} logprobs are told, got {wanted}")
    return wanted


def _stops(body: Mapping[str, Any], tokenizer: Tokenizer | None) -> tuple[str, ...]:
    found = body.get("stop")
    given = [] if found is None else [found] if isinstance(found, str) else found
    if not isinstance(given, list) or len(given) > MOST_STOPS or not all(isinstance(s, str) for s in given):
        raise invalid(f"stop must be a text, or up to {MOST_STOPS} of them")
    if given and tokenizer is None:
        raise invalid("the model has no tokenizer, so there is no text to stop at")
    return tuple(given)


def _prompt(body: Mapping[str, Any], tokenizer: Tokenizer | None) -> list[int]:
    found = body.get("prompt")
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], (str, list)):
        found = found[0]
    if isinstance(found, str):
        if tokenizer is None:
            raise invalid("the model has no tokenizer; give tokens as prompt")
        return tokenizer.encode(found)
    if isinstance(found, list) and found and all(type(token) is int for token in found):
        return found
    raise invalid("prompt must be one text, or a list of tokens")


def _messages(body: Mapping[str, Any], tokenizer: Tokenizer | None) -> list[int]:
    found = body.get("messages")
    if not isinstance(found, list) or not found:
        raise invalid("messages must be a list of at least one message")
    if tokenizer is None:
        raise invalid("the model has no tokenizer: it knows no messages")
    messages = []
    for number, message in enumerate(found):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise invalid(f"messages[{number}] must be an object with a role")
        messages.append({**message, "content": _content(message.get("content"), number)})
    return tokenizer.encode(tokenizer.apply_chat_template(messages), special=False)


def _content(content: Any, number: int) -> str:
    """The text of a message, which may have several parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    if len(texts) != len(parts) or not all(isinstance(text, str) for text in texts):
        raise invalid(f"messages[{number}].content must be a text, or parts of the type text")
    return "".join(texts)  # type: ignore[arg-type]  # they are


def usage(prompt: int, completion: int) -> dict[str, int]:
    """The count of the tokens of a request."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def chat_logprobs(pieces: Iterable[CompletionPiece], tokenizer: Tokenizer | None) -> dict[str, Any] | None:
    """The field ``logprobs`` of a choice of ``/v1/chat/completions``; None where none were asked for."""
    told = [
        {
            **_token_logprob(tokenizer, piece.token, piece.logprobs[0]),
            "top_logprobs": [_token_logprob(tokenizer, *pair) for pair in piece.logprobs[1].items()],
        }
        for piece in pieces
        if piece.logprobs is not None
    ]
    return {"content": told, "refusal": None} if told else None


def _token_logprob(tokenizer: Tokenizer | None, token: int, logprob: float) -> dict[str, Any]:
    text = _token_text(tokenizer, token)
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def text_logprobs(pieces: Iterable[CompletionPiece], tokenizer: Tokenizer | None) -> dict[str, Any] | None:
    """The same of a choice of ``/v1/completions``."""
    told = [piece for piece in pieces if piece.logprobs is not None]
    if not told:
        return None
    offsets, length = [], 0
    for piece in told:
        offsets.append(length)
        length += len(piece.text)
    pairs = [piece.logprobs for piece in told if piece.logprobs is not None]
    return {
        "tokens": [_token_text(tokenizer, piece.token) for piece in told],
        "token_logprobs": [own for own, _ in pairs],
        "top_logprobs": [{_token_text(tokenizer, t): p for t, p in top.items()} for _, top in pairs],
        "text_offset": offsets,
    }


def _token_text(tokenizer: Tokenizer | None, token: int) -> str:
    return str(token) if tokenizer is None else tokenizer.text_of(token)


def event(content: Mapping[str, Any] | str) -> bytes:
    """A server-sent event.

    >>> event("[DONE]")
    b'data: [DONE]\\n\\n'
    """
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return f"data: {text}\n\n".encode()
