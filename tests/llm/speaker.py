"""A tiny model with random weights whose tokens are bytes, and marks of talks."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers

import dl4all as dl

MARKS = ["<s>", "<|user|>", "<|assistant|>", "<|end|>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_tokens() -> tokenizers.Tokenizer:
    """Tokens that are bytes, and :data:`MARKS`."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({c: n for n, c in enumerate(letters)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(MARKS)
    return made


def speaker_config(positions: int) -> dict[str, object]:
    """The configuration of the model."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return {
        **sizes,
        "model_type": "llama",
        "vocab_size": 256 + len(MARKS),
        "max_position_embeddings": positions,
        "eos_token_id": 255 + len(MARKS),
    }


def write_speaker(folder: Path, positions: int = 128) -> Path:
    """Write the model; returns its folder."""
    config = speaker_config(positions)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<|end|>"}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    byte_tokens().save(str(folder / "tokenizer.json"))
    dl.manual_seed(0)
    model = dl.llm.Decoder(dl.llm.decoder_config(config))
    dl.save({f"model.{name}": p for name, p in model.state_dict().items()}, folder / "model.safetensors")
    return folder
