"""Families of language models: what the configuration of each says beyond Llama's, and its weights' names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dl4all.errors import ConfigError
from dl4all.llm.rotary import rotary_frequencies

Names = tuple[tuple[str, str], ...]
ACTIVATIONS = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
"""Activations by their names in configurations."""
MOST_MODULES = 4096
"""Layers, and experts of a layer: more would be a file that lies."""
ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")

EXPERT_NAMES: Names = (
    (r"block_sparse_moe\.", "mlp."),
    (r"experts\.(\d+)\.w1\.", r"experts.\1.gate_proj."),
    (r"experts\.(\d+)\.w2\.", r"experts.\1.down_proj."),
    (r"experts\.(\d+)\.w3\.", r"experts.\1.up_proj."),
)
GPT2_NAMES: Names = (
    (r"^wte\.", "embed_tokens."),
    (r"^wpe\.", "embed_positions."),
    (r"^h\.", "layers."),
    (r"\.ln_1\.", ".input_layernorm."),
    (r"\.ln_2\.", ".post_attention_layernorm."),
    (r"^ln_f\.", "norm."),
    (r"\.attn\.c_attn\.", ".self_attn.qkv_proj."),
    (r"\.attn\.c_proj\.", ".self_attn.o_proj."),
    (r"\.mlp\.c_fc\.", ".mlp.up_proj."),
    (r"\.mlp\.c_proj\.", ".mlp.down_proj."),
)


@dataclass(frozen=True)
class Family:
    """A family of models, as it differs from Llama.

    Attributes:
        keys: names of the configuration that it has in place of Llama's.
        qkv_bias: whether products of queries, keys and values have a bias where the configuration is silent.
        qk_norm: whether queries and keys of each head are normalized.
        window: ``"always"`` where each layer has the configuration's sliding window, ``"asked"`` where
            ``use_sliding_window`` turns windows on, ``"listed"`` where layers are listed by their type.
        gemma: 1 for norms whose weights are 1 less, and scaled embeddings; from 2 on with norms after both
            parts of a block.
        experts: whether feed-forward networks are mixtures of experts.
        shared_expert: whether one of them sees every token.
        norm_topk: whether weights of the chosen experts have the sum 1 where the configuration is silent.
        tied: whether the embedding is the last layer's weight where the configuration is silent.
        plain: GPT-2's blocks: layer norms, learned positions, no gate, biases everywhere, transposed weights.
        names: patterns of names in files, and what they are here.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    qkv_bias: bool = False
    qk_norm: bool = False
    window: str = "listed"
    gemma: int = 0
    experts: bool = False
    shared_expert: bool = False
    norm_topk: bool = False
    tied: bool = False
    plain: bool = False
    names: Names = ()


GPT2_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
    "rms_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation_function",
}
FAMILIES = {
    "llama": Family(),
    "mistral": Family(window="always"),
    "qwen2": Family(qkv_bias=True, window="asked"),
    "qwen3": Family(qk_norm=True, window="asked"),
    "gemma": Family(gemma=1, tied=True),
    "gemma2": Family(gemma=2, tied=True),
    "gemma3_text": Family(gemma=3, tied=True, qk_norm=True),
    "phi3": Family(window="always"),
    "smollm3": Family(window="asked"),
    "gpt2": Family(plain=True, tied=True, keys=GPT2_KEYS, names=GPT2_NAMES),
    "mixtral": Family(window="always", experts=True, norm_topk=True, names=EXPERT_NAMES),
    "qwen2_moe": Family(qkv_bias=True, window="asked", experts=True, shared_expert=True),
    "qwen3_moe": Family(qk_norm=True, window="asked", experts=True),
}
"""Families by ``model_type``."""


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and kinds of a decoder's parts, in one vocabulary for all families.

    Attributes:
        vocabulary: tokens. width: features. layers: blocks.
        heads, kv_heads, head_dim: of attention. inner: features of the feed-forward network.
        positions: the longest sequence.
        eps: of norms. activation: of the feed-forward network.
        windows: for each layer, how many tokens it sees, or None for all.
        ropes: for each layer, the settings of its rotary positions, or None for none.
        scale: factor of attention's products. score_cap, logit_cap: soft limits of scores.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> made = dl.llm.decoder_config({**sizes, "model_type": "gemma", "num_attention_heads": 4})
        >>> isinstance(made, dl.llm.DecoderConfig), made.tied
        (True, True)
    """

    family: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    positions: int
    eps: float
    activation: str
    windows: tuple[int | None, ...]
    ropes: tuple[Mapping[str, Any] | None, ...]
    scale: float
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    tied: bool = False
    embed_scale: float = 1.0
    score_cap: float | None = None
    logit_cap: float | None = None
    experts: int = 0
    experts_used: int = 0
    expert_inner: int = 0
    shared_inner: int = 0
    norm_topk: bool = True
    dense_layers: frozenset[int] = frozenset()

    @property
    def rules(self) -> Family:
        """The family."""
        return FAMILIES[self.family]

    @property
    def least_numbers(self) -> int:
        """Numbers of the matrices, of which there are at least so many."""
        attention = 2 * self.head_dim * (self.heads + self.kv_heads)
        inner = min(self.inner, self.experts * self.expert_inner) if self.experts else self.inner
        of_layer = self.width * (attention + (2 if self.rules.plain else 3) * inner)
        return self.vocabulary * self.width + self.layers * of_layer


def decoder_config(document: Mapping[str, Any]) -> DecoderConfig:
    """The configuration of a decoder, from a document as ``config.json`` has it.

    Raises:
        ConfigError: the family, the activation or the kind of rotary positions is not known, or a number is
            missing or out of its range.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> config = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> config.head_dim, config.kv_heads
        (8, 4)
    """
    try:
        config = _decoder_config(document)
        for settings in filter(None, config.ropes):  # both what is short and what is long
            if not 0 < settings["partial_rotary_factor"] <= 1:
                raise ConfigError("[llm] partial_rotary_factor must be above 0 and at most 1")
            for positions in (2, settings["original_max_position_embeddings"] + 1):
                with np.errstate(all="ignore"):
                    frequencies, factor = rotary_frequencies(settings, config.head_dim, positions)
                if not (np.isfinite(frequencies).all() and math.isfinite(factor)):
                    raise ConfigError(f"[llm] settings of rope give angles that are no numbers: {settings}")
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"[llm] the configuration is damaged: {error}") from error
    return config


def _decoder_config(document: Mapping[str, Any]) -> DecoderConfig:
    """The configuration.

    Raises:
        ConfigError: something is not known.
    """
    if "text_config" in document and "hidden_size" not in document:
        document = document["text_config"]
    kind = document.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ConfigError(f"[llm] model_type {kind!r} is not known; known are {', '.join(FAMILIES)}")
    family = FAMILIES[kind]

    def value(name: str, otherwise: Any = None) -> Any:
        found = document.get(family.keys.get(name, name))
        return otherwise if found is None else found

    def count(name: str, otherwise: int | None = None, most: int = 2**24) -> int:
        found = value(name, otherwise)
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= most:
            key = family.keys.get(name, name)
            raise ConfigError(f"[llm] {key} must be an integer from 1 to {most}, got {found!r}")
        return found

    width, heads = count("hidden_size"), count("num_attention_heads")
    layers = count("num_hidden_layers", most=MOST_MODULES)
    head_dim = count("head_dim", width // heads)
    named = value("hidden_activation") or value("hidden_act", "silu")
    if named not in ACTIVATIONS:
        raise ConfigError(f"[llm] activation {named!r} is not known; known are {', '.join(ACTIVATIONS)}")
    windows = _windows(value, family, layers)
    scalar = value("query_pre_attn_scalar")
    biased = bool(value("attention_bias", family.plain))
    experts = count("num_local_experts", value("num_experts"), MOST_MODULES) if family.experts else 0
    config = DecoderConfig(
        family=kind,
        vocabulary=count("vocab_size"),
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=count("num_key_value_heads", heads),
        head_dim=head_dim,
        inner=count("intermediate_size", 4 * width if family.plain else None),
        positions=count("max_position_embeddings", 2048),
        eps=float(value("rms_norm_eps", 1e-6)),
        activation=ACTIVATIONS[named],
        windows=windows,
        ropes=(None,) * layers if family.plain else _ropes(document, value, layers),
        scale=float(head_dim if scalar is None else scalar) ** -0.5,
        qkv_bias=bool(value("attention_bias", family.qkv_bias or family.plain) or value("qkv_bias", False)),
        out_bias=biased and not family.qkv_bias,
        mlp_bias=bool(value("mlp_bias", family.plain)),
        tied=bool(value("tie_word_embeddings", family.tied)),
        embed_scale=math.sqrt(width) if family.gemma else 1.0,
        score_cap=value("attn_logit_softcapping"),
        logit_cap=value("final_logit_softcapping"),
        experts=experts,
        experts_used=count("num_experts_per_tok", 2) if experts else 0,
        expert_inner=count("moe_intermediate_size", value("intermediate_size")) if experts else 0,
        shared_inner=count("shared_expert_intermediate_size") if family.shared_expert else 0,
        norm_topk=bool(value("norm_topk_prob", family.norm_topk)),
        dense_layers=_dense_layers(value, layers) if experts else frozenset(),
    )
    if config.heads % config.kv_heads or config.head_dim % 2:
        raise ConfigError(
            f"[llm] {config.heads} heads of {config.head_dim} features cannot share {config.kv_heads} heads "
            "of keys"
        )
    if config.experts_used > config.experts:
        raise ConfigError(f"[llm] {config.experts_used} of {config.experts} experts cannot be chosen")
    return config


def _windows(value: Any, family: Family, layers: int) -> tuple[int | None, ...]:
    window = value("sliding_window")
    if window is None or (family.window == "asked" and not value("use_sliding_window", False)):
        return (None,) * layers
    if family.window == "always":
        return (window,) * layers
    types = value("layer_types") or ["full_attention"] * layers
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _dense_layers(value: Any, layers: int) -> frozenset[int]:
    """Layers whose feed-forward network is one, no mixture."""
    step = value("decoder_sparse_step", 1)
    return frozenset(value("mlp_only_layers") or ()) | {n for n in range(layers) if (n + 1) % step}


def _ropes(document: Mapping[str, Any], value: Any, layers: int) -> tuple[Mapping[str, Any] | None, ...]:
    """Settings of rotary positions by layer.

    They are in ``rope_parameters``, for all layers or for each type of them; in older files in
    ``rope_theta``, ``rope_scaling`` and ``rope_local_base_freq``.

    Raises:
        ConfigError: a kind is not known.
    """
    types = value("layer_types") or ["full_attention"] * layers
    if len(types) != layers:
        raise ConfigError(f"[llm] layer_types has {len(types)} types for {layers} layers")
    older = {"rope_theta": value("rope_theta", 10000.0), **(value("rope_scaling") or {})}
    found: Mapping[str, Any] = value("rope_parameters") or older
    if "rope_local_base_freq" in document and "full_attention" not in found:
        local = {"rope_theta": document["rope_local_base_freq"]}
        found = {"full_attention": found, "sliding_attention": local}
    made: dict[str, Mapping[str, Any]] = {}
    for kind in set(types):
        settings = dict(found.get(kind) or found)
        named = settings.get("rope_type") or settings.get("type") or "default"
        if named not in ROPE_TYPES:
            raise ConfigError(f"[llm] rope_type {named!r} is not known; known are {', '.join(ROPE_TYPES)}")
        longest = value("max_position_embeddings", 2048)
        original = settings.get("original_max_position_embeddings") or value(
            "original_max_position_embeddings", longest
        )
        if named == "longrope":  # the ratio that models were made for, whatever length is asked for
            settings.setdefault("factor", longest / original)
        made[kind] = {
            **settings,
            "rope_type": named,
            "rope_theta": settings.get("rope_theta", 10000.0),
            "partial_rotary_factor": settings.get(
                "partial_rotary_factor", value("partial_rotary_factor", 1.0)
            ),
            "original_max_position_embeddings": original,
        }
    rotary = value("no_rope_layers") or [1] * layers  # 1 where there are rotary positions
    return tuple(made[kind] if is_rotary else None for kind, is_rotary in zip(types, rotary, strict=True))
