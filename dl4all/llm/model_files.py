"""A language model and its tokenizer, from a folder, a GGUF file, or Hugging Face's Hub."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import ArgumentError, BackendMissingError, ConfigError, WeightsError
from dl4all.llm.decoder import Decoder
from dl4all.llm.documents import read_json
from dl4all.llm.families import DecoderConfig, decoder_config
from dl4all.llm.lora import load_adapter
from dl4all.llm.tokenizer import Tokenizer
from dl4all.llm.weights import Weight, load_weights_into, weight_files, weights_of_files
from dl4all.nn import init
from dl4all.ops.core.dtypes import FLOATING, checked_dtype
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device

GGUF = ".gguf"
FILES = ["*.json", "*.safetensors", "*.jinja"]
"""Files of a repository that are downloaded."""


def load(
    path_or_repo: str | Path,
    *,
    device: str | Device = "auto",
    dtype: Any = None,
    adapter_path: str | Path | None = None,
    revision: str | None = None,
) -> tuple[Decoder, Tokenizer | None]:
    """A language model, ready for inference, and its tokenizer.

    Args:
        path_or_repo: a folder with ``config.json`` and safetensors files; a file of the suffix ``.gguf``; or
            the name of a repository on Hugging Face's Hub, such as ``"HuggingFaceTB/SmolLM2-135M-Instruct"``,
            which is downloaded once.
        device: where the model is.
        dtype: of its weights; if not given, they stay in the file's type: bfloat16, or for GGUF the blocks of
            Q4_0, Q8_0, Q4_K and Q6_K, too (:class:`dl4all.quantization.PackedWeight`). Wider ones hold them
            exactly.
        adapter_path: a folder with adapters (:func:`load_adapter`).
        revision: of the repository.

    Returns:
        The model, and its tokenizer, or None where the files have none.

    Raises:
        ArgumentError: there is neither such a folder nor such a repository.
        ConfigError: the model's family, or a part of its configuration, is not known.
        FileFormatError: a file is missing or damaged.
        WeightsError: the files have other weights than the model.

    Example:
        >>> import dl4all as dl
        >>> dl.llm.load("no/such/folder/here")
        Traceback (most recent call last):
        dl4all.errors.ArgumentError: [llm] there is no folder no/such/folder/here
    """
    path = _path(path_or_repo, revision)
    given = None if dtype is None else _floats(dtype)
    source = _gguf(path, given) if path.suffix == GGUF else _folder(path, given)
    if source.config.least_numbers > source.numbers:  # before memory is taken for them
        raise WeightsError(
            f"[llm] the model that {path} describes has at least {source.config.least_numbers} numbers, the "
            f"files have no more than {source.numbers}"
        )
    with init.skipping():
        model = Decoder(source.config)
    load_weights_into(model, source.weights, open_device(device), source.dtype)
    if adapter_path is not None:
        load_adapter(model, adapter_path)
    return model.eval(), source.tokenizer


class _Source(NamedTuple):
    """A model as files have it; `numbers` is how many they have at most."""

    config: DecoderConfig
    numbers: int
    dtype: np.dtype[Any]
    weights: Iterable[Weight]
    tokenizer: Tokenizer | None


def _folder(folder: Path, dtype: np.dtype[Any] | None) -> _Source:
    document = read_json(folder / "config.json")
    config = decoder_config(document)
    named = document.get("dtype") or document.get("torch_dtype") or "float32"
    kept = _floats(str(named)) if dtype is None else dtype
    files = weight_files(folder)
    numbers = sum(file.stat().st_size for file in files if file.is_file())
    return _Source(config, numbers, kept, weights_of_files(config, files), Tokenizer.of_folder(folder))


def _gguf(path: Path, dtype: np.dtype[Any] | None) -> _Source:
    try:
        from dl4all.llm.gguf.model import gguf_config, gguf_dtype, gguf_weights
        from dl4all.llm.gguf.reader import read_gguf
        from dl4all.llm.gguf.vocabulary import tokenizer_of
    except ImportError:
        raise BackendMissingError(
            "[llm] GGUF files need the package gguf: pip install 'dl4all[llm]'"
        ) from None
    file = read_gguf(path)
    config = gguf_config(file)
    weights = gguf_weights(file, config, widened=dtype is not None)
    numbers = sum(math.prod(tensor.shape) for tensor in file.tensors.values())
    return _Source(config, numbers, dtype or gguf_dtype(file), weights, tokenizer_of(file.metadata))


def _floats(dtype: Any) -> np.dtype[Any]:
    """
    Raises:
        ConfigError
    """
    kept = checked_dtype("llm", dtype)
    if kept not in FLOATING:
        raise ConfigError(f"[llm] weights are floats, and dtype is {kept}")
    return kept


def _path(path_or_repo: str | Path, revision: str | None) -> Path:
    """The folder or file, or the folder of the downloaded repository."""
    path = Path(path_or_repo)
    if path.is_dir() or (path.suffix == GGUF and path.is_file()):
        return path
    if path.exists() or not isinstance(path_or_repo, str) or path_or_repo.count("/") != 1:
        raise ArgumentError(f"[llm] there is no folder {path}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise BackendMissingError(
            f"[llm] there is no folder {path}, and to download a repository huggingface_hub is needed: "
            "pip install 'dl4all[llm]'"
        ) from None
    try:
        return Path(snapshot_download(path_or_repo, revision=revision, allow_patterns=FILES))
    except (OSError, ValueError) as error:  # of the network, of the cache, or of the name
        raise ArgumentError(f"[llm] there is no folder {path}, and no such repository: {error}") from error
