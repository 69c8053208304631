"""Drafts of a small model: what is said stays the same, in fewer steps of the large one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from tests.llm.speaker import byte_tokens
from tests.llm.test_completion_batcher import model_of, prompts


def near(model: dl.llm.Decoder, distance: float) -> dl.llm.Decoder:
    """A copy whose weights are a little different."""
    made = copy.deepcopy(model)
    dl.manual_seed(5)
    with dl.no_grad():
        for p in made.parameters():
            p.copy_(p + dl.randn_like(p) * distance)
    return made


@pytest.mark.parametrize("family", ["llama", "gemma2", "mixtral"])
def test_drafts_change_nothing(family: str) -> None:
    for distance in (0.0, 0.02, 1.0):
        model = model_of(family)
        draft = near(model, distance)
        for length, seed in ((3, None), (300, 3), (590, None)) if family == "llama" else ((9, 3),):
            (prompt,) = prompts(length)
            sampler = dl.llm.make_sampler(0.0 if seed is None else 1.0)
            settings: dict[str, Any] = {"sampler": sampler, "seed": seed, "repetition_penalty": 1.1}
            alone = dl.llm.generate(model, None, prompt, 30, **settings)
            for count in (1, 4):
                drafted = dl.llm.generate(
                    model, None, prompt, 30, draft_model=draft, num_draft_tokens=count, **settings
                )
                assert drafted == alone


def test_drafts_on_each_device(device: str) -> None:
    model, (prompt,) = model_of(device=device), prompts(9)
    alone = dl.llm.generate(model, None, prompt, 8)
    assert dl.llm.generate(model, None, prompt, 8, draft_model=near(model, 0.02)) == alone
    assert dl.llm.generate(model, None, prompt, 8, draft_model=model_of()) == alone


@pytest.mark.parametrize("count", [1, 4])
def test_right_drafts_save_steps(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompt,) = model_of(), prompts(9)
    steps: list[int] = []  # tokens of each
    step_scores = dl.llm.Decoder.step_scores

    def noted(self: dl.llm.Decoder, idx: dl.Tensor, *given: Any) -> dl.Tensor:
        steps.extend([idx.shape[1]] * (self is model))
        return step_scores(self, idx, *given)

    monkeypatch.setattr(dl.llm.Decoder, "step_scores", noted)
    tokens = dl.llm.generate(
        model, None, prompt, 41, draft_model=copy.deepcopy(model), num_draft_tokens=count
    )
    assert len(tokens) == 41
    assert steps == [count + 1] * (40 // (count + 1))


def test_stops_and_caches() -> None:
    tokenizer = dl.llm.Tokenizer(byte_tokens(), stops=[255])
    model = model_of(vocabulary=260)
    whole = dl.llm.generate(model, tokenizer, "hello", 30)
    cache = model.make_cache(1, 256)
    pieces = list(
        dl.llm.stream_generate(
            model, tokenizer, "hello", 30, stop=[whole[7:9]], draft_model=model, cache=cache
        )
    )
    assert "".join(piece.text for piece in pieces) == whole[: whole.index(whole[7:9])]
    assert cache.position == 5 + len(pieces) - 1, "tokens of a draft do not count"
    following = dl.llm.generate(model, None, [pieces[-1].token], 5, cache=cache)
    tokens = [*tokenizer.encode("hello"), *(piece.token for piece in pieces)]
    assert following == dl.llm.generate(model, None, tokens, 5)
    known = [*tokens, *following][: cache.position]
    last = dl.llm.generate(model, None, [65], 9, cache=cache, context=known, draft_model=near(model, 0.02))
    assert last == dl.llm.generate(model, None, [*known, 65], 9)
    with pytest.raises(ArgumentError, match=r"has \d+ tokens, and context= 0: a draft model needs all"):
        dl.llm.generate(model, tokenizer, "x", 5, cache=cache, draft_model=model)
    with pytest.raises(ArgumentError, match="the same vocabulary and at least one token of a draft, got 97"):
        dl.llm.generate(model, tokenizer, "x", 5, draft_model=model_of())
    with pytest.raises(ArgumentError, match="num_draft_tokens=0"):
        dl.llm.generate(model, tokenizer, "x", 5, draft_model=model, num_draft_tokens=0)
