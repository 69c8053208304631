"""``torch.hub`` without a network: weight files that were fetched before are found in PyTorch's folder."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlparse

from dl4all.errors import ArgumentError, FileFormatError
from dl4all.io import serialization

__all__ = ["get_dir", "load_state_dict_from_url", "set_dir"]

HASH = re.compile(r"-([0-9a-f]{8,})\.")  # the start of a file's sha256, in its name

_folder: Path | None = None  # that of set_dir


def get_dir() -> str:
    """The folder of PyTorch's hub: that of :func:`set_dir`, ``$TORCH_HOME/hub`` or ``~/.cache/torch/hub``.

    Example:
        >>> get_dir().endswith("hub")
        True
    """
    if _folder is not None:
        return str(_folder)
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("TORCH_HOME", str(Path(cache, "torch")))
    return str(Path(home, "hub").expanduser())


def set_dir(d: str | Path | None) -> None:
    """Set the folder that :func:`get_dir` returns; None for PyTorch's again.

    Example:
        >>> set_dir("models/hub")
        >>> get_dir()
        'models/hub'
        >>> set_dir(None)
    """
    global _folder
    _folder = None if d is None else Path(d)


def load_state_dict_from_url(
    url: str,
    model_dir: str | Path | None = None,
    map_location: serialization.MapLocation = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """Load the weight file of an address, if it was fetched before; dl4all itself fetches nothing.

    Args:
        url: where the file comes from; its name is the last part.
        model_dir: the folder of the file; by default ``checkpoints`` in :func:`get_dir`, as PyTorch's.
        map_location: where tensors go; see :func:`dl4all.load`.
        progress: accepted.
        check_hash: compare the file's sha256 with the one in its name.
        file_name: the file's name, if it is another one.
        weights_only: accepted; nothing in a file is executed.

    Returns:
        What the file holds.

    Raises:
        ArgumentError: the file is not there; the message says from where to fetch it and where to put it.
        FileFormatError: it is damaged, or its sha256 is not the one in its name.

    Example:
        >>> import pathlib, tempfile
        >>> import dl4all as dl
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> dl.save({"w": dl.zeros(2)}, folder / "net.pth")
        >>> dl.hub.load_state_dict_from_url("https://example.org/net.pth", folder)["w"].shape
        (2,)
    """
    folder = Path(get_dir(), "checkpoints") if model_dir is None else Path(model_dir)
    file = folder / (file_name or Path(urlparse(url).path).name)
    if not file.is_file():
        raise ArgumentError(
            f"[load_state_dict_from_url] {file} is missing, and dl4all fetches nothing; get it by: "
            f"curl --create-dirs -L -o {file} {url}"
        )
    expected = HASH.search(file.name)
    if check_hash and expected is not None:
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if not found.startswith(expected[1]):
            raise FileFormatError(
                f"{file}: its sha256 begins with {found[: len(expected[1])]}; fetch it again"
            )
    return serialization.load(file, map_location, weights_only=weights_only)


def __getattr__(name: str) -> NoReturn:
    if name in ("load", "list", "help", "download_url_to_file", "DownloadProgress"):
        raise AttributeError(
            f"dl4all.hub.{name} is not planned: it fetches programs and runs them; use dl4all.models, or "
            "build the network yourself and load its weights by dl.hub.load_state_dict_from_url"
        )
    raise AttributeError(f"module 'dl4all.hub' has no attribute {name!r}")
