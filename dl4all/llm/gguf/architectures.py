"""Architectures of GGUF files, as configurations and names of the models of :mod:`dl4all.llm.families`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dl4all.errors import ConfigError, FileFormatError
from dl4all.llm.families import FAMILIES, MOST_MODULES, DecoderConfig
from dl4all.llm.gguf.reader import GgufFile, GgufTensor
from dl4all.llm.gguf.row_bytes import RowBytes, rows_of

ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
    "smollm3": "smollm3",
    "gpt2": "gpt2",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
}
"""Families by architecture; a llama with experts is a mixtral, and a mistral is written as a llama."""
NEIGHBOURS = ("llama", "smollm3")
"""Architectures whose rotary positions turn neighbours, where the models here turn halves."""
NO_POSITIONS_STEP = 4
"""Every so many layers of a smollm3 have no rotary positions."""
GLOBAL_STEP = {"gemma2": 2, "gemma3": 6}
"""Every so many layers of these see all tokens, the others a window."""
LARGEST_GEMMAS = {"gemma2": 46, "gemma3": 62}
"""Layers of those of 27 B, which scale attention by the width of a head of all features."""

KEYS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
}
"""Names in a file's metadata by those in configurations."""

MODULES = {
    "token_embd": "embed_tokens",
    "position_embd": "embed_positions",
    "output_norm": "norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
"""Modules of the decoder by names in files."""
MODULES_WITH_NORMS_AFTER = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
"""The same of families with norms after both parts of a block."""
FREQUENCIES = re.compile(r"^(blk\.\d+\.)?rope_(freqs|factors_long|factors_short)\.weight$")
"""Tensors that are part of the configuration."""
EXPERT = re.compile(r"^(ffn_(?:gate|up|down))\.(\d+)$")
"""Experts in tensors of their own, as older files have them."""


def document_of(file: GgufFile) -> dict[str, Any]:
    """The configuration of a file's model, as ``config.json`` has it.

    Raises:
        ConfigError: the architecture is not known, or a value is missing.
    """
    architecture = file.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise ConfigError(
            f"[llm] the architecture {architecture!r} is not known; known are {', '.join(ARCHITECTURES)}"
        )

    def value(name: str) -> Any:
        return file.metadata.get(f"{architecture}.{name}")

    kind = ARCHITECTURES[architecture]
    if architecture == "llama":
        windowed = "mistral" if value("attention.sliding_window") else kind
        kind = "mixtral" if value("expert_count") else windowed
    family = FAMILIES[kind]
    found = {name: value(key) for name, key in KEYS.items()}
    if family.plain:
        found["rms_norm_eps"] = value("attention.layer_norm_epsilon")
    if kind == "mixtral":
        found["moe_intermediate_size"] = None
    found["num_experts"] = found["num_local_experts"]
    found["sliding_window"] = found["sliding_window"] or None  # 0 where there is none
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ConfigError("[llm] the file has no token_embd.weight: it is no language model")
    layers, width = found["num_hidden_layers"], found["hidden_size"]
    if not isinstance(layers, int) or not isinstance(width, int) or not 0 < layers <= MOST_MODULES:
        raise ConfigError(
            f"[llm] the file says that the model has {layers!r:.40} layers (block_count) of {width!r:.40} "
            f"features, expected up to {MOST_MODULES} layers"
        )
    heads = found["num_attention_heads"]
    if isinstance(heads, list) or isinstance(found["intermediate_size"], list):
        raise ConfigError("[llm] models whose layers differ in their sizes are not known")
    turned = value("rope.dimension_count")
    if found["head_dim"] is None:
        found["head_dim"] = width // heads if isinstance(heads, int) and heads > 0 else None
    document = {
        **found,
        "model_type": kind,
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_output.bias" in file.tensors or family.plain,
        "qkv_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors or family.plain,
        "norm_topk_prob": kind in ("mixtral", "qwen3_moe"),
        "rope_theta": value("rope.freq_base") or 10000.0,
        "rope_scaling": _scaling(file, value),
        "partial_rotary_factor": turned / found["head_dim"] if turned and found["head_dim"] else 1.0,
        "hidden_act": "gelu_new" if family.plain else "gelu_pytorch_tanh" if family.gemma else "silu",
        "original_max_position_embeddings": value("rope.scaling.original_context_length"),
    }
    if architecture in GLOBAL_STEP and found["sliding_window"]:
        step = GLOBAL_STEP[architecture]
        document["layer_types"] = [
            "sliding_attention" if (layer + 1) % step else "full_attention" for layer in range(layers)
        ]
        if architecture == "gemma3":
            document["rope_local_base_freq"] = value("rope.freq_base_swa") or 10000.0
    if LARGEST_GEMMAS.get(architecture) == layers and isinstance(heads, int):
        document["query_pre_attn_scalar"] = width / heads
    if architecture == "smollm3":
        document["no_rope_layers"] = [int((layer + 1) % NO_POSITIONS_STEP != 0) for layer in range(layers)]
    for name, key in family.keys.items():
        document[key] = document.pop(name, None)
    return document


def _scaling(file: GgufFile, value: Callable[[str], Any]) -> dict[str, Any] | None:
    """Settings of rotary positions, of which some are tensors: factors of each frequency."""
    factors = {
        name: _factors(file.tensors[f"rope_{kind}.weight"])
        for name, kind in (
            ("freqs", "freqs"), ("long_factor", "factors_long"), ("short_factor", "factors_short")
        )
        if f"rope_{kind}.weight" in file.tensors
    }  # fmt: skip
    if "freqs" in factors:  # what Llama 3's scaling comes to, whatever the length
        both = dict.fromkeys(("long_factor", "short_factor"), factors["freqs"])
        return {"rope_type": "longrope", "attention_factor": 1.0, **both}
    if factors:
        return {"rope_type": "longrope", "attention_factor": value("rope.scaling.attn_factor"), **factors}
    kind = value("rope.scaling.type")
    if kind in (None, "none"):
        return None
    factor, own = value("rope.scaling.factor") or 1.0, value("rope.scaling.attn_factor")
    return {
        "rope_type": kind,
        "factor": factor,
        "attention_factor": own * yarn_attention(factor) if kind == "yarn" and own else None,
        "beta_fast": value("rope.scaling.yarn_beta_fast"),
        "beta_slow": value("rope.scaling.yarn_beta_slow"),
    }


def yarn_attention(factor: float) -> float:
    """YaRN's factor of sines and cosines, which the format's own is on top of."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


def _factors(tensor: GgufTensor) -> list[float]:
    made: list[float] = rows_of(tensor).floats().reshape(-1).astype(np.float64).tolist()
    return made


def decoder_rows(
    file: GgufFile, config: DecoderConfig, architecture: str
) -> Iterator[tuple[str, str, RowBytes]]:
    """The weights of a file: their names there and in the decoder, and their rows.

    Raises:
        FileFormatError: a tensor has other axes than the model's.
    """
    modules: Mapping[str, str] = MODULES | (MODULES_WITH_NORMS_AFTER if config.rules.gemma > 1 else {})
    heads = {"self_attn.q_proj": config.heads, "self_attn.k_proj": config.kv_heads}
    for name, tensor in file.tensors.items():
        if FREQUENCIES.match(name):
            continue
        path, _, leaf = name.rpartition(".")
        prefix = ""
        if path.startswith("blk."):
            _, layer, path = (*path.split(".", 2), "")[:3]  # a name may lack its last part
            prefix = f"layers.{layer}."
        expert = EXPERT.match(path)
        if expert is not None:
            ours = f"mlp.experts.{expert[2]}.{modules[expert[1]].removeprefix('mlp.')}"
        else:
            ours = modules.get(path, path)
        rows = rows_of(tensor)
        if architecture in NEIGHBOURS and ours in heads:
            rows = _as_halves(name, rows, heads[ours])
        for part, piece in _parts(ours, rows, config, tensor):
            yield name, f"{prefix}{part}.{leaf}", piece


def _as_halves(name: str, rows: RowBytes, heads: int) -> RowBytes:
    """Rows of heads whose pairs are neighbours, in the order of the first and then the second of each pair.

    Raises:
        FileFormatError
    """
    if len(rows.data) % (2 * heads):
        raise FileFormatError(f"[llm] {name} has {len(rows.data)} rows for {heads} heads of pairs")
    order = np.arange(len(rows.data)).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
    return rows.taken(order)


def _parts(
    ours: str, rows: RowBytes, config: DecoderConfig, tensor: GgufTensor
) -> Iterator[tuple[str, RowBytes]]:
    """The decoder's modules of one tensor, and their rows."""
    heads, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    if ours == "self_attn.qkv_proj":
        for part, begin, end in (
            ("q_proj", 0, heads), ("k_proj", heads, heads + kv), ("v_proj", heads + kv, heads + 2 * kv)
        ):  # fmt: skip
            yield f"self_attn.{part}", rows.taken(slice(begin, end))
    elif ours == "mlp.up_proj" and config.family == "phi3":
        yield "mlp.gate_proj", rows.taken(slice(0, config.inner))
        yield ours, rows.taken(slice(config.inner, None))
    elif ours.startswith("mlp.experts.") and len(tensor.shape) == 3:
        each = tensor.shape[1]
        for number in range(tensor.shape[0]):
            part = f"mlp.experts.{number}.{ours.removeprefix('mlp.experts.')}"
            yield part, rows.taken(slice(number * each, (number + 1) * each))
    elif ours == "mlp.shared_expert_gate" and len(tensor.shape) == 1:
        yield ours, RowBytes(rows.kind, rows.data.reshape(1, -1), len(rows.data))
    else:
        yield ours, rows
