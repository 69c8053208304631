"""A language model and its tokenizer, from a folder, a GGUF file, or Hugging Face's Hub."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import ArgumentError, BackendMissingError, ConfigError, DTypeError, WeightsError
from dl4all.lazy_names import install_command
from dl4all.llm.decoder import Decoder
from dl4all.llm.documents import read_json
from dl4all.llm.families import DecoderConfig, decoder_config
from dl4all.llm.layer_devices import LAYER, WeightBytes, layer_devices
from dl4all.llm.lora import load_adapter
from dl4all.llm.tokenizer import Tokenizer
from dl4all.llm.weights import HeldType, Weight, load_weights_into, weight_files, weights_of_files
from dl4all.nn import init
from dl4all.ops.core.dtypes import FLOAT32, FLOATING, checked_dtype
from dl4all.quantization.packed_weights import MADE
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device

GGUF = ".gguf"
FILES = ["*.json", "*.safetensors", "*.jinja"]
"""Files of a repository that are downloaded."""


def load(
    path_or_repo: str | Path,
    *,
    device: str | Device = "auto",
    devices: Sequence[str | Device] | None = None,
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
        devices: in its place, several, whose free memory says which layers lie where: as many as there is
            room for on the first, then on the second, and so on (:mod:`dl4all.llm.layer_devices`).
        dtype: of its weights; if not given, they stay in the file's type: bfloat16, or for GGUF the blocks of
            Q4_0, Q8_0, Q4_K and Q6_K, too (:class:`dl4all.quantization.PackedWeight`). Wider ones hold them
            exactly. ``"q4_0"`` and ``"q8_0"`` bring matrices of floats to such blocks as they are read; those
            in few bits stay as they are.
        adapter_path: a folder with adapters (:func:`load_adapter`).
        revision: of the repository.

    Returns:
        The model, and its tokenizer, or None where the files have none.

    Raises:
        ArgumentError: there is neither such a folder nor such a repository.
        ConfigError: the model's family, or a part of its configuration, is not known.
        FileFormatError: a file is missing or damaged.
        WeightsError: the files have other weights than the model.
        OutOfMemoryError: `devices` have no room for it; nothing was read.

    Example:
        >>> import dl4all as dl
        >>> dl.llm.load("no/such/folder/here")
        Traceback (most recent call last):
        dl4all.errors.ArgumentError: [llm] there is no folder no/such/folder/here
    """
    if isinstance(devices, str):
        raise ArgumentError(f"[llm] devices is a list of names, got {devices!r}; device= takes one")
    path = _path(path_or_repo, revision)
    given = None if dtype is None else _held_type(dtype)
    source = _gguf(path, given) if path.suffix == GGUF else _folder(path, given)
    if source.config.least_numbers > source.numbers:  # before memory is taken for them
        raise WeightsError(
            f"[llm] the model that {path} describes has at least {source.config.least_numbers} numbers, the "
            f"files have no more than {source.numbers}"
        )
    with init.skipping():
        model = Decoder(source.config)
    if devices is None:
        places = [open_device(device)] * source.config.layers
    else:
        places = _places(model, source, [open_device(one) for one in devices])
    load_weights_into(model, source.weights, partial(_device_of, places), source.held)
    if adapter_path is not None:
        load_adapter(model, adapter_path)
    return model.eval(), source.tokenizer


class _Source(NamedTuple):
    """A model as files have it; `numbers` is how many they have at most, `sizes` are bytes if others than
    the model's shapes and the type say."""

    config: DecoderConfig
    numbers: int
    held: HeldType
    weights: Iterable[Weight]
    tokenizer: Tokenizer | None
    sizes: dict[str, int] | None = None


def _places(model: Decoder, source: _Source, devices: list[Device]) -> list[Device]:
    """The device of each layer.

    Raises:
        OutOfMemoryError: there is no room.
    """
    config, held = source.config, source.held
    sizes = source.sizes or {
        name: held.nbytes(config, name, parameter.shape) for name, parameter in model.named_parameters()
    }
    return layer_devices(config, WeightBytes.of(config, sizes), held.dtype.itemsize, devices)


def _device_of(places: list[Device], name: str) -> Device:
    """The device of a weight: that of its layer, or of the first or last one."""
    if (match := LAYER.match(name)) is not None:
        return places[int(match[1])]
    return places[0 if name.startswith("embed") else -1]


def _folder(folder: Path, given: HeldType | None) -> _Source:
    document = read_json(folder / "config.json")
    config = decoder_config(document)
    named = document.get("dtype") or document.get("torch_dtype") or "float32"
    held = HeldType(_floats(str(named))) if given is None else given
    files = weight_files(folder)
    numbers = sum(file.stat().st_size for file in files if file.is_file())
    return _Source(config, numbers, held, weights_of_files(config, files), Tokenizer.of_folder(folder))


def _gguf(path: Path, given: HeldType | None) -> _Source:
    try:
        from dl4all.llm.gguf.model import gguf_config, gguf_dtype, gguf_sizes, gguf_weights
        from dl4all.llm.gguf.reader import read_gguf
        from dl4all.llm.gguf.vocabulary import tokenizer_of
    except ImportError:
        raise BackendMissingError(
            f"[llm] GGUF files need the package gguf: {install_command('llm')}"
        ) from None
    file = read_gguf(path)
    config = gguf_config(file)
    widened = given is not None and not given.format
    held = HeldType(gguf_dtype(file)) if given is None else given
    weights = gguf_weights(file, config, widened=widened)
    numbers = sum(math.prod(tensor.shape) for tensor in file.tensors.values())
    sizes = gguf_sizes(file, config, held, widened=widened)
    return _Source(config, numbers, held, weights, tokenizer_of(file.metadata), sizes)


def _held_type(dtype: Any) -> HeldType:
    """
    Raises:
        ConfigError, DTypeError: weights cannot be of this type.
    """
    if isinstance(dtype, str) and dtype.upper() in MADE:
        return HeldType(FLOAT32, dtype.upper())
    try:
        return HeldType(_floats(dtype))
    except DTypeError as error:
        raise DTypeError(f"{error}; or {' or '.join(map(str.lower, MADE))}") from None


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
            f"{install_command('llm')}"
        ) from None
    try:
        return Path(snapshot_download(path_or_repo, revision=revision, allow_patterns=FILES))
    except (OSError, ValueError) as error:  # of the network, of the cache, or of the name
        raise ArgumentError(f"[llm] there is no folder {path}, and no such repository: {error}") from error
