"""Completions for many at once: a step computes the next token of each, and between two they come and go.

Source: G.-I. Yu et al., Orca: A Distributed Serving System for Transformer-Based Generative Models, 2022.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, CancelledError, QueueFullError
from dl4all.llm.cache import KeyValueCache, first_length
from dl4all.llm.decoder import Decoder, TokenStep
from dl4all.llm.generation import PIECE, StopTexts, penalized
from dl4all.llm.samplers import Sampler, make_sampler
from dl4all.llm.tokenizer import TextStream, Tokenizer
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.random.generator import Generator, drawing_from
from dl4all.tensor.creation import tensor
from dl4all.tensor.tensor import Tensor

LEAST_PREFIX = 16
"""Tokens that two prompts begin with, from which on their keys are copied rather than computed again."""


@dataclass(frozen=True)
class CompletionRequest:
    """A prompt, and how it goes on.

    Attributes:
        tokens: of the prompt.
        max_tokens: of the answer; the model's positions are another limit.
        sampler: from :func:`make_sampler`; the likeliest token if not given.
        stop: texts before which it ends.
        seed: of its own random numbers; those of the process if not given.
        repetition_penalty: as :func:`stream_generate` has it.
        presence_penalty, frequency_penalty: taken off the scores of the answer's tokens, once, and for each
            time that they are there.
        top_logprobs: how many of the likeliest tokens are told with each token's own; None for none at all.

    Example:
        >>> import dl4all as dl
        >>> dl.llm.CompletionRequest([5, 6, 7], max_tokens=3).stop
        ()
    """

    tokens: Sequence[int]
    max_tokens: int = 256
    sampler: Sampler = field(default_factory=make_sampler)
    stop: tuple[str, ...] = ()
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int | None = None


class CompletionPiece(NamedTuple):
    """A token of a completion.

    Attributes:
        token: its number.
        text: what it adds.
        reason: why nothing follows: ``"stop"`` or ``"length"``; None where something does.
        logprobs: logarithms of probabilities: of the token, and the likeliest ones by their tokens.

    Example:
        >>> import dl4all as dl
        >>> dl.llm.CompletionPiece(17, " the", None).reason is None
        True
    """

    token: int
    text: str
    reason: str | None
    logprobs: tuple[float, dict[int, float]] | None = None


Tell = Callable[[CompletionPiece | Exception], None]


class Completion:
    """A completion that was asked for; from :meth:`CompletionBatcher.submit`.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> config = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> with dl.llm.CompletionBatcher(dl.llm.Decoder(config).eval(), None) as batcher:
        ...     made = batcher.submit(dl.llm.CompletionRequest([5, 6]), lambda piece: None)
        ...     made.cancel()
        >>> isinstance(made, dl.llm.Completion), made.cancelled
        (True, True)
    """

    def __init__(self, request: CompletionRequest, tell: Tell, tokenizer: Tokenizer | None) -> None:
        self.request, self.tell = request, tell
        self.cancelled = False
        self._text = None if tokenizer is None else TextStream(tokenizer)
        self._held = StopTexts(request.stop)
        self._stops = frozenset() if tokenizer is None else tokenizer.stops
        self._generator = None if request.seed is None else Generator().manual_seed(request.seed)
        self._count = 0
        self._answer: Counter[int] = Counter()
        self._seen: dict[int, None] = dict.fromkeys(request.tokens)

    def cancel(self) -> None:
        """End it: its place is free from the next step on. From any thread."""
        self.cancelled = True

    def chosen(self, scores: Tensor) -> Tensor:
        """The next token (1,) by scores (1, vocabulary)."""
        request = self.request
        scores = penalized(scores, self._seen, request.repetition_penalty)
        if self._answer and (request.presence_penalty or request.frequency_penalty):
            tokens = tensor(list(self._answer), device=scores.device)
            counts = tensor([float(n) for n in self._answer.values()], device=scores.device)
            taken = counts * request.frequency_penalty + request.presence_penalty
            scores = scores.index_add(1, tokens, -taken.to(scores.dtype).reshape(1, -1))
        drawing = contextlib.nullcontext() if self._generator is None else drawing_from(self._generator)
        with drawing:
            return request.sampler(scores)

    def add(self, token: int, logprobs: tuple[float, dict[int, float]] | None, room: bool) -> bool:
        """Tell a token; returns whether something follows.

        Args:
            room: whether there is a position for another one.
        """
        self._count += 1
        self._seen[token] = None
        self._answer[token] += 1
        last = self._count >= self.request.max_tokens or not room
        told = "" if self._text is None else self._text.add(token)
        if token in self._stops:
            self.tell(CompletionPiece(token, self._held.end(), "stop", logprobs))
            return False
        told, stopped = self._held.add(told + ("" if not last or self._text is None else self._text.end()))
        reason = "stop" if stopped else "length" if last else None
        told += self._held.end() if reason == "length" else ""
        self.tell(CompletionPiece(token, told, reason, logprobs))
        return reason is None


@dataclass
class _Slot:
    """A sequence of the cache.

    Attributes:
        known: tokens whose keys are in the cache; those of an ended completion stay, for a prompt like it.
        next: tokens that are to be computed: of the prompt, or the one that was chosen last.
    """

    known: list[int] = field(default_factory=list)
    next: list[int] = field(default_factory=list)
    completion: Completion | None = None


class CompletionBatcher:
    """Computes completions together, in a thread of its own.

    Prompts are computed in pieces, one between two steps, so that nobody waits long for another's prompt.
    What a prompt has in common with one that is still in the cache is not computed again.

    Args:
        model, tokenizer: from :func:`load`.
        slots: completions at a time; others wait.
        most_waiting: of these.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> config = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> with dl.llm.CompletionBatcher(dl.llm.Decoder(config).eval(), None) as batcher:
        ...     pieces = list(batcher.stream(dl.llm.CompletionRequest([5, 6, 7], max_tokens=3)))
        >>> [piece.reason for piece in pieces]
        [None, None, 'length']
    """

    def __init__(
        self, model: Decoder, tokenizer: Tokenizer | None, *, slots: int = 8, most_waiting: int = 256
    ) -> None:
        if slots < 1 or most_waiting < 1:
            raise ArgumentError(
                f"[llm] expected at least one slot and one that waits, got {slots}, {most_waiting}"
            )
        self.model, self.tokenizer = model, tokenizer
        self._slots = [_Slot() for _ in range(slots)]
        self._most_waiting = most_waiting
        self._waiting: deque[Completion] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._steps: dict[int, TokenStep] = {}
        self._cache = model.make_cache(slots, first_length(0, model.config.positions))
        self._thread = threading.Thread(target=self._run, name="completions", daemon=True)
        self._thread.start()

    def submit(self, request: CompletionRequest, tell: Tell) -> Completion:
        """Have a completion computed.

        Args:
            tell: gets each piece, in the batcher's thread, or the error that ended it.

        Raises:
            ArgumentError: the prompt is empty or too long, or a token or a number is out of its range.
            QueueFullError: too many wait already.
            CancelledError: the batcher was stopped.
        """
        config = self.model.config
        if not 0 < len(request.tokens) <= config.positions:
            raise ArgumentError(
                f"[llm] expected a prompt of 1 to {config.positions} tokens, got {len(request.tokens)}"
            )
        wrong = next((token for token in request.tokens if not 0 <= token < config.vocabulary), None)
        if wrong is not None:
            raise ArgumentError(f"[llm] token {wrong} is not one of {config.vocabulary}")
        if request.max_tokens < 1 or request.repetition_penalty <= 0:
            raise ArgumentError("[llm] expected at least one token, and a repetition_penalty above 0")
        if request.stop and self.tokenizer is None:
            raise ArgumentError("[llm] stop= needs a tokenizer: there is no text without one")
        made = Completion(request, tell, self.tokenizer)
        with self._changed:
            if self._stopping:
                raise CancelledError("[llm] the batcher was stopped")
            if len(self._waiting) >= self._most_waiting:
                raise QueueFullError(f"[llm] {self._most_waiting} completions wait already; ask later")
            self._waiting.append(made)
            self._changed.notify()
        return made

    def stream(self, request: CompletionRequest) -> Iterator[CompletionPiece]:
        """The pieces of a completion, for a thread that waits for them; :meth:`submit` has the errors."""
        arrived = threading.Condition()
        pieces: deque[CompletionPiece | Exception] = deque()

        def tell(piece: CompletionPiece | Exception) -> None:
            with arrived:
                pieces.append(piece)
                arrived.notify()

        made = self.submit(request, tell)
        try:
            reason = None
            while reason is None:
                with arrived:
                    arrived.wait_for(lambda: bool(pieces))
                    piece = pieces.popleft()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
                reason = piece.reason
        finally:
            made.cancel()

    @property
    def active(self) -> int:
        """Completions that are being computed."""
        return sum(slot.completion is not None for slot in self._slots)

    @property
    def waiting(self) -> int:
        """Completions that wait for a slot."""
        return len(self._waiting)

    def stop(self) -> None:
        """End: what was asked for is computed first."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def __enter__(self) -> CompletionBatcher:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._waiting or self.active)
                if self._stopping and not self._waiting and not self.active:
                    return
            try:
                with no_grad():
                    self._turn()
            except Exception as error:  # noqa: BLE001  # of the device, or of memory: whoever waits is told
                self._end_all(error)

    def _end_all(self, error: Exception) -> None:
        for slot in self._slots:
            completion, slot.completion = slot.completion, None
            slot.known, slot.next = [], []
            if completion is not None:
                completion.tell(error)

    def _turn(self) -> None:
        """A piece of one prompt, and the next token of all others."""
        for slot in self._slots:
            if slot.completion is not None and slot.completion.cancelled:
                self._free(slot)
        self._admit()
        prompt = next(
            (n for n, slot in enumerate(self._slots) if len(slot.next) > 1 or self._is_new(slot)), None
        )
        if prompt is not None:
            self._compute_prompt(prompt)
        ready = [n for n, slot in enumerate(self._slots) if len(slot.next) == 1 and not self._is_new(slot)]
        if ready:
            self._compute_tokens(ready)

    @staticmethod
    def _is_new(slot: _Slot) -> bool:
        """Whether the slot's prompt was not computed to its end."""
        made = slot.completion
        return made is not None and len(slot.known) < len(made.request.tokens)

    @staticmethod
    def _free(slot: _Slot) -> None:
        slot.completion, slot.next = None, []

    def _admit(self) -> None:
        """Give free slots to completions that wait: each the one that knows most of its prompt."""
        while True:
            free = [slot for slot in self._slots if slot.completion is None]
            with self._changed:
                while self._waiting and self._waiting[0].cancelled:
                    self._waiting.popleft()
                if not free or not self._waiting:
                    return
                completion = self._waiting.popleft()
            tokens = list(completion.request.tokens)
            common = partial(_common, tokens)
            slot = max(free, key=lambda one: common(one.known))
            known = common(slot.known)
            if known < LEAST_PREFIX:  # the first one, so that steps compute few sequences
                slot = free[0]
                known = common(slot.known)
            other = max(self._slots, key=lambda one: common(one.known))
            shared = common(other.known)
            slot.completion = completion  # whatever comes now, it is told
            if shared >= known + LEAST_PREFIX:
                self._copy(self._slots.index(other), self._slots.index(slot), shared)
                known = shared
            slot.known, slot.next = tokens[:known], tokens[known:]

    def _copy(self, source: int, target: int, count: int) -> None:
        for kept in (*self._cache.keys, *self._cache.values):
            kept[target, :, :count] = kept[source, :, :count]

    def _make_room(self, tokens: int) -> None:
        """Let each sequence have so many tokens."""
        if tokens > self._cache.length:
            self._cache.position = max(len(slot.known) for slot in self._slots)
            self._cache = self._cache.grown(tokens - self._cache.position, self.model.config.positions)
            self._steps.clear()

    def _compute_prompt(self, number: int) -> None:
        slot = self._slots[number]
        piece = slot.next[:PIECE]
        self._make_room(len(slot.known) + len(piece))
        rows = slice(number, number + 1)
        cache = KeyValueCache(
            [kept[rows] for kept in self._cache.keys],
            [kept[rows] for kept in self._cache.values],
            len(slot.known),
        )
        idx = tensor([piece], device=self._cache.keys[0].device)
        scores = self.model(idx, cache, last=True)[:, -1]
        slot.known += piece
        slot.next = slot.next[len(piece) :]
        if not slot.next:
            self._choose([number], scores)

    def _compute_tokens(self, ready: list[int]) -> None:
        self._make_room(1 + max(len(slot.known) for slot in self._slots if slot.next))
        count = 1 << max(ready).bit_length()  # a power of two, so that there are few steps
        count = min(count, len(self._slots))
        used = self._slots[:count]
        # A slot without a next token computes at its next free place, of which nobody takes notice.
        last = self._cache.length - 1
        for slot in used:
            if len(slot.known) > last and not slot.next:
                slot.known = slot.known[:last]
        device = self._cache.keys[0].device
        idx = tensor(
            [[slot.next[0] if number in ready else 0] for number, slot in enumerate(used)], device=device
        )
        at = tensor([[len(slot.known)] for slot in used], device=device)
        keys, values = ([kept[:count] for kept in both] for both in (self._cache.keys, self._cache.values))
        cache = KeyValueCache(keys, values)
        longest = 1 + max(len(slot.known) for slot in used if slot.next)
        scores = self.model.step_scores(idx, at, cache, longest, self._steps)[:, -1]
        for number in ready:
            slot = self._slots[number]
            slot.known += slot.next
            slot.next = []
        index = tensor(ready, device=device)
        self._choose(ready, scores if len(ready) == count else scores[index])

    def _choose(self, numbers: list[int], scores: Tensor) -> None:
        """Tell the next token of some slots, by scores (N, vocabulary): one read for all."""
        slots = [self._slots[number] for number in numbers]
        completions = [slot.completion for slot in slots]
        chosen = [
            completion.chosen(scores[row : row + 1])
            for row, completion in enumerate(completions)
            if completion is not None
        ]
        tokens = (cat(chosen) if len(chosen) > 1 else chosen[0]).tolist()
        positions = self.model.config.positions
        for row, (slot, token) in enumerate(zip(slots, tokens, strict=True)):
            completion = slot.completion
            assert completion is not None
            told = _logprobs(scores[row], token, completion.request.top_logprobs)
            slot.next = [token]
            if not completion.add(token, told, len(slot.known) < positions):
                self._free(slot)


def _common(tokens: list[int], known: list[int]) -> int:
    """The number of tokens that both begin with, without the prompt's last one, which is computed always.

    >>> _common([1, 2, 3], [1, 2, 3, 4]), _common([1, 2, 3], [1, 5])
    (2, 1)
    """
    most = min(len(tokens) - 1, len(known))
    return next((n for n in range(most) if tokens[n] != known[n]), most)


def _logprobs(scores: Tensor, token: int, top: int | None) -> tuple[float, dict[int, float]] | None:
    """Logarithms of the probabilities of a token and of the likeliest ones, by the model's own scores."""
    if top is None:
        return None
    logs = scores.float().log_softmax(-1).numpy()
    order = np.argsort(-logs, kind="stable")[:top]
    return float(logs[token]), {int(number): float(logs[number]) for number in order}
