"""Examples to learn from: which tokens count, and lines that are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, FileFormatError
from tests.llm.speaker import TEMPLATE, byte_tokens


@pytest.fixture(scope="module")
def tokenizer() -> dl.llm.Tokenizer:
    return dl.llm.Tokenizer(byte_tokens(), TEMPLATE, {"bos_token": "<s>"}, [259])


def read(tmp_path: Path, tokenizer: dl.llm.Tokenizer, *documents: Any) -> list[dl.llm.TokenExample]:
    lines = [document if isinstance(document, str) else json.dumps(document) for document in documents]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    return dl.llm.read_examples(tmp_path / "data.jsonl", tokenizer)


def counted(tokenizer: dl.llm.Tokenizer, example: dl.llm.TokenExample) -> str:
    """The text that counts, with its marks."""
    tokens = [token for token, counts in zip(example.tokens, example.counted, strict=True) if counts]
    return str(tokenizer.tokens.decode(tokens, skip_special_tokens=False))


def test_answers_count_and_questions_do_not(tmp_path: Path, tokenizer: dl.llm.Tokenizer) -> None:
    messages = [
        {"role": "user", "content": "one?"}, {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three?"}, {"role": "assistant", "content": "four"},
        {"role": "user", "content": "never answered"},
    ]  # fmt: skip
    talk, pair, text = read(
        tmp_path,
        tokenizer,
        {"messages": messages},
        "",
        {"prompt": "a", "completion": " bc"},
        {"text": "whole"},
    )
    assert counted(tokenizer, talk) == "two<|end|>\nfour<|end|>\n"
    whole = tokenizer.apply_chat_template(messages[:4], add_generation_prompt=False)
    assert talk.tokens == tokenizer.encode(whole, special=False)
    assert counted(tokenizer, pair) == " bc<|end|>"
    assert counted(tokenizer, text) == "whole<|end|>"


def test_rows_are_filled_one_after_the_other() -> None:
    draw = np.random.default_rng(0)
    examples = [
        dl.llm.TokenExample(draw.integers(0, 50, n).tolist(), (draw.random(n) < 0.5).tolist())
        for n in draw.integers(1, 9, 40)
    ]
    stream = [token for example in examples for token in example.tokens]
    wanted = [
        token if counts and number else -100
        for one in examples
        for number, (token, counts) in enumerate(zip(one.tokens, one.counted, strict=True))
    ]
    rows, targets = dl.llm.packed(examples, 7)
    assert rows.shape == targets.shape
    assert rows.shape[1] == 7
    flat = targets[targets != -100].tolist()
    assert flat == [token for token in wanted[1:] if token != -100]
    begins = [n for n in range(0, len(stream) - 1, 7) if any(t != -100 for t in wanted[n + 1 : n + 8])]
    for row, target, begin in zip(rows, targets, begins, strict=True):
        count = min(7, len(stream) - 1 - begin)
        assert row[:count].tolist() == stream[begin : begin + count]
        assert target[:count].tolist() == wanted[begin + 1 : begin + 1 + count]
        assert (target[count:] == -100).all()


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("{", "JSONDecodeError"),
        ("[1, 2]", "none of"),
        ('{"prompt": "a"}', "KeyError: 'text'"),
        ('{"text": 3}', "expected a text, got int"),
        ('{"messages": []}', "no answer of the assistant"),
        ('{"messages": [{"role": "user"}]}', "KeyError: 'content'"),
        ('{"messages": [{"role": "assistant", "content": null}]}', "expected a text, got NoneType"),
        ("[" * 100_000, "RecursionError"),
    ],
)
def test_damaged_lines_are_told_by_their_number(
    tmp_path: Path, tokenizer: dl.llm.Tokenizer, line: str, match: str
) -> None:
    with pytest.raises(FileFormatError, match=rf"line 2 of .*{match}"):
        read(tmp_path, tokenizer, {"text": "fine"}, line)


def test_files_without_examples(tmp_path: Path, tokenizer: dl.llm.Tokenizer) -> None:
    with pytest.raises(FileFormatError, match="nothing to learn from"):
        read(tmp_path, tokenizer, "", "")
    with pytest.raises(FileFormatError, match="cannot be read"):
        dl.llm.read_examples(tmp_path, tokenizer)
    refusing = dl.llm.Tokenizer(tokenizer.tokens, "{{ raise_exception('no') }}")
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(ArgumentError, match=r"refuses the talk: no \(line 1 of"):
        read(tmp_path, refusing, {"messages": messages})
    forgetting = dl.llm.Tokenizer(tokenizer.tokens, "{{ messages[-1].content }}")
    with pytest.raises(FileFormatError, match="changes what was said"):
        read(tmp_path, forgetting, {"messages": messages})
    for examples, length, match in (
        ([dl.llm.TokenExample([1, 2], [False, False])], 4, "no token counts"),
        ([], 4, "no token counts"),
        ([dl.llm.TokenExample([1, 2], [True, True])], 1, "at least 2 tokens, got 1"),
    ):
        with pytest.raises(ArgumentError, match=match):
            dl.llm.packed(examples, length)
