"""Text and tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from dl4all.errors import ArgumentError, FileFormatError
from dl4all.llm.chat_template import rendered
from dl4all.llm.documents import read_json

Message = Mapping[str, Any]
UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""Text of tokens that end within a character."""


class Tokenizer:
    """A tokenizer of a model.

    Args:
        tokens: of the package `tokenizers`.
        template: of talks, in Jinja.
        special: tokens that the template may name, such as ``bos_token``.
        stops: tokens after which nothing follows.

    Example:
        >>> import dl4all as dl
        >>> import tokenizers
        >>> words = tokenizers.models.WordLevel({"[UNK]": 0, "hello": 1, "you": 2}, unk_token="[UNK]")
        >>> made = tokenizers.Tokenizer(words)
        >>> made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        >>> tokenizer = dl.llm.Tokenizer(made)
        >>> tokenizer.encode("hello you"), tokenizer.decode([1, 2])
        ([1, 2], 'hello you')
    """

    def __init__(
        self,
        tokens: tokenizers.Tokenizer,
        template: str | None = None,
        special: Mapping[str, str] | None = None,
        stops: Iterable[int] = (),
    ) -> None:
        self.tokens, self.template = tokens, template
        self.special, self.stops = dict(special or {}), frozenset(stops)

    @classmethod
    def of_folder(cls, folder: Path) -> Tokenizer | None:
        """That of a model's folder, or None where it has none.

        Raises:
            FileFormatError: a file is damaged.
        """
        file = folder / "tokenizer.json"
        if not file.is_file():
            return None
        try:
            tokens = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the package raises nothing narrower
            raise FileFormatError(f"[llm] {file} is damaged: {error}") from error
        settings = _document(folder / "tokenizer_config.json")
        special = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in settings.items()
            if name.endswith("_token") and isinstance(value, (str, dict))
        }
        template = settings.get("chat_template")
        if isinstance(template, list):  # several by name
            template = {t["name"]: t["template"] for t in template}.get("default")
        if (separate := folder / "chat_template.jinja").is_file():
            template = separate.read_text("utf-8")
        found: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            ends = _document(folder / name).get("eos_token_id")
            found |= {ends} if isinstance(ends, int) else set(ends or ())
        if (end := tokens.token_to_id(special.get("eos_token", ""))) is not None:
            found.add(end)
        return cls(tokens, template, special, found)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Tokens of a text.

        Args:
            special: whether tokens that every text begins or ends with are added.
        """
        return list(self.tokens.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self.tokens.decode(list(tokens)))

    def text_of(self, token: int) -> str:
        """The text of one token, be it special; its name where it is a part of a character."""
        text = str(self.tokens.decode([token], skip_special_tokens=False))
        return self.tokens.id_to_token(token) or text if UNFINISHED in text else text

    def apply_chat_template(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The text of a talk, as the model was trained with it.

        The template comes from a file: it runs in Jinja's sandbox, with few steps and sizes
        (:mod:`dl4all.llm.chat_template`).

        Args:
            messages: ``{"role": "user", "content": "..."}`` and so on.
            add_generation_prompt: end with what an answer begins with.

        Raises:
            ArgumentError: the model has no template, or it refuses the messages.
        """
        if self.template is None:
            raise ArgumentError("[llm] the model has no template of talks; give it a text")
        return rendered(self.template, messages, add_generation_prompt, self.special)


class TextStream:
    """The text of tokens that come one after the other: whole characters only."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._begun = self._told = 0

    def add(self, token: int) -> str:
        """The text to be told after one more token."""
        self._tokens.append(token)
        text = self._tokenizer.decode(self._tokens[self._begun :])
        if text.endswith(UNFINISHED):
            return ""
        before = self._tokenizer.decode(self._tokens[self._begun : self._told])
        self._begun, self._told = self._told, len(self._tokens)
        return text[len(before) :]

    def end(self) -> str:
        """The text that is left: half a character, too."""
        text = self._tokenizer.decode(self._tokens[self._begun :])
        return text[len(self._tokenizer.decode(self._tokens[self._begun : self._told])) :]


def _document(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
