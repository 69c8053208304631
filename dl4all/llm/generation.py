"""Tokens one after the other, and their text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError
from dl4all.llm.cache import KeyValueCache, first_length
from dl4all.llm.decoder import Decoder
from dl4all.llm.samplers import Sampler, make_sampler
from dl4all.llm.speculation import DraftedTokens
from dl4all.llm.tokenizer import TextStream, Tokenizer
from dl4all.ops.random.generator import Generator, drawing_from
from dl4all.tensor.creation import tensor
from dl4all.tensor.tensor import Tensor

PIECE = 512
"""Tokens of a prompt that are computed together."""


class Piece(NamedTuple):
    """A token of :func:`stream_generate`.

    Attributes:
        token: its number.
        text: what it adds to the text; empty within a character, or without a tokenizer.
        reason: why nothing follows: ``"stop"`` or ``"length"``; None where something does.

    Example:
        >>> import dl4all as dl
        >>> dl.llm.Piece(17, " the", None).text
        ' the'
    """

    token: int
    text: str
    reason: str | None


def stream_generate(
    model: Decoder,
    tokenizer: Tokenizer | None,
    prompt: str | Sequence[int],
    max_tokens: int = 256,
    *,
    sampler: Sampler | None = None,
    stop: Sequence[str] = (),
    repetition_penalty: float = 1.0,
    seed: int | None = None,
    cache: KeyValueCache | None = None,
    context: Sequence[int] = (),
    draft_model: Decoder | None = None,
    num_draft_tokens: int = 4,
) -> Iterator[Piece]:
    """Tokens that follow a prompt, as they are computed.

    Args:
        model, tokenizer: from :func:`load`.
        prompt: a text, or tokens.
        max_tokens: at most; the model's positions are another limit.
        sampler: from :func:`make_sampler`; the likeliest token if not given.
        stop: texts before which the answer ends.
        repetition_penalty: by which scores of tokens that were there are divided, or multiplied if they are
            negative. Source: N. Keskar et al., CTRL, 2019.
        seed: of the sampler's random numbers; those of the process if not given.
        cache: of a talk that goes on: `prompt` is what comes after its tokens.
        context: these tokens, of which the penalty and a draft model should know.
        draft_model: a small model of the same vocabulary, which drafts `num_draft_tokens` tokens at a time.
            The large one computes their scores in one step, and what is said is what it would say alone.

    Raises:
        ArgumentError: the prompt is empty or too long, a token is not in the vocabulary, or a number is out
            of its range.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> config = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> model = dl.llm.Decoder(config).eval()
        >>> [piece.reason for piece in dl.llm.stream_generate(model, None, [5, 6, 7], 3)]
        [None, None, 'length']
    """
    tokens = _prompt_tokens(model, tokenizer, prompt)
    if max_tokens < 1 or repetition_penalty <= 0:
        raise ArgumentError(
            f"[llm] expected at least one token and a penalty above 0, got max_tokens={max_tokens}, "
            f"repetition_penalty={repetition_penalty}"
        )
    known = 0 if cache is None else cache.position
    if (context or draft_model is not None) and len(context) != known:
        raise ArgumentError(
            f"[llm] the cache has {known} tokens, and context= {len(context)}: a draft model needs all of "
            "them"
        )
    if stop and tokenizer is None:
        raise ArgumentError("[llm] stop= needs a tokenizer: there is no text without one")
    return _stream(
        model,
        tokenizer,
        list(context),
        tokens,
        max_tokens,
        sampler or make_sampler(),
        tuple(stop),
        repetition_penalty,
        seed,
        cache,
        draft_model,
        num_draft_tokens,
    )


def generate(
    model: Decoder,
    tokenizer: Tokenizer | None,
    prompt: str | Sequence[int],
    max_tokens: int = 256,
    **settings: Any,
) -> Any:
    """The text that follows a prompt; without a tokenizer its tokens.

    Args:
        settings: those of :func:`stream_generate`, which has the errors, too.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> config = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> len(dl.llm.generate(dl.llm.Decoder(config).eval(), None, [5, 6, 7], 4))
        4
    """
    pieces = list(stream_generate(model, tokenizer, prompt, max_tokens, **settings))
    return [piece.token for piece in pieces] if tokenizer is None else "".join(p.text for p in pieces)


def _stream(
    model: Decoder,
    tokenizer: Tokenizer | None,
    context: list[int],
    tokens: list[int],
    max_tokens: int,
    sampler: Sampler,
    stop: tuple[str, ...],
    penalty: float,
    seed: int | None,
    cache: KeyValueCache | None,
    draft_model: Decoder | None,
    num_draft_tokens: int,
) -> Iterator[Piece]:
    whole = context + tokens
    drafts = None if draft_model is None else DraftedTokens(model, draft_model, whole, num_draft_tokens)
    positions = model.config.positions
    given, cache = cache, cache or model.make_cache(1, first_length(len(tokens) + max_tokens, positions))
    held = StopTexts(stop)
    text = None if tokenizer is None else TextStream(tokenizer)
    stops = frozenset() if tokenizer is None else tokenizer.stops
    generator = None if seed is None else Generator().manual_seed(seed)
    seen: dict[int, None] = dict.fromkeys(whole)
    try:
        cache = cache.grown(len(tokens), positions)
        scores = _after_prompt(model, tokens, cache)
        for number in range(max_tokens):
            drawing = contextlib.nullcontext() if generator is None else drawing_from(generator)
            with no_grad(), drawing:
                chosen = sampler(penalized(scores, seen, penalty))
                token = int(chosen.item())
            last = number + 1 == max_tokens or cache.position == positions
            told = "" if text is None else text.add(token)
            if token in stops:
                yield Piece(token, held.end(), "stop")
                return
            told, stopped = held.add(told + ("" if not last or text is None else text.end()))
            reason = "stop" if stopped else "length" if last else None
            yield Piece(token, told + (held.end() if reason == "length" else ""), reason)
            if reason is not None:
                return
            seen[token] = None
            made = None if drafts is None else drafts.after(token, cache)
            if made is not None:
                scores, cache = made
                continue
            cache = cache.grown(1, positions)
            with no_grad():
                scores = model.scores_after(chosen, cache)
    finally:
        if given is not None:
            given.keys, given.values, given.position = cache.keys, cache.values, cache.position


def _after_prompt(model: Decoder, tokens: list[int], cache: KeyValueCache) -> Tensor:
    """Scores (1, vocabulary) after a prompt, which is computed in pieces."""
    device = model.embed_tokens.weight.device
    with no_grad():
        for start in range(0, len(tokens), PIECE):
            scores: Tensor = model(tensor([tokens[start : start + PIECE]], device=device), cache, last=True)
        return scores[:, -1]


def penalized(scores: Tensor, seen: dict[int, None], penalty: float) -> Tensor:
    """Scores (1, vocabulary), of which those of tokens that were there are made worse."""
    if penalty == 1:
        return scores
    tokens = tensor(list(seen), device=scores.device)
    there = scores[:, tokens]
    scores = scores.clone()
    scores[:, tokens] = (there / penalty).where(there > 0, there * penalty)
    return scores


def _prompt_tokens(model: Decoder, tokenizer: Tokenizer | None, prompt: str | Sequence[int]) -> list[int]:
    """The tokens of a prompt.

    Raises:
        ArgumentError: there are none, or too many, or one is not in the vocabulary.
    """
    if isinstance(prompt, str):
        if tokenizer is None:
            raise ArgumentError("[llm] a text needs a tokenizer; give tokens")
        tokens = tokenizer.encode(prompt)
    else:
        tokens = [int(token) for token in prompt]
    config = model.config
    if not 0 < len(tokens) <= config.positions:
        raise ArgumentError(f"[llm] expected a prompt of 1 to {config.positions} tokens, got {len(tokens)}")
    wrong = next((token for token in tokens if not 0 <= token < config.vocabulary), None)
    if wrong is not None:
        raise ArgumentError(f"[llm] token {wrong} is not one of {config.vocabulary}")
    return tokens


class StopTexts:
    """Texts before which an answer ends: what may begin one is held back.

    Args:
        texts: to stop at.

    >>> stops = StopTexts(("END",))
    >>> stops.add("an E"), stops.add("a, EN"), stops.add("D of it")
    (('an ', False), ('Ea, ', False), ('', True))
    """

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = tuple(filter(None, texts))
        self._held = ""

    def add(self, text: str) -> tuple[str, bool]:
        """The text to be told, and whether the answer ends."""
        whole = self._held + text
        ends = [place for stop in self._texts if (place := whole.find(stop)) >= 0]
        if ends:
            self._held = ""
            return whole[: min(ends)], True
        kept = max(
            (n for stop in self._texts for n in range(1, len(stop)) if whole.endswith(stop[:n])), default=0
        )
        self._held = whole[len(whole) - kept :]
        return whole[: len(whole) - kept], False

    def end(self) -> str:
        """The text that was held back."""
        held, self._held = self._held, ""
        return held
