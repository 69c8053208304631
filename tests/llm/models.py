"""Tiny models of all families with random weights, as transformers makes and writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as hf

BASE: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
MIXED = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
WINDOW = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}


def rope(**settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 1e4, **settings}}


LLAMA3 = rope(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
LONG = rope(
    rope_type="longrope",
    partial_rotary_factor=0.5,
    short_factor=[1.1, 1.2, 1.3, 1.4],
    long_factor=[2.0, 3.0, 4.0, 5.0],
)
CONFIGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (hf.LlamaConfig, {}),
    "llama-biases-tied": (
        hf.LlamaConfig, {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    ),
    "llama-llama3": (hf.LlamaConfig, LLAMA3),
    "llama-linear": (hf.LlamaConfig, rope(rope_type="linear", factor=4.0)),
    "llama-dynamic": (hf.LlamaConfig, rope(rope_type="dynamic", factor=2.0)),
    "llama-yarn": (hf.LlamaConfig, rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
    "mistral-window": (hf.MistralConfig, {"sliding_window": 7, "head_dim": 12}),
    "qwen2": (hf.Qwen2Config, {"tie_word_embeddings": True}),
    "qwen2-window": (hf.Qwen2Config, WINDOW),
    "qwen3": (hf.Qwen3Config, {"head_dim": 16}),
    "gemma": (hf.GemmaConfig, {"head_dim": 16}),
    "gemma2": (hf.Gemma2Config, {
        "head_dim": 16, "sliding_window": 7, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    }),
    "gemma3": (hf.Gemma3TextConfig, {"head_dim": 16, "sliding_window": 7, "num_hidden_layers": 7}),
    "phi3": (hf.Phi3Config, {}),
    "phi3-longrope-partial": (
        hf.Phi3Config, {"num_attention_heads": 2, "original_max_position_embeddings": 64, **LONG}
    ),
    "smollm3": (hf.SmolLM3Config, {"num_hidden_layers": 5}),
    "gpt2": (hf.GPT2Config, {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}),
    "mixtral": (hf.MixtralConfig, {"num_local_experts": 5}),
    "qwen2_moe": (hf.Qwen2MoeConfig, {**MIXED, "shared_expert_intermediate_size": 40}),
    "qwen3_moe": (hf.Qwen3MoeConfig, {**MIXED, "norm_topk_prob": True}),
}  # fmt: skip


def reference(name: str) -> Any:
    """A model of transformers with weights far from those it begins with."""
    kind, settings = CONFIGS[name]
    base = {"vocab_size": 97} if kind is hf.GPT2Config else BASE
    torch.manual_seed(1)
    make: Any = hf.AutoModelForCausalLM.from_config
    model = make(kind(**{**base, **settings}), attn_implementation="eager")
    model = model.eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def written(name: str, folder: Path) -> Any:
    """The model, which is written to a folder."""
    model = reference(name)
    model.save_pretrained(folder)
    return model
