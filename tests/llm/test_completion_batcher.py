"""Completions for many at once: the tokens of each alone, shared prefixes, free slots, and errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, CancelledError, QueueFullError, ShapeError
from dl4all.llm import Completion, CompletionBatcher, CompletionPiece, CompletionRequest
from tests.llm.speaker import byte_tokens

pytestmark = pytest.mark.usefixtures("deadline")
SIZES = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 600,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "gemma2": {"sliding_window": 8, "head_dim": 16},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 600},
    "mixtral": {"num_local_experts": 4},
}
LENGTHS = (3, 40, 17, 5, 300, 9, 1, 33)


def model_of(family: str = "llama", device: str = "cpu", vocabulary: int = 97) -> dl.llm.Decoder:
    settings = {**SIZES, "model_type": family, **FAMILIES[family], "vocab_size": vocabulary}
    dl.manual_seed(1)
    model = dl.llm.Decoder(dl.llm.decoder_config(settings))
    with dl.no_grad():
        for p in model.parameters():
            p.copy_(p + dl.randn_like(p) * 0.1)
    return model.to(device).eval()


def prompts(*lengths: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 97, n).tolist() for n in lengths]


def tokens(pieces: Iterator[CompletionPiece]) -> list[int]:
    return [piece.token for piece in pieces]


def at_once(batcher: CompletionBatcher, requests: list[CompletionRequest]) -> list[Any]:
    """The pieces of all, each asked for by a thread of its own."""
    found: list[Any] = [None] * len(requests)

    def ask(number: int) -> None:
        try:
            found[number] = list(batcher.stream(requests[number]))
        except Exception as error:  # noqa: BLE001  # the test looks at it
            found[number] = error

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("family", list(FAMILIES))
def test_many_say_what_each_says_alone(family: str) -> None:
    check_many(model_of(family), prompts(*LENGTHS), 14)


def test_many_on_each_device(device: str) -> None:
    check_many(model_of(device=device), prompts(3, 40, 9), 4)


def check_many(model: dl.llm.Decoder, given: list[list[int]], count: int) -> None:
    expected = [dl.llm.generate(model, None, prompt, count) for prompt in given]
    with CompletionBatcher(model, None, slots=3) as batcher:
        found = at_once(batcher, [CompletionRequest(prompt, count) for prompt in given])
    assert [[piece.token for piece in pieces] for pieces in found] == expected
    assert all(pieces[-1].reason == "length" for pieces in found)


def test_what_prompts_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of()
    start, *ends = prompts(60, 4, 5, 6)
    expected = [dl.llm.generate(model, None, start + end, 5) for end in ends]
    computed: list[int] = []
    forward = dl.llm.Decoder.forward

    def counted(self: dl.llm.Decoder, idx: Any, *given: Any, **settings: Any) -> Any:
        computed.append(idx.shape[1])
        return forward(self, idx, *given, **settings)

    monkeypatch.setattr(dl.llm.Decoder, "forward", counted)
    with CompletionBatcher(model, None, slots=4) as batcher:
        for end, tokens_of in zip(ends, expected, strict=True):
            assert tokens(batcher.stream(CompletionRequest(start + end, 5))) == tokens_of
        found = at_once(batcher, [CompletionRequest(start + end, 5) for end in ends])
        assert [[piece.token for piece in pieces] for pieces in found] == expected
    assert computed[0] == 64
    assert sum(computed[1:]) <= 5 + 6 + 4 + 5 + 6


def test_texts_and_numbers_are_those_of_a_stream() -> None:
    tokenizer = dl.llm.Tokenizer(byte_tokens(), stops=[255])
    model = model_of(vocabulary=260)
    prompt = tokenizer.encode("hello")
    whole = dl.llm.generate(model, tokenizer, prompt, 40)
    stop = whole[5:7]
    cases: list[tuple[float, dict[str, Any]]] = [
        (0.0, {}), (0.0, {"stop": (stop,)}), (0.0, {"repetition_penalty": 1.4}), (1.0, {"seed": 3})
    ]  # fmt: skip
    for temp, settings in cases:
        sampler = dl.llm.make_sampler(temp)
        alone = list(dl.llm.stream_generate(model, tokenizer, prompt, 40, sampler=sampler, **settings))
        with CompletionBatcher(model, tokenizer) as batcher:
            request = CompletionRequest(prompt, 40, sampler, **settings)
            pieces = list(batcher.stream(request))
        assert [piece[:3] for piece in pieces] == [tuple(piece) for piece in alone]


def test_probabilities_and_penalties() -> None:
    model = model_of()
    (prompt,) = prompts(7)
    with CompletionBatcher(model, None) as batcher:
        pieces = list(batcher.stream(CompletionRequest(prompt, 8, top_logprobs=3)))
        with dl.no_grad():
            idx = dl.tensor([prompt + [piece.token for piece in pieces[:-1]]])
            logs = model(idx)[0, len(prompt) - 1 :].log_softmax(-1).numpy()
        for piece, row in zip(pieces, logs, strict=True):
            assert piece.logprobs is not None
            own, top = piece.logprobs
            assert own == pytest.approx(row[piece.token], abs=1e-4)
            assert list(top) == np.argsort(-row)[:3].tolist()
            assert next(iter(top.values())) == pytest.approx(own)
    chosen: list[Any] = []

    def sampler(given: Any) -> Any:
        chosen.append(given)
        return given.argmax(-1)

    request = CompletionRequest([5], 1, sampler=sampler, frequency_penalty=1.5, presence_penalty=0.5)
    made = Completion(request, print, None)  # of no batcher, whose thread would count tokens, too
    made._answer.update([3, 3, 4])
    made.chosen(dl.zeros(1, 97))
    assert chosen[0][0, [3, 4, 5]].tolist() == [-3.5, -2.0, 0.0]


def test_whoever_leaves_makes_room() -> None:
    model = model_of()
    given = prompts(5, 6, 7)
    with CompletionBatcher(model, None, slots=1) as batcher:
        first: Any = batcher.stream(CompletionRequest(given[0], 500))
        next(first)
        waiting = batcher.submit(CompletionRequest(given[1], 500), lambda piece: pytest.fail(str(piece)))
        waiting.cancel()
        begun = threading.Event()
        told: list[Any] = []

        def tell(piece: CompletionPiece | Exception) -> None:
            told.append(piece)
            begun.set()

        last = batcher.submit(CompletionRequest(given[2], 500), tell)
        assert not begun.wait(0.05)
        first.close()
        assert begun.wait(30)
        assert told[0].token == dl.llm.generate(model, None, given[2], 1)[0]
        last.cancel()
    assert (batcher.active, batcher.waiting) == (0, 0)
    with pytest.raises(CancelledError, match="was stopped"):
        batcher.submit(CompletionRequest([1]), print)


def test_caches_grow_up_to_the_model() -> None:
    model = model_of()
    long, short = prompts(590, 250)
    count = 30
    expected = [dl.llm.generate(model, None, prompt, count) for prompt in (long, short)]
    with CompletionBatcher(model, None, slots=2) as batcher:
        found = at_once(batcher, [CompletionRequest(prompt, count) for prompt in (long, short)])
    assert [[piece.token for piece in pieces] for pieces in found] == expected
    assert len(expected[0]) == 600 - 590 + 1


def test_an_error_is_told_to_all_and_the_next_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of()
    given = prompts(5, 6)
    with CompletionBatcher(model, None) as batcher:
        expected = [tokens(batcher.stream(CompletionRequest(prompt, 4))) for prompt in given]
        scores = dl.llm.Decoder.scores
        monkeypatch.setattr(dl.llm.Decoder, "scores", lambda *given: model.layers[99])
        found = at_once(batcher, [CompletionRequest(prompt, 4) for prompt in given])
        assert all(isinstance(error, IndexError) for error in found)
        monkeypatch.setattr(dl.llm.Decoder, "scores", scores)
        assert [tokens(batcher.stream(CompletionRequest(prompt, 4))) for prompt in given] == expected


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (CompletionRequest([]), "a prompt of 1 to 600 tokens, got 0"),
        (CompletionRequest([1] * 601), "a prompt of 1 to 600 tokens, got 601"),
        (CompletionRequest([97]), "token 97 is not one of 97"),
        (CompletionRequest([-1]), "token -1 is not one of 97"),
        (CompletionRequest([1], 0), "at least one token"),
        (CompletionRequest([1], repetition_penalty=0.0), "a repetition_penalty above 0"),
        (CompletionRequest([1], stop=("x",)), "stop= needs a tokenizer"),
    ],
)
def test_what_cannot_be_asked(request_: CompletionRequest, match: str) -> None:
    with (
        CompletionBatcher(model_of(), None, slots=1, most_waiting=1) as batcher,
        pytest.raises(ArgumentError, match=match),
    ):
        batcher.submit(request_, print)


def test_too_many_wait() -> None:
    with pytest.raises(ArgumentError, match="at least one slot"):
        CompletionBatcher(model_of(), None, slots=0)
    with CompletionBatcher(model_of(), None, slots=1, most_waiting=2) as batcher:
        first: Any = batcher.stream(CompletionRequest([1], 500))
        next(first)
        made = [batcher.submit(CompletionRequest([2], 1), lambda piece: None) for _ in range(2)]
        with pytest.raises(QueueFullError, match="2 completions wait already"):
            batcher.submit(CompletionRequest([3], 1), print)
        for one in made:
            one.cancel()
        first.close()


def test_positions_of_each_sequence_are_those_of_all() -> None:
    """A step of sequences at unlike positions gives the scores of each alone."""
    model = model_of("gemma2")
    given = prompts(3, 9, 20)
    cache = model.make_cache(3, 32)
    with dl.no_grad():
        alone = [model(dl.tensor([prompt]))[:, -1] for prompt in given]
        for row, prompt in enumerate(given):
            of_row = dl.llm.KeyValueCache(
                [k[row : row + 1] for k in cache.keys], [v[row : row + 1] for v in cache.values]
            )
            model(dl.tensor([prompt[:-1]]), of_row) if prompt[:-1] else None
        idx = dl.tensor([[prompt[-1]] for prompt in given])
        at = dl.tensor([[len(prompt) - 1] for prompt in given])
        both = model.scores(idx, at, cache, cache.length)[:, -1]
        with pytest.raises((ArgumentError, ShapeError, IndexError)):
            model.scores(idx, at + 40, cache, cache.length)
    np.testing.assert_allclose(both.numpy(), dl.cat(alone).numpy(), rtol=1e-4, atol=1e-4)
