"""Tokenizers from the metadata of GGUF files, which name what cuts a text into words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from dl4all.errors import FileFormatError
from dl4all.llm.tokenizer import Tokenizer

KEY = "tokenizer.ggml."
CONTROL, DEFINED = 3, 4
"""Types of tokens that are taken from a text before all others; those of control are special."""

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_WORDS = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{REST}"
QWEN2_WORDS = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{REST}"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = (pre_tokenizers.ByteLevel(add_prefix_space=False),)
DIGITS = (pre_tokenizers.Digits(individual_digits=True), *GPT2)


def _words(pattern: str) -> tuple[Any, ...]:
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


WORDS: dict[str, tuple[Any, ...]] = {
    "gpt-2": GPT2,
    "llama-bpe": _words(LLAMA3_WORDS),
    "smaug-bpe": _words(LLAMA3_WORDS),
    "qwen2": _words(QWEN2_WORDS),
    "deepseek-r1-qwen": _words(QWEN2_WORDS),
    "tekken": _words(TEKKEN_WORDS),
    "smollm": DIGITS,
    "default": _words(LLAMA3_WORDS),
}
"""Steps that cut a text into words, by the names in files."""
WHOLE_WORDS = ("llama-bpe", "tekken")
"""Names of those whose words are one token where they are in the vocabulary, whatever merges say."""

ENDS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<|eom_id|>",
)
"""Tokens after which nothing follows, whether the metadata says so or not."""


def tokenizer_of(metadata: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a file, or None where it has none.

    Raises:
        FileFormatError: it is damaged, or of a kind that is not known.
    """
    kind = metadata.get(f"{KEY}model")
    whole = metadata.get("tokenizer.huggingface.json")
    if whole is None and kind in (None, "no_vocab", "none"):
        return None
    try:
        made = _tokens(metadata, kind) if whole is None else tokenizers.Tokenizer.from_str(whole)
        pieces = metadata.get(f"{KEY}tokens") or [
            made.id_to_token(number) for number in range(made.get_vocab_size())
        ]
        special = {
            f"{name}_token": pieces[number]
            for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
            if (number := metadata.get(f"{KEY}{key}_token_id")) is not None
        }
        stops = {metadata.get(f"{KEY}{name}_token_id") for name in ("eos", "eot", "eom")}
        stops |= {made.token_to_id(text) for text in ENDS}
    except FileFormatError:
        raise
    except Exception as error:  # the package raises nothing narrower
        raise FileFormatError(f"[llm] the file's tokenizer is damaged: {error}") from error
    template = metadata.get("tokenizer.chat_template")
    return Tokenizer(made, template, special, (token for token in stops if token is not None))


def _tokens(metadata: Mapping[str, Any], kind: Any) -> tokenizers.Tokenizer:
    """
    Raises:
        FileFormatError
    """
    pieces = list(metadata[f"{KEY}tokens"])
    types = metadata.get(f"{KEY}token_type") or [1] * len(pieces)
    numbers = {piece: number for number, piece in enumerate(pieces)}
    if kind == "gpt2":
        made = _byte_pairs(metadata, numbers)
    elif kind == "llama":
        made = _sentence_pieces(metadata, numbers)
    else:
        raise FileFormatError(
            f"[llm] a tokenizer of kind {kind!r} is not known; known are 'gpt2' and 'llama'"
        )
    for control in (CONTROL, DEFINED):
        added = [
            AddedToken(piece, special=control == CONTROL, normalized=False)
            for piece, type in zip(pieces, types, strict=True)
            if type == control
        ]
        (made.add_special_tokens if control == CONTROL else made.add_tokens)(added)
    _add_ends(made, metadata, pieces, begins=kind == "llama")
    return made


def _byte_pairs(metadata: Mapping[str, Any], numbers: dict[str, int]) -> tokenizers.Tokenizer:
    name = metadata.get(f"{KEY}pre", "default")
    if name not in WORDS:
        raise FileFormatError(
            f"[llm] a tokenizer that cuts words as {name!r} is not known; known are {', '.join(WORDS)}"
        )
    merges = [tuple(merge.split(" ", 1)) for merge in metadata[f"{KEY}merges"]]
    made = tokenizers.Tokenizer(models.BPE(numbers, merges, ignore_merges=name in WHOLE_WORDS))
    made.pre_tokenizer = pre_tokenizers.Sequence(list(WORDS[name]))
    made.decoder = decoders.ByteLevel()
    return made


def _sentence_pieces(metadata: Mapping[str, Any], numbers: dict[str, int]) -> tokenizers.Tokenizer:
    """Pairs of tokens are merged by the score of what they make, as SentencePiece does."""
    scores = metadata[f"{KEY}scores"]
    ranked = sorted(numbers, key=lambda piece: (-scores[numbers[piece]], numbers[piece]))
    merges = []
    for piece in ranked:
        cuts = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        known = [cut for cut in cuts if cut[0] in numbers and cut[1] in numbers]
        merges += sorted(known, key=lambda cut: (numbers[cut[0]], numbers[cut[1]]))
    unknown = next((piece for piece in ("<unk>",) if piece in numbers), None)
    made = tokenizers.Tokenizer(
        models.BPE(numbers, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    prefix = metadata.get(f"{KEY}add_space_prefix", True)
    steps = [normalizers.Prepend("▁")] if prefix else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    ends = [decoders.Strip(" ", 1, 0)] if prefix else []
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *ends]
    )
    return made


def _add_ends(
    made: tokenizers.Tokenizer, metadata: Mapping[str, Any], pieces: list[str], *, begins: bool
) -> None:
    """Let texts begin and end with tokens, if the metadata says so."""
    first, last = (
        pieces[metadata[f"{KEY}{name}_token_id"]] if metadata.get(f"{KEY}add_{name}_token", usual) else None
        for name, usual in (("bos", begins), ("eos", False))
    )
    named = list(filter(None, (first, last)))
    if named:
        single = [*([first] if first else []), "$A", *([last] if last else [])]
        pair = [*single, *(f"{part.replace('$A', '$B')}:1" for part in single)]
        made.post_processor = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=[(piece, made.token_to_id(piece)) for piece in named]
        )


def metadata_of(tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Metadata of a tokenizer.

    All of it is there under ``tokenizer.huggingface.json``. For programs that do not read this there are the
    tokens and merges of byte pairs; tokenizers of other kinds they cannot use.
    """
    if tokenizer is None:
        return {f"{KEY}model": "no_vocab"}
    whole = tokenizer.tokens.to_str()
    document = json.loads(whole)
    size = tokenizer.tokens.get_vocab_size()
    pieces = [tokenizer.tokens.id_to_token(number) or f"[PAD{number}]" for number in range(size)]
    added = {token["id"]: CONTROL if token["special"] else DEFINED for token in document["added_tokens"]}
    found: dict[str, Any] = {
        f"{KEY}tokens": pieces,
        f"{KEY}token_type": [added.get(number, 1) for number in range(size)],
        "tokenizer.huggingface.json": whole,
        "tokenizer.chat_template": tokenizer.template,
    }
    numbers = tokenizer.tokens.get_vocab()
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        found[f"{KEY}{key}_token_id"] = numbers.get(tokenizer.special.get(f"{name}_token", ""))
    if found[f"{KEY}eos_token_id"] is None and tokenizer.stops:
        found[f"{KEY}eos_token_id"] = min(tokenizer.stops)
    words = json.dumps(document.get("pre_tokenizer"))
    model = document["model"]
    if model["type"] != "BPE" or "ByteLevel" not in words:
        return {**found, f"{KEY}model": "no_vocab"}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    name = next((name for name, steps in WORDS.items() if _same_words(steps, words)), "gpt-2")
    begun = tokenizer.encode("", special=True)
    return {
        **found,
        f"{KEY}model": "gpt2",
        f"{KEY}pre": name,
        f"{KEY}merges": merges,
        f"{KEY}add_bos_token": bool(begun) and begun[0] == found[f"{KEY}bos_token_id"],
    }


def _same_words(steps: tuple[Any, ...], words: str) -> bool:
    """Whether a tokenizer whose part of this is in JSON cuts words in these steps."""
    probe = tokenizers.Tokenizer(models.BPE())
    probe.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(list(steps))
    ours = json.loads(probe.to_str())["pre_tokenizer"]
    return bool(_patterns(ours) == _patterns(json.loads(words)))


def _patterns(step: Any) -> list[Any]:
    """Patterns that the steps of a tokenizer look for."""
    if step["type"] == "Sequence":
        return [found for inner in step["pretokenizers"] for found in _patterns(inner)]
    return [(step["type"], step.get("pattern"), step.get("use_regex"), step.get("individual_digits"))]
