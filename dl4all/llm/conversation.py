"""A talk: messages one after the other, of which nothing is computed twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dl4all.llm.cache import first_length
from dl4all.llm.decoder import Decoder
from dl4all.llm.generation import Piece, stream_generate
from dl4all.llm.tokenizer import Message, Tokenizer


class Conversation:
    """Answers of a model, with a cache of what was said.

    Args:
        model, tokenizer: from :func:`load`.

    Example:
        >>> import dl4all as dl
        >>> import tokenizers
        >>> words = {"hello": 0, "you": 1, "<user>": 2, "<model>": 3}
        >>> made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="you"))
        >>> made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        >>> template = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}<model>"
        >>> tokenizer = dl.llm.Tokenizer(made, template)
        >>> sizes = {"vocab_size": 4, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> config = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> conversation = dl.llm.Conversation(dl.llm.Decoder(config).eval(), tokenizer)
        >>> pieces = list(conversation.answer([{"role": "user", "content": "hello"}], 2))
        >>> len(pieces), len(conversation.known)  # the last token was not computed with
        (2, 4)
    """

    def __init__(self, model: Decoder, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self._cache = model.make_cache(1, first_length(0, model.config.positions))
        self.known: list[int] = []
        """Tokens that are in the cache."""

    def answer(self, messages: Sequence[Message], max_tokens: int = 512, **settings: Any) -> Iterator[Piece]:
        """The answer to messages, of which those that are known already are not computed again.

        Args:
            messages: the whole talk: ``{"role": "user", "content": "..."}`` and so on.
            settings: those of :func:`stream_generate`, which has the errors, too.
        """
        text = self.tokenizer.apply_chat_template(messages)
        tokens = self.tokenizer.encode(text, special=False)
        same = 0
        for known, token in zip(self.known, tokens[:-1], strict=False):  # one is computed for its scores
            if known != token:
                break
            same += 1
        self._cache.position, self.known = same, tokens[:same]
        given = tokens[same:]
        settings |= {"cache": self._cache, "context": self.known}
        try:
            for piece in stream_generate(self.model, self.tokenizer, given, max_tokens, **settings):
                given.append(piece.token)
                yield piece
        finally:
            self.known = (self.known + given)[: self._cache.position]
