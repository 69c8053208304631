"""A language model and its tokenizer, from a folder or from Hugging Face's Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dl4all.errors import ArgumentError, BackendMissingError, ConfigError
from dl4all.llm.decoder import Decoder
from dl4all.llm.documents import read_json
from dl4all.llm.families import decoder_config
from dl4all.llm.lora import load_adapter
from dl4all.llm.tokenizer import Tokenizer
from dl4all.llm.weights import load_weights_into, weight_files
from dl4all.nn import init
from dl4all.ops.core.dtypes import FLOATING, checked_dtype
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device

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
        path_or_repo: a folder with ``config.json`` and safetensors files, or the name of a repository on
            Hugging Face's Hub, such as ``"HuggingFaceTB/SmolLM2-135M-Instruct"``, which is downloaded once.
        device: where the model is.
        dtype: of its weights; that of the configuration if not given. Wider ones hold them exactly.
        adapter_path: a folder with adapters (:func:`load_adapter`).
        revision: of the repository.

    Returns:
        The model, and its tokenizer, or None where there is no ``tokenizer.json``.

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
    folder = _folder(path_or_repo, revision)
    document = read_json(folder / "config.json")
    config = decoder_config(document)
    named = document.get("dtype") or document.get("torch_dtype") or "float32"
    kept = checked_dtype("llm", str(named) if dtype is None else dtype)
    if kept not in FLOATING:
        raise ConfigError(f"[llm] weights are floats, and dtype is {kept}")
    with init.skipping():
        model = Decoder(config)
    load_weights_into(model, weight_files(folder), open_device(device), kept)
    if adapter_path is not None:
        load_adapter(model, adapter_path)
    return model.eval(), Tokenizer.of_folder(folder)


def _folder(path_or_repo: str | Path, revision: str | None) -> Path:
    """The folder, or that of the downloaded repository."""
    path = Path(path_or_repo)
    if path.is_dir():
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
