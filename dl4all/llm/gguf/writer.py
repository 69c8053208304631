"""A model as a GGUF file, which llama.cpp's family of programs reads, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter, quantize
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from dl4all.errors import ArgumentError, ConfigError
from dl4all.io.files import replaced
from dl4all.llm.decoder import Decoder
from dl4all.llm.families import DecoderConfig
from dl4all.llm.gguf.architectures import (
    ARCHITECTURES,
    KEYS,
    MODULES,
    MODULES_WITH_NORMS_AFTER,
    NEIGHBOURS,
    yarn_attention,
)
from dl4all.llm.gguf.model import gguf_config
from dl4all.llm.gguf.reader import GgufFile, GgufTensor
from dl4all.llm.gguf.vocabulary import metadata_of
from dl4all.llm.rotary import rotary_frequencies, rotary_tables
from dl4all.llm.tokenizer import Tokenizer
from dl4all.quantization.weights import QuantizedWeight
from dl4all.tensor.tensor import Tensor

Floats = npt.NDArray[np.float32]
KINDS = {
    "f32": GGMLQuantizationType.F32,
    "f16": GGMLQuantizationType.F16,
    "bf16": GGMLQuantizationType.BF16,
    "q8_0": GGMLQuantizationType.Q8_0,
    "q4_0": GGMLQuantizationType.Q4_0,
}
"""Types of weights by their names: those that the package `gguf` writes and kernels here read."""
WHOLE = ("ffn_gate_inp", "ffn_gate_inp_shexp", "position_embd")
"""Matrices that stay in float32: they are small, and what they choose is not."""


class _TensorPlan(NamedTuple):
    """A tensor of the file: its name, and the model's weights that it is made of.

    Attributes:
        stacked: along a new first axis, as experts are; else along the rows.
        heads: whose halves become neighbours; 0 for none.
    """

    name: str
    sources: tuple[str, ...]
    stacked: bool = False
    heads: int = 0


def save_gguf(model: Decoder, tokenizer: Tokenizer | None, path: str | Path, kind: str = "q4_0") -> None:
    """Write a model and its tokenizer as one GGUF file.

    Tensors are made one by one. The last layer's weight, and an embedding that is it, are of 8 bits where
    others are of 4; norms, biases and what chooses experts stay in float32.

    Args:
        model: of floats; adapters are merged first (:func:`dl4all.llm.merge`).
        tokenizer: from :func:`dl4all.llm.load`; None for none.
        path: of the file.
        kind: of matrices: ``"f32"``, ``"f16"``, ``"bf16"``, ``"q8_0"`` or ``"q4_0"``.

    Raises:
        ArgumentError: there is no such kind, or weights are in few bits already.
        ConfigError: rotary positions are of a kind that the format has not.

    Example:
        >>> import dl4all as dl, tempfile
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
        >>> config = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> path = tempfile.mkdtemp() + "/model.gguf"
        >>> dl.llm.save_gguf(dl.llm.Decoder(config), None, path, "q8_0")
        >>> dl.llm.load(path)[0].layers[0].mlp.up_proj.weight
        PackedWeight(64, 32, format=Q8_0)
    """
    if kind not in KINDS:
        raise ArgumentError(f"[llm] expected a kind of {', '.join(KINDS)}, got {kind!r}")
    own = dict(model.state_dict())
    for name, layer in model.named_modules():
        if isinstance(layer, QuantizedWeight):
            raise ArgumentError(f"[llm] {name} is in few bits already; load the model with dtype=dl.float32")
        if hasattr(layer, "lora_A"):
            raise ArgumentError(f"[llm] {name} has an adapter; merge it first")
    config = model.config
    architecture = next(arch for arch, family in ARCHITECTURES.items() if _family(config) == family)
    parts = list(_parts(config, architecture, own))
    extra = _frequencies(config)
    said = {f"{architecture}.{key}": value for key, value in _metadata(config).items() if value is not None}
    _check(config, {"general.architecture": architecture, **said}, parts, own, extra)
    with replaced(Path(path)) as draft:
        writer = GGUFWriter(draft, architecture)
        for key, value in {**said, **metadata_of(tokenizer)}.items():
            _add(writer, key, value)
        for name, factors in extra.items():
            writer.add_tensor_info(name, factors.shape, factors.dtype, factors.nbytes)
        for part in parts:
            _declare(writer, part, own, _kind_of(part, own, config, KINDS[kind]))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for factors in extra.values():
            writer.write_tensor_data(factors)
        for part in parts:
            made = quantize(_numbers(part, own), _kind_of(part, own, config, KINDS[kind]))
            writer.write_tensor_data(made)
        writer.close()


def _check(
    config: DecoderConfig,
    metadata: dict[str, Any],
    parts: list[_TensorPlan],
    own: dict[str, Tensor],
    extra: dict[str, Floats],
) -> None:
    """Compare the configuration that a reader will find with the model's, before a file is written.

    Raises:
        ConfigError: they differ.
    """
    nothing = np.empty(0, np.uint8)
    tensors = {part.name: GgufTensor(0, _shape(part, own), nothing) for part in parts}
    tensors |= {name: GgufTensor(0, factors.shape, factors.view(np.uint8)) for name, factors in extra.items()}
    read = gguf_config(GgufFile(metadata, tensors))
    lost = [
        field.name
        for field in dataclasses.fields(config)
        if field.name not in ("family", "ropes", "eps", "inner", "dense_layers")
        and getattr(config, field.name) != getattr(read, field.name)
    ]
    for ours, theirs in zip(config.ropes, read.ropes, strict=True):
        tables = [rotary_tables(s, config.head_dim, 8) for s in (ours, theirs) if s is not None]
        if len(tables) == 1 or (tables and not np.allclose(tables[0], tables[1], atol=1e-5)):
            lost.append("ropes")
            break
    if lost:
        raise ConfigError(f"[llm] the format cannot say what this model has as {', '.join(lost)}")


def _family(config: DecoderConfig) -> str:
    return "llama" if config.family in ("mistral", "mixtral") else config.family


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value is not None:
        writer.add_array(key, value)


def _metadata(config: DecoderConfig) -> dict[str, Any]:
    """Metadata of a configuration, by the names of the format."""
    settings = next(filter(None, config.ropes), None) or {}
    windows = [window for window in config.windows if window]
    eps = "attention.layer_norm_epsilon" if config.rules.plain else KEYS["rms_norm_eps"]
    found: dict[str, Any] = {
        KEYS["hidden_size"]: config.width,
        KEYS["intermediate_size"]: config.inner,
        KEYS["num_hidden_layers"]: config.layers,
        KEYS["num_attention_heads"]: config.heads,
        KEYS["num_key_value_heads"]: config.kv_heads,
        KEYS["max_position_embeddings"]: config.positions,
        KEYS["head_dim"]: config.head_dim,
        "attention.value_length": config.head_dim,
        "vocab_size": config.vocabulary,
        eps: config.eps,
        KEYS["sliding_window"]: windows[0] if windows else None,
        KEYS["attn_logit_softcapping"]: config.score_cap,
        KEYS["final_logit_softcapping"]: config.logit_cap,
    }
    if config.experts:
        found |= {
            KEYS["num_local_experts"]: config.experts,
            KEYS["num_experts_per_tok"]: config.experts_used,
            KEYS["moe_intermediate_size"]: config.expert_inner,
            KEYS["shared_expert_intermediate_size"]: config.shared_inner or None,
        }
    if settings:
        wide = next((rope for rope, window in zip(config.ropes, config.windows, strict=True)
                     if rope and not window), settings)  # fmt: skip
        found["rope.freq_base"] = float(wide["rope_theta"])
        found["rope.dimension_count"] = int(config.head_dim * wide["partial_rotary_factor"])
        if config.family == "gemma3_text":
            found["rope.freq_base_swa"] = float(settings["rope_theta"])
        found |= _scaling(wide, config.head_dim)
    return found


def _scaling(settings: Any, head_dim: int) -> dict[str, Any]:
    kind = settings["rope_type"]
    if kind in ("default", "llama3"):  # the latter is a tensor of factors
        return {}
    if kind == "dynamic":
        raise ConfigError("[llm] the format has no rotary positions that depend on the length (dynamic)")
    found = {"rope.scaling.original_context_length": int(settings["original_max_position_embeddings"])}
    own = settings.get("attention_factor") if kind == "yarn" else None
    if kind == "longrope":
        return {**found, "rope.scaling.attn_factor": rotary_frequencies(settings, head_dim, 2)[1]}
    return {
        **found,
        "rope.scaling.type": kind,
        "rope.scaling.factor": float(settings["factor"]),
        "rope.scaling.attn_factor": own / yarn_attention(settings["factor"]) if own else None,
        "rope.scaling.yarn_beta_fast": settings.get("beta_fast"),
        "rope.scaling.yarn_beta_slow": settings.get("beta_slow"),
    }


def _frequencies(config: DecoderConfig) -> dict[str, Floats]:
    """Tensors of factors of rotary frequencies."""
    settings = next(filter(None, config.ropes), None)
    if settings is None or settings["rope_type"] not in ("llama3", "longrope"):
        return {}
    if settings["rope_type"] == "longrope":
        return {
            f"rope_factors_{name}.weight": np.asarray(settings[f"{name}_factor"], np.float32)
            for name in ("long", "short")
        }
    scaled, _ = rotary_frequencies(settings, config.head_dim, 2)
    plain, _ = rotary_frequencies({**settings, "rope_type": "default"}, config.head_dim, 2)
    return {"rope_freqs.weight": (plain / scaled).astype(np.float32)}


def _parts(config: DecoderConfig, architecture: str, own: dict[str, Tensor]) -> Iterator[_TensorPlan]:
    """The tensors of the file, and what they are made of."""
    names = {module: name for name, module in MODULES.items()}
    if config.rules.gemma > 1:
        names |= {module: name for name, module in MODULES_WITH_NORMS_AFTER.items()}
    heads = {"self_attn.q_proj": config.heads, "self_attn.k_proj": config.kv_heads}
    qkv = tuple(f"self_attn.{part}_proj" for part in "qkv")
    joined = {
        "gpt2": {qkv[0]: ("attn_qkv", qkv)},
        "phi3": {qkv[0]: ("attn_qkv", qkv), "mlp.gate_proj": ("ffn_up", ("mlp.gate_proj", "mlp.up_proj"))},
    }.get(config.family, {})
    inside = {module for _, modules in joined.values() for module in modules[1:]}
    for key in own:
        path, _, leaf = key.rpartition(".")
        prefix, module = "", path
        if path.startswith("layers."):
            _, layer, module = path.split(".", 2)
            prefix = f"blk.{layer}."
        base = f"layers.{layer}." if prefix else ""
        if module in inside:
            continue
        if module.startswith("mlp.experts."):
            _, _, number, linear = module.split(".")
            if number == "0":
                sources = tuple(f"{base}mlp.experts.{n}.{linear}.{leaf}" for n in range(config.experts))
                yield _TensorPlan(f"{prefix}{names[f'mlp.experts.{linear}']}.{leaf}", sources, stacked=True)
        elif module in joined:
            name, modules = joined[module]
            yield _TensorPlan(f"{prefix}{name}.{leaf}", tuple(f"{base}{part}.{leaf}" for part in modules))
        else:
            turned = heads.get(module, 0) if architecture in NEIGHBOURS else 0
            yield _TensorPlan(f"{prefix}{names[module]}.{leaf}", (key,), heads=turned)


def _shape(part: _TensorPlan, own: dict[str, Tensor]) -> tuple[int, ...]:
    shapes = [own[source].shape for source in part.sources]
    if part.stacked:
        return (len(shapes), *shapes[0])
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _kind_of(
    part: _TensorPlan, own: dict[str, Tensor], config: DecoderConfig, kind: GGMLQuantizationType
) -> GGMLQuantizationType:
    shape, name = _shape(part, own), part.name.removesuffix(".weight").rpartition(".")[2]
    if len(shape) == 1 or name in WHOLE:
        return GGMLQuantizationType.F32
    last = name == "output" or (name == "token_embd" and config.tied)
    if last and kind == GGMLQuantizationType.Q4_0:
        kind = GGMLQuantizationType.Q8_0
    return GGMLQuantizationType.F16 if shape[-1] % GGML_QUANT_SIZES[kind][0] else kind


def _declare(
    writer: GGUFWriter, part: _TensorPlan, own: dict[str, Tensor], kind: GGMLQuantizationType
) -> None:
    *lead, columns = _shape(part, own)
    block, size = GGML_QUANT_SIZES[kind]
    row = columns // block * size
    floats = {GGMLQuantizationType.F32: np.float32, GGMLQuantizationType.F16: np.float16}
    count = int(np.prod(lead, dtype=np.int64))
    if kind in floats:
        writer.add_tensor_info(part.name, (*lead, columns), np.dtype(floats[kind]), count * row)
    else:
        writer.add_tensor_info(part.name, (*lead, row), np.dtype(np.uint8), count * row, kind)


def _numbers(part: _TensorPlan, own: dict[str, Tensor]) -> Floats:
    arrays = [own[source].float().numpy() for source in part.sources]
    made = np.stack(arrays) if part.stacked else np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
    if part.heads:
        made = made.reshape(part.heads, 2, -1, *made.shape[1:]).swapaxes(1, 2).reshape(made.shape)
    return np.ascontiguousarray(made)
