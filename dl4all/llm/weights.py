"""Weights of files, by the names that the decoder has for them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.errors import FileFormatError, WeightsError
from dl4all.io.weights import each_weight
from dl4all.llm.decoder import Decoder
from dl4all.llm.families import DecoderConfig
from dl4all.nn.parameter import Parameter
from dl4all.ops.linalg.packed_formats import FORMATS, Q8_0, UNIT
from dl4all.quantization.packed_weights import PackedWeight
from dl4all.quantization.weights import QuantizedWeight
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import from_numpy

Array = npt.NDArray[Any]
Weight: TypeAlias = tuple[str, str, "Array | QuantizedWeight"]
"""A weight: its origin, its name in the model, and its numbers."""

PREFIXES = (r"^language_model\.", r"^(model|transformer)\.", r"^language_model\.")
IGNORED = re.compile(r"(rotary_emb\.inv_freq|\.attn\.(masked_)?bias)$")
"""Tables that some files have beside the weights."""
WHOLE = re.compile(r"(embed_positions|mlp\.gate|shared_expert_gate)$")
"""Layers that stay in floats: they are small, and what they choose is not."""


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder: those of its index, or all.

    Raises:
        FileFormatError: there is none, or the index is damaged.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise FileFormatError(f"[llm] {index} is damaged: {error}") from error
        if any(not isinstance(name, str) or Path(name).name != name for name in names):
            raise FileFormatError(f"[llm] {index} names files outside its folder")
        return [folder / name for name in names]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileFormatError(f"[llm] {folder} has no safetensors files")
    return files


class HeldType(NamedTuple):
    """The type that weights have in memory.

    Attributes:
        dtype: of floats; norms of Gemma stay in float32.
        format: that matrices of floats are brought to: ``"Q4_0"`` or ``"Q8_0"``; empty for none. As in GGUF
            files, the last layer's is Q8_0 in any case, and what chooses experts stays as it is.
    """

    dtype: np.dtype[Any]
    format: str = ""

    def format_of(self, config: DecoderConfig, name: str, shape: Sequence[int]) -> str:
        """The format of a weight; empty for one that stays in floats."""
        layer, _, leaf = name.rpartition(".")
        if not self.format or leaf != "weight" or len(shape) != 2 or shape[-1] % UNIT or WHOLE.search(layer):
            return ""
        last = layer == ("embed_tokens" if config.tied else "lm_head")
        return Q8_0.name if last else self.format

    def nbytes(self, config: DecoderConfig, name: str, shape: Sequence[int]) -> int:
        """The bytes of a weight."""
        if not (format := self.format_of(config, name, shape)):
            return math.prod(shape) * self.dtype.itemsize
        block = FORMATS[format]
        return math.prod(shape) // block.weights * (block.size + 2 * block.scales)


def load_weights_into(
    model: Decoder, weights: Iterable[Weight], device_of: Callable[[str], Device], held: HeldType
) -> None:
    """Put weights one by one in the place of those that are there, so that only one is there twice.

    Args:
        device_of: the device of a weight by its name.
        held: their type.

    Raises:
        WeightsError: a tensor has another shape, is not the model's, or is missing.
    """
    own = dict(model.named_parameters())
    missing = set(own)
    for source, ours, value in weights:
        if ours not in own:
            raise WeightsError(f"[llm] the file has {source}, which the model has not")
        if own[ours].shape != value.shape:
            raise WeightsError(f"[llm] {source} is {value.shape}, the model's {ours} {own[ours].shape}")
        layer, _, leaf = ours.rpartition(".")
        made = _made(model.config, ours, value, device_of(ours), held)
        setattr(model.get_submodule(layer), leaf, made)
        missing.discard(ours)
    if missing:
        raise WeightsError(f"[llm] no file has {', '.join(sorted(missing)[:5])} ({len(missing)} in all)")


def _made(
    config: DecoderConfig, ours: str, value: Array | QuantizedWeight, device: Device, held: HeldType
) -> Parameter | QuantizedWeight:
    if isinstance(value, QuantizedWeight):
        return value.to(device).eval()
    if format := held.format_of(config, ours, value.shape):
        floats = from_numpy(np.ascontiguousarray(value).astype(np.float32, copy=False), "cpu")
        return PackedWeight.nearest(floats, format).to(device).eval()
    widened = config.rules.gemma and "norm" in ours  # 1 + w needs all its digits
    stored = np.ascontiguousarray(value).astype(np.float32 if widened else held.dtype, copy=False)
    return Parameter(from_numpy(stored, device))


def weights_of_files(config: DecoderConfig, files: list[Path]) -> Iterator[Weight]:
    """The weights of safetensors files.

    Raises:
        FileFormatError: a file is missing or damaged.
    """
    for file in files:
        for name, array in each_weight(file):
            for ours, part in renamed(config, name, array):
                yield f"{name} of {file.name}", ours, part


def renamed(config: DecoderConfig, name: str, array: Array) -> Iterator[tuple[str, Array]]:
    """The model's names and arrays of one array of a file."""
    if IGNORED.search(name) or (config.tied and name.endswith("lm_head.weight")):
        return
    for prefix in PREFIXES:
        name = re.sub(prefix, "", name)
    for old, new in config.rules.names:
        name = re.sub(old, new, name)
    if config.rules.plain and array.ndim == 2 and name.startswith("layers"):
        array = array.T
    if config.rules.gemma and "norm" in name:
        array = array.astype(np.float32) + np.float32(1)
    heads, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    for fused, parts, cuts in (
        ("qkv_proj", ("q_proj", "k_proj", "v_proj"), [heads, heads + kv]),
        ("gate_up_proj", ("gate_proj", "up_proj"), [config.inner]),
    ):
        if f".{fused}." in name:
            for part, piece in zip(parts, np.split(array, cuts, 0), strict=True):
                yield name.replace(fused, part), piece
            return
    yield name, array
