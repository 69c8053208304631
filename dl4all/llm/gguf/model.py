"""A model of a GGUF file: its configuration and weights."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from dl4all.errors import ConfigError
from dl4all.llm.families import DecoderConfig, decoder_config
from dl4all.llm.gguf.architectures import decoder_rows, document_of
from dl4all.llm.gguf.reader import GgufFile
from dl4all.llm.gguf.row_bytes import FLOATS, PACKED, RowBytes
from dl4all.llm.weights import IGNORED, HeldType, Weight
from dl4all.quantization.packed_weights import PackedWeight
from dl4all.tensor.creation import from_numpy


def gguf_config(file: GgufFile) -> DecoderConfig:
    """The configuration of a file's model.

    Raises:
        ConfigError: the architecture is not known, or a value is missing or wrong.
    """
    try:
        document = document_of(file)
    except (TypeError, ValueError, ArithmeticError) as error:  # of values that are of other types
        raise ConfigError(f"[llm] the file's metadata is damaged: {error}") from error
    return decoder_config(document)


def gguf_dtype(file: GgufFile) -> np.dtype[Any]:
    """The type that most of a file's matrices have, if it is one of floats, or else float32."""
    kinds = Counter(tensor.kind for tensor in file.tensors.values() if len(tensor.shape) > 1)
    usual = max(kinds, key=kinds.__getitem__, default=0)
    return np.dtype(FLOATS.get(usual, np.float32))


def gguf_weights(file: GgufFile, config: DecoderConfig, *, widened: bool) -> Iterator[Weight]:
    """The weights of a file.

    Args:
        widened: make floats of those in few bits.

    Raises:
        FileFormatError: a tensor has other axes than the model's.
    """
    architecture = file.metadata["general.architecture"]
    for name, ours, rows in decoder_rows(file, config, architecture):
        if IGNORED.search(ours) or (config.tied and ours == "lm_head.weight"):
            continue
        yield name, ours, rows.floats() if widened or rows.kind not in PACKED else _packed(rows)


def gguf_sizes(file: GgufFile, config: DecoderConfig, held: HeldType, *, widened: bool) -> dict[str, int]:
    """Bytes of the weights in memory, by names that begin as the decoder's do."""
    sizes = {}
    for name, tensor in file.tensors.items():
        layer = re.sub("^blk[.]", "layers.", name)
        layer = re.sub("^token_embd", "embed_tokens", re.sub("^output[.]", "lm_head.", layer))
        if tensor.kind in PACKED and not widened:
            sizes[layer] = tensor.data.nbytes
        else:
            *lead, columns = tensor.shape
            shape = [math.prod(lead), columns] if lead else [columns]  # of experts one below the other
            sizes[layer] = held.nbytes(config, layer, shape)
    if config.tied:
        sizes.pop("lm_head.weight", None)
    return sizes


def _packed(rows: RowBytes) -> PackedWeight:
    format = PACKED[rows.kind]
    data, scales = format.split(rows.data)
    qdata, scale = (from_numpy(np.ascontiguousarray(part), "cpu") for part in (data, scales))
    return PackedWeight(qdata, scale, format.name)
