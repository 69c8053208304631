"""Checkpoints: everything that a training run needs to go on, written whole or not at all.

A checkpoint is a folder ``step-00000120`` with ``state.safetensors`` (the arrays), ``state.json`` (everything
else, with the arrays' names in their places) and ``manifest.json`` (the sha256 and the size of both). It is
written beside its place under another name, synced to the disk and renamed, so that a process that is
killed leaves the old ones and perhaps a folder that the next one removes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, FileFormatError
from dl4all.io.weights import load_weights, save_weights
from dl4all.tensor.tensor import Tensor

ARRAY = "$array"  # the key of an object in state.json that stands for an array
FILES = ("state.safetensors", "state.json")
NAME = re.compile(r"step-(\d{8,})")
UNFINISHED = ".unfinished-"

logger = logging.getLogger("dl4all")


def save_checkpoint(folder: str | Path, step: int, state: Mapping[str, Any], keep: int = 3) -> Path:
    """Write a checkpoint, and remove old ones.

    Args:
        folder: where the checkpoints of a run are; made if it is missing.
        step: the number that orders them.
        state: nested dicts and lists of tensors, NumPy arrays, numbers, texts, booleans and None.
        keep: how many checkpoints stay, with this one; the one that ``best`` names stays as well.

    Returns:
        The checkpoint's own folder.

    Raises:
        ArgumentError: the state holds something else, or a number is out of range.
        OSError: it cannot be written; older checkpoints are untouched.

    Example:
        >>> import tempfile, numpy as np
        >>> from dl4all.io import load_checkpoint, save_checkpoint
        >>> folder = tempfile.mkdtemp()
        >>> _ = save_checkpoint(folder, 120, {"epoch": 3, "weights": {"w": np.arange(2.0)}})
        >>> load_checkpoint(folder)["weights"]["w"]
        array([0., 1.])
    """
    if step < 0 or keep < 1:
        raise ArgumentError(f"[save_checkpoint] step {step} must be at least 0, keep {keep} at least 1")
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, npt.NDArray[Any]] = {}
    skeleton = _take_out(state, "state", arrays)
    part = root / f"{UNFINISHED}{secrets.token_hex(8)}"
    part.mkdir()
    try:
        save_weights(part / FILES[0], arrays)
        _write(part / FILES[1], json.dumps(skeleton, allow_nan=True))
        manifest = {"step": step, "files": {name: _facts(part / name) for name in FILES}}
        _write(part / "manifest.json", json.dumps(manifest, indent=1))
        _sync(part)
        target = root / f"step-{step:08d}"
        if target.exists():  # a run that went back and came here again
            target.rename(root / f"{UNFINISHED}{secrets.token_hex(8)}")
        part.rename(target)
        _sync(root)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    _remove_old(root, keep)
    return target


def load_checkpoint(folder: str | Path) -> dict[str, Any]:
    """The newest good checkpoint of a run; arrays come as NumPy arrays.

    One that is damaged or unfinished is named in a warning and the one before it is taken.

    Args:
        folder: that of the run, or a checkpoint's own.

    Raises:
        FileFormatError: there is none that is good; every damaged one is named.
    """
    root = Path(folder)
    candidates = [root] if NAME.fullmatch(root.name) else [path for _, path in reversed(checkpoints(root))]
    problems = []
    for path in candidates:
        try:
            return _load(path)
        except FileFormatError as error:
            problems.append(str(error))
            logger.warning("%s; going back to the checkpoint before it", error)
    raise FileFormatError("; ".join(problems) or f"{root}: there is no checkpoint")


def checkpoints(folder: str | Path) -> list[tuple[int, Path]]:
    """The checkpoints of a run as (step, folder), the oldest first."""
    root = Path(folder)
    found = [(NAME.fullmatch(path.name), path) for path in root.iterdir()] if root.is_dir() else []
    return sorted((int(match[1]), path) for match, path in found if match)


def mark_best(folder: str | Path, step: int) -> None:
    """Keep the checkpoint of this step however old it becomes."""
    root = Path(folder)
    part = root / f"{UNFINISHED}{secrets.token_hex(8)}"
    _write(part, str(step))
    part.replace(root / "best")


def best_step(folder: str | Path) -> int | None:
    """The step that :func:`mark_best` was told last."""
    try:
        return int((Path(folder) / "best").read_text())
    except (OSError, ValueError):
        return None


def _take_out(value: Any, name: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """The value with its arrays moved to `arrays` and their names in their places."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
        arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
        return {ARRAY: name}
    if isinstance(value, Mapping):
        keys = [json.dumps(key) for key in value]  # 1 and "1" are different keys
        entries = [_take_out(v, f"{name}.{k}", arrays) for k, v in zip(keys, value.values(), strict=True)]
        return {"$dict": list(zip(keys, entries, strict=True))}
    if isinstance(value, (list, tuple)):
        return [_take_out(entry, f"{name}.{i}", arrays) for i, entry in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ArgumentError(f"[save_checkpoint] {name} is {type(value).__name__}, which cannot be kept")


def _put_back(value: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    if isinstance(value, list):
        return [_put_back(entry, arrays) for entry in value]
    if isinstance(value, dict) and ARRAY in value:
        return arrays[value[ARRAY]]
    if isinstance(value, dict):
        return {json.loads(key): _put_back(entry, arrays) for key, entry in value["$dict"]}
    return value


def _load(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        for name in FILES:
            if manifest["files"][name] != _facts(path / name):
                raise FileFormatError(
                    f"{path / name}: truncated or damaged, its sha256 is not the manifest's"
                )
        skeleton = json.loads((path / FILES[1]).read_text(encoding="utf-8"))
        state: dict[str, Any] = _put_back(skeleton, load_weights(path / FILES[0]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{path}: unreadable checkpoint: {error}") from None
    return state


def _facts(file: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return {"sha256": digest.hexdigest(), "bytes": file.stat().st_size}


def _write(file: Path, text: str) -> None:
    with file.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk; where folders cannot be synced, the system does it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_old(root: Path, keep: int) -> None:
    best = best_step(root)
    for step, path in checkpoints(root)[:-keep]:
        if step != best:
            shutil.rmtree(path, ignore_errors=True)
    for path in root.glob(f"{UNFINISHED}*"):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
