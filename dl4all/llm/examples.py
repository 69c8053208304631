"""Examples to learn from: lines of JSON as tokens, and which of them count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, FileFormatError
from dl4all.llm.tokenizer import Tokenizer

IGNORED = -100
"""The target of tokens that do not count."""
KINDS = '{"messages": [...]}, {"prompt": "...", "completion": "..."} or {"text": "..."}'


class TokenExample(NamedTuple):
    """Tokens of an example.

    Attributes:
        tokens: all of them.
        counted: whether each is to be learnt, not only read.

    Example:
        >>> import dl4all as dl
        >>> dl.llm.TokenExample([5, 6], [False, True]).tokens
        [5, 6]
    """

    tokens: list[int]
    counted: list[bool]


def read_examples(path: str | Path, tokenizer: Tokenizer) -> list[TokenExample]:
    """Examples of a file with a JSON object in each line.

    A line has ``messages``, of which the answers of the assistant count; a ``prompt`` and its ``completion``,
    which counts; or a ``text``, which counts as a whole.

    Args:
        path: the file.
        tokenizer: of the model.

    Raises:
        FileFormatError: a line is damaged, or there is none; its number is told.
        ArgumentError: the template refuses a talk; the line's number is told.

    Example:
        >>> import dl4all as dl
        >>> import pathlib, tokenizers
        >>> words = tokenizers.models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a")
        >>> made = tokenizers.Tokenizer(words)
        >>> made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        >>> _ = pathlib.Path("data.jsonl").write_text('{"prompt": "a b ", "completion": "c"}')
        >>> dl.llm.read_examples("data.jsonl", dl.llm.Tokenizer(made))
        [TokenExample(tokens=[0, 1, 2], counted=[False, False, True])]
    """
    path, found = Path(path), []
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise FileFormatError(f"[llm] {path} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            example = _example(json.loads(line), tokenizer)
        except ArgumentError as error:
            raise ArgumentError(f"{error} (line {number} of {path})") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileFormatError(
                f"[llm] line {number} of {path} is none of {KINDS}: {type(error).__name__}: {error}"
            ) from error
        found.append(example)
    if not any(any(example.counted) for example in found):
        raise FileFormatError(f"[llm] {path} has nothing to learn from: {KINDS}")
    return found


def packed(
    examples: Iterable[TokenExample], length: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows of tokens and of their targets, the tokens after them: examples one after the other.

    Args:
        examples: rows of which nothing counts are left out; nor does the first token of an example.
        length: tokens of a row; what is over goes into the next one.

    Returns:
        Tokens and targets (N, length): -100 where a token does not count, or there is none.

    Raises:
        ArgumentError: rows are too short, or nothing counts.

    Example:
        >>> import dl4all as dl
        >>> some = [dl.llm.TokenExample([5, 6, 7], [False, True, True])] * 2
        >>> [part.tolist() for part in dl.llm.packed(some, 5)]
        [[[5, 6, 7, 5, 6]], [[6, 7, -100, 6, 7]]]
    """
    if length < 2:
        raise ArgumentError(f"[llm] expected rows of at least 2 tokens, got {length}")
    listed = list(examples)
    tokens = np.array([token for example in listed for token in example.tokens], np.int64)
    # Nothing foretells how an example begins.
    counted = [counts and number > 0 for one in listed for number, counts in enumerate(one.counted)]
    targets = np.where(counted[1:], tokens[1:], IGNORED)
    if not (targets != IGNORED).any():
        raise ArgumentError("[llm] no token counts: there is nothing to learn from")
    left = -len(targets) % length
    rows = np.pad(tokens[:-1], (0, left)).reshape(-1, length)
    targets = np.pad(targets, (0, left), constant_values=IGNORED).reshape(-1, length)
    kept = (targets != IGNORED).any(1)
    return rows[kept], targets[kept]


def _example(document: Any, tokenizer: Tokenizer) -> TokenExample:
    """The tokens of a document.

    Raises:
        ValueError: it is of no kind.
    """
    if "messages" in document:
        parts = list(_of_messages(document["messages"], tokenizer))
    elif "completion" in document:
        parts = [(_text(document["prompt"]), False), (_text(document["completion"]), True)]
    else:
        parts = [(_text(document["text"]), True)]
    made = TokenExample([], [])
    for number, (text, counts) in enumerate(parts):
        special = number == 0 and "messages" not in document  # templates write their own
        tokens = tokenizer.encode(text, special=special)
        made.tokens.extend(tokens)
        made.counted.extend([counts] * len(tokens))
    if "messages" not in document and tokenizer.stops and made.tokens[-1] not in tokenizer.stops:
        made.tokens.append(min(tokenizer.stops))
        made.counted.append(True)
    return made


def _of_messages(messages: Any, tokenizer: Tokenizer) -> Iterator[tuple[str, bool]]:
    """Parts of a talk, and whether they are answers.

    Raises:
        ValueError: there is no answer, or the template changes what was before one.
    """
    told = ""
    for number, message in enumerate(messages):
        _text(message["content"])
        if message["role"] != "assistant":
            continue
        question = tokenizer.apply_chat_template(messages[:number])
        whole = tokenizer.apply_chat_template(messages[: number + 1], add_generation_prompt=False)
        if not (question.startswith(told) and whole.startswith(question)):
            raise ValueError("the template changes what was said before an answer; give each answer a line")
        yield question[len(told) :], False
        yield whole[len(question) :], True
        told = whole
    if not told:
        raise ValueError("there is no answer of the assistant")


def _text(value: Any) -> str:
    """
    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str):
        raise ValueError(f"expected a text, got {type(value).__name__}")
    return value
