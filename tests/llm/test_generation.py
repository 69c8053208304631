"""Tokens one after the other: those of transformers, by any sampler, in whole characters, in talks."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
import transformers as hf

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.graph.run.compiled import CompileWarning
from dl4all.llm.generation import StopTexts
from dl4all.llm.tokenizer import TextStream
from tests.llm.models import written
from tests.llm.speaker import TEMPLATE, byte_tokens, speaker_config

PROMPT = [5, 6, 7, 8, 9]


@pytest.fixture(scope="module")
def tokenizer() -> dl.llm.Tokenizer:
    """Bytes as tokens, and marks of talks."""
    return dl.llm.Tokenizer(byte_tokens(), TEMPLATE, {"bos_token": "<s>"}, [259])


@pytest.fixture(scope="module")
def speaker() -> dl.llm.Decoder:
    """A model of these tokens with 512 positions."""
    dl.manual_seed(0)
    return dl.llm.Decoder(dl.llm.decoder_config(speaker_config(512))).to("cpu").eval()


@pytest.mark.parametrize("device", ["cpu", "vulkan:0"])
@pytest.mark.parametrize("name", ["llama", "gemma2", "mixtral"])
def test_the_likeliest_tokens_are_those_of_transformers(tmp_path: Path, name: str, device: str) -> None:
    theirs = written(name, tmp_path)
    theirs.generation_config.eos_token_id = None
    count = 64 - len(PROMPT)
    expected = theirs.generate(torch.tensor([PROMPT]), max_new_tokens=count, do_sample=False, pad_token_id=0)[
        0, len(PROMPT) :
    ].tolist()
    model, _ = dl.llm.load(tmp_path, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        assert dl.llm.generate(model, None, PROMPT, count) == expected
        assert dl.llm.generate(model, None, PROMPT, 9) == expected[:9]


def test_two_hundred_tokens_and_few_traces(speaker: dl.llm.Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    plain = dl.llm.Decoder.head

    def counting(self: dl.llm.Decoder, x: dl.Tensor) -> dl.Tensor:
        calls.append(x.shape[:2])
        return plain(self, x)

    monkeypatch.setattr(dl.llm.Decoder, "head", counting)
    tokens = dl.llm.generate(copy.deepcopy(speaker), None, PROMPT, 500)
    assert len(tokens) == 500
    assert calls.count((1, 1)) <= 1 + 2, "after the prompt's and two traced ones come replays"
    whole = PROMPT + tokens
    with dl.no_grad():
        expected = speaker(dl.tensor([whole[:205]])).argmax(-1).numpy()[0, len(PROMPT) - 1 : -1].tolist()
    assert tokens[:200] == expected


def test_changed_models_are_not_those_of_before(speaker: dl.llm.Decoder) -> None:
    """Steps that were compiled belong to their model, and to the weights that it has."""

    def check(model: dl.llm.Decoder) -> list[int]:
        tokens: list[int] = dl.llm.generate(model, None, PROMPT, 30)
        with dl.no_grad():
            whole = dl.tensor([PROMPT + tokens], device=model.embed_tokens.weight.device)
            expected = model(whole).argmax(-1).numpy()[0, len(PROMPT) - 1 : -1].tolist()
        assert tokens == expected
        return tokens

    before = check(speaker)
    for copied in (copy.deepcopy(speaker), pickle.loads(pickle.dumps(speaker))):
        assert check(copied) == before
        with dl.no_grad():
            for parameter in copied.parameters():
                parameter.copy_(dl.randn(*parameter.shape))
        assert check(copied) != before
        assert check(speaker) == before
        dl.llm.get_lora_model(copied, dl.llm.LoraConfig(target_modules="all-linear"))
        with dl.no_grad():
            for name, parameter in copied.named_parameters():
                if "lora_B" in name:
                    parameter.copy_(dl.randn(*parameter.shape))
        adapted = check(copied)
        assert check(dl.llm.merge(copied)) == adapted
        dl.quantization.quantize_(copied, dl.quantization.Int8WeightOnlyConfig())
        check(copied)
        check(copied.to("vulkan:0"))


def test_long_prompts_are_computed_in_pieces(
    speaker: dl.llm.Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = np.random.default_rng(0).integers(0, 200, 300).tolist()
    whole = dl.llm.generate(speaker, None, prompt, 5)
    monkeypatch.setattr("dl4all.llm.generation.PIECE", 64)
    assert dl.llm.generate(speaker, None, prompt, 5) == whole


@pytest.mark.parametrize("device", ["cpu", "vulkan:0"])
def test_samplers_draw_what_scores_say(device: str) -> None:
    scores = np.random.default_rng(0).normal(0, 2, 12).astype(np.float32)
    rows = dl.tensor(np.tile(scores, (4000, 1)), device=device)
    ids, logits = torch.zeros(1, 1, dtype=torch.long), torch.tensor(scores[None])
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        ({"temp": 1.0}, []),
        ({"temp": 0.5, "top_k": 4}, [hf.TemperatureLogitsWarper(0.5), hf.TopKLogitsWarper(4)]),
        ({"temp": 1.3, "top_p": 0.7}, [hf.TemperatureLogitsWarper(1.3), hf.TopPLogitsWarper(0.7)]),
        ({"temp": 1.0, "min_p": 0.1}, [hf.MinPLogitsWarper(0.1)]),
        ({"temp": 2.0, "top_k": 5, "top_p": 0.9}, [
            hf.TemperatureLogitsWarper(2.0), hf.TopKLogitsWarper(5), hf.TopPLogitsWarper(0.9)
        ]),
    ]  # fmt: skip
    for settings, warpers in cases:
        warped = logits
        for warper in warpers:
            warped = warper(ids, warped.clone())
        expected = torch.softmax(warped, -1)[0].numpy().astype(np.float64)
        dl.manual_seed(3)
        drawn = dl.llm.make_sampler(**settings)(rows).numpy()
        counts = np.bincount(drawn, minlength=12)
        possible = expected > 0
        assert not counts[~possible].any(), settings
        assert scipy.stats.chisquare(counts[possible], expected[possible] / expected.sum() * 4000)[1] > 1e-3
    assert dl.llm.make_sampler()(rows[:2]).tolist() == [int(scores.argmax())] * 2


def test_seeds_and_penalties(speaker: dl.llm.Decoder) -> None:
    sampler = dl.llm.make_sampler(temp=1.5)
    first, again, other = (
        dl.llm.generate(speaker, None, PROMPT, 20, sampler=sampler, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other
    seen: list[Any] = []

    def watching(scores: dl.Tensor) -> dl.Tensor:
        seen.append(scores.numpy())
        return scores.argmax(-1)

    tokens = dl.llm.generate(speaker, None, PROMPT, 3, sampler=watching, repetition_penalty=1.7)
    with dl.no_grad():
        plain = speaker(dl.tensor([PROMPT + tokens[:2]])).numpy()[:, -1]
    theirs = hf.RepetitionPenaltyLogitsProcessor(1.7)
    expected = theirs(torch.tensor([PROMPT + tokens[:2]]), torch.tensor(plain)).numpy()
    np.testing.assert_allclose(seen[2], expected, rtol=1e-4, atol=1e-5)
    assert np.abs(plain - expected).max() > 1e-3


@pytest.mark.parametrize(
    "text", ["plain", "naïve 文字 👩‍👩‍👧 end", "\N{REPLACEMENT CHARACTER}x", "  two  spaces "]
)
def test_text_comes_in_whole_characters(tokenizer: dl.llm.Tokenizer, text: str) -> None:
    stream = TextStream(tokenizer)
    parts = [stream.add(token) for token in tokenizer.encode(text)]
    assert "".join(parts) + stream.end() == text
    whole = text.replace("\N{REPLACEMENT CHARACTER}", "")
    assert not any("\N{REPLACEMENT CHARACTER}" in part for part in parts) or whole != text


def test_half_a_character_is_told_at_the_end(tokenizer: dl.llm.Tokenizer) -> None:
    stream = TextStream(tokenizer)
    assert [stream.add(token) for token in tokenizer.encode("a👩")[:-1]] == ["a", "", "", ""]
    assert stream.end() == "\N{REPLACEMENT CHARACTER}"


def test_stop_texts_in_any_pieces() -> None:
    text, stops = "one END two", ("END", "EN!", "two")
    for cuts in itertools.combinations(range(1, len(text)), 2):
        parts = [text[a:b] for a, b in itertools.pairwise((0, *cuts, len(text)))]
        stopping, told = StopTexts(stops), ""
        for part in parts:
            more, ended = stopping.add(part)
            told += more
            if ended:
                break
        assert ended
        assert told == "one "


def test_answers_end_at_stops(speaker: dl.llm.Decoder, tokenizer: dl.llm.Tokenizer) -> None:
    whole = dl.llm.generate(speaker, tokenizer, "hello", 40, sampler=dl.llm.make_sampler(2.0), seed=5)
    stop = whole[10:12]
    assert stop.strip()
    options: dict[str, Any] = {"sampler": dl.llm.make_sampler(2.0), "seed": 5, "stop": [stop]}
    assert dl.llm.generate(speaker, tokenizer, "hello", 40, **options) == whole[: whole.index(stop)]
    pieces = list(dl.llm.stream_generate(speaker, tokenizer, "hello", 40, **options))
    assert [piece.reason for piece in pieces] == [None] * (len(pieces) - 1) + ["stop"]

    def ending(scores: dl.Tensor) -> dl.Tensor:
        return dl.tensor([next(iter(tokenizer.stops))])

    (last,) = dl.llm.stream_generate(speaker, tokenizer, "hello", 5, sampler=ending)
    assert (last.text, last.reason) == ("", "stop")


def test_a_talk_computes_nothing_twice(
    speaker: dl.llm.Decoder, tokenizer: dl.llm.Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    plain = dl.llm.Decoder.forward

    def counting(self: dl.llm.Decoder, idx: dl.Tensor, cache: Any = None, **named: Any) -> dl.Tensor:
        counted.append(idx.shape[1])
        return plain(self, idx, cache, **named)

    monkeypatch.setattr(dl.llm.Decoder, "forward", counting)
    letters = dl.tensor(tokenizer.encode("abcdefghijklmnop", special=False))

    def sampler(scores: dl.Tensor) -> dl.Tensor:
        return letters[scores[:, letters].argmax(-1)]

    conversation = dl.llm.Conversation(speaker, tokenizer)
    messages = [{"role": "user", "content": "How are you?"}]
    for question in ("And now?", "Why?", "Really, why?"):
        answer = "".join(piece.text for piece in conversation.answer(messages, 12, sampler=sampler))
        tokens = tokenizer.encode(tokenizer.apply_chat_template(messages), special=False)
        assert answer == dl.llm.generate(speaker, tokenizer, tokens, 12, sampler=sampler)
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": question}]
    known, alone = counted[2::2], counted[3::2]
    marks = 7  # the last token of an answer, its end, a line, user, end, a line, assistant
    assert known == [len("And now?") + marks, len("Why?") + marks], "what was said before is known"
    assert alone[1] > alone[0] > 2 * known[0]
    changed = [{"role": "user", "content": "Something else"}]
    again = "".join(piece.text for piece in conversation.answer(changed, 12))
    text = tokenizer.apply_chat_template(changed)
    assert again == dl.llm.generate(speaker, tokenizer, tokenizer.encode(text, special=False), 12)
    changed += [{"role": "assistant", "content": again}, {"role": "user", "content": "More"}]
    settings: Any = {"sampler": sampler, "repetition_penalty": 1.7}
    more = "".join(piece.text for piece in conversation.answer(changed, 12, **settings))
    tokens = tokenizer.encode(tokenizer.apply_chat_template(changed), special=False)
    assert more == dl.llm.generate(speaker, tokenizer, tokens, 12, **settings)
    assert more != dl.llm.generate(speaker, tokenizer, tokens, 12, sampler=sampler)


def test_templates_are_those_of_transformers(tokenizer: dl.llm.Tokenizer, tmp_path: Path) -> None:
    make: Any = hf.PreTrainedTokenizerFast
    theirs = make(
        tokenizer_object=tokenizer.tokens, bos_token="<s>", eos_token="<|end|>", chat_template=TEMPLATE
    )
    theirs.save_pretrained(tmp_path)
    ours = dl.llm.Tokenizer.of_folder(tmp_path)
    assert ours is not None
    assert ours.stops == {theirs.eos_token_id}
    messages = [{"role": "user", "content": " hi "}, {"role": "assistant", "content": "there"}]
    for prompt in (True, False):
        expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
        assert ours.apply_chat_template(messages, add_generation_prompt=prompt) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% for n in range(10**9) %}x{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) %}longer{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for a in 'abcdefghij' * 90 %}{% for b in 'abcdefghij' * 90 %}"
        "{% for c in 'abcdefghij' * 90 %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set x = 'x' * 10**9 %}{% if x %}{% endif %}",
        "{% set x = [1] * 999999999 %}",
        "{% set x = 9 ** 99999999 %}",
        "{% set x = '%999999999d' % 1 %}",
        "{% set x = '{:>999999999}'.format('a') %}",
        "{% set x = 'x'.center(999999999) %}",
        "{% set x = 'x' | center(999999999) %}",
        "{% set x = 'x' | indent(999999999) %}",
        "{% for a in range(99999) %}{% set x = range(99999) | list %}{% endfor %}",
        "{% for a in range(9999) %}{% set x = ('x' * 999999) | upper %}{% endfor %}",
        "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set t %}{{ n.x }}{{ n.x }}{% endset %}"
        "{% set n.x = t %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{% set y = f(n - 1) %}{{ y }}{{ y }}{% else %}a{% endif %}{% endmacro %}"
        "{% set x = f(60) %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = {1: n.x, 2: n.x} %}{% endfor %}",
        "{% set n = namespace(x=(1,)) %}{% for i in range(60) %}{% set n.x = (n.x, n.x) %}{% endfor %}",
        "{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}",
        "{% set x = ('a' * 999999).replace('a', 'b' * 999999) %}",
        "{% set x = ('a' * 999999) | replace('a', 'b' * 999999) %}",
        "{% set x = range(9999) | join('b' * 999999) %}",
        "{% set x = ('b' * 999999).join('a' * 999999) %}",
        "{% set x = ('{0}' * 300000).format('b' * 999999) %}",
        "{% set x = ('%(a)s' * 150000) % {'a': 'b' * 999999} %}",
        "{% for i in range(9999) %}{% set x = 'b' * 999999 %}{% endfor %}",
        "{{ raise_exception('no talk') }}",
        "{{ messages[7].content }}",
        "{% if %}",
        "{{ 1 / 0 }}",
    ],
)
def test_templates_that_reach_too_far(tokenizer: dl.llm.Tokenizer, template: str) -> None:
    bad = dl.llm.Tokenizer(tokenizer.tokens, template)
    with pytest.raises(ArgumentError, match=r"\[llm\] the template"):
        bad.apply_chat_template([{"role": "user", "content": "hi"}])


def test_prompts_and_settings_that_cannot_be(speaker: dl.llm.Decoder, tokenizer: dl.llm.Tokenizer) -> None:
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ([], {}, "1 to 512 tokens, got 0"),
        ([1] * 513, {}, "got 513"),
        ([1, 9999], {}, "token 9999 is not one of"),
        ([-1], {}, "token -1"),
        ([1], {"max_tokens": 0}, "max_tokens=0"),
        ([1], {"repetition_penalty": 0.0}, "repetition_penalty=0"),
    ]
    for prompt, settings, match in cases:
        with pytest.raises(ArgumentError, match=match):
            dl.llm.generate(speaker, tokenizer, prompt, **settings)
    with pytest.raises(ArgumentError, match="a text needs a tokenizer"):
        dl.llm.generate(speaker, None, "hi")
    with pytest.raises(ArgumentError, match="stop= needs a tokenizer"):
        dl.llm.generate(speaker, None, [1], stop=["x"])
    with pytest.raises(ArgumentError, match="no template of talks"):
        dl.llm.Tokenizer(tokenizer.tokens).apply_chat_template([])
    for settings in ({"temp": -1}, {"temp": math.inf}, {"top_p": 0}, {"min_p": 2}, {"top_k": -3}):
        with pytest.raises(ArgumentError, match="out of its range"):
            dl.llm.make_sampler(**settings)
