"""Checkpoints: the whole state of a training run, written atomically.

A checkpoint is a folder ``step-00000120`` with ``state.safetensors`` (the arrays), ``state.json`` (everything
else, with the arrays' names in place of the arrays) and ``manifest.json`` (the sha256 and the size of both).
It is written under a temporary name, synced to the disk and renamed. A process that is killed thus leaves
the older checkpoints, and perhaps a temporary folder that the next run removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, FileFormatError
from dl4all.io.files import sync_folder, write_text
from dl4all.io.folder_lock import writing
from dl4all.io.weight_file import brief, opened
from dl4all.io.weights import load_weights, save_weights
from dl4all.tensor.tensor import Tensor

ARRAY_KEY = "$array"  # the key of an object in state.json that stands for an array
ARRAYS_FILE, STATE_FILE = FILES = ("state.safetensors", "state.json")
FOLDER_NAME = re.compile(r"step-(\d{8,})")
UNFINISHED_PREFIX = ".unfinished-"

logger = logging.getLogger("dl4all")

_unfinished: set[Path] = set()  # what this process is writing at the moment


def save_checkpoint(folder: str | Path, step: int, state: Mapping[str, Any], keep: int = 3) -> Path:
    """Write a checkpoint, and remove old ones.

    Args:
        folder: the folder of a run's checkpoints; it is created if it is missing.
        step: the number of the checkpoint; numbers give the order.
        state: nested dicts and lists of tensors, NumPy arrays, numbers, texts, booleans and None.
        keep: how many checkpoints to keep, including this one; the best one is always kept.

    Returns:
        The folder of the checkpoint.

    Raises:
        ArgumentError: the state holds an object of another type or itself, is nested too deeply for Python,
            or a number is out of range.
        FolderInUseError: another run writes to the folder; see :func:`dl4all.io.lock_folder`.
        OSError: the checkpoint cannot be written; the message names the file, and older ones are unchanged.

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
    arrays: dict[str, npt.NDArray[Any]] = {}
    try:
        skeleton = json.dumps(_extract_arrays(state, "state", arrays), allow_nan=True)
    except RecursionError:
        raise ArgumentError(
            "[save_checkpoint] the state is nested too deeply, or holds itself; keep flat dicts of tensors"
        ) from None
    with writing(root) as alone:
        part = _temporary(root)
        _unfinished.add(part)
        moved = _temporary(root)
        try:
            part.mkdir()
            save_weights(part / ARRAYS_FILE, arrays)
            write_text(part / STATE_FILE, skeleton)
            files = {}
            for name in FILES:
                with (part / name).open("rb") as stream:
                    files[name] = _digest(stream)
            manifest = {"step": step, "files": files}
            write_text(part / "manifest.json", json.dumps(manifest, indent=1))
            sync_folder(part)
            target = root / f"step-{step:08d}"
            if target.exists():  # a resumed run has come to this step again
                target.rename(moved)
            part.rename(target)
            sync_folder(root)
        except BaseException:
            if moved.exists() and not target.exists():
                moved.rename(target)
            shutil.rmtree(part, ignore_errors=True)
            raise
        finally:
            _unfinished.discard(part)
        _remove_old(root, keep, alone)
    return target


def load_checkpoint(folder: str | Path) -> dict[str, Any]:
    """Load the newest good checkpoint of a run; tensors come back as NumPy arrays.

    A warning names each damaged or unfinished checkpoint that is skipped. The newest is the one with the
    highest step, whatever the files' times say. A run may be writing to the folder meanwhile.

    Args:
        folder: the folder of the run, or of one checkpoint.

    Raises:
        FileFormatError: no checkpoint is good; the message names every damaged one.
        OutOfMemoryError: a checkpoint that may be good does not fit in host memory.

    Example:
        >>> import dl4all as dl
        >>> path = dl.io.save_checkpoint("run", 3, {"losses": [0.5]})
        >>> dl.io.load_checkpoint("run")["losses"]
        [0.5]
    """
    root = Path(folder)
    if FOLDER_NAME.fullmatch(root.name):
        return _load(root)
    tried: set[Path] = set()
    problems: list[str] = []
    # Again where a run that is writing has meanwhile put a newer one in the place of those that were listed.
    while untried := [path for _, path in checkpoints(root) if path not in tried]:
        path = untried[-1]
        tried.add(path)
        try:
            return _load(path)
        except FileFormatError as error:
            if path.exists():
                problems.append(str(error))
                logger.warning("%s; going back to the checkpoint before it", error)
    raise FileFormatError("; ".join(problems) or f"{root}: there is no checkpoint")


def checkpoints(folder: str | Path) -> list[tuple[int, Path]]:
    """The checkpoints of a run as (step, folder), in the order of the steps.

    Example:
        >>> import dl4all as dl
        >>> path = dl.io.save_checkpoint("run", 3, {"losses": [0.5]})
        >>> [step for step, path in dl.io.checkpoints("run")]
        [3]
    """
    root = Path(folder)
    matches = [(FOLDER_NAME.fullmatch(path.name), path) for path in root.iterdir()] if root.is_dir() else []
    return sorted((int(match[1]), path) for match, path in matches if match)


def mark_best(folder: str | Path, step: int) -> None:
    """Mark the checkpoint of a step as the best, which is never removed.

    Raises:
        FolderInUseError: another run writes to the folder.
        OSError: the mark cannot be written.

    Example:
        >>> import dl4all as dl
        >>> path = dl.io.save_checkpoint("run", 3, {"losses": [0.5]})
        >>> dl.io.mark_best("run", 3)
        >>> dl.io.best_step("run")
        3
    """
    root = Path(folder)
    with writing(root):
        part = _temporary(root)
        write_text(part, str(step))
        part.replace(root / "best")


def best_step(folder: str | Path) -> int | None:
    """The step that :func:`mark_best` has marked last; None before.

    Example:
        >>> import dl4all as dl
        >>> dl.io.best_step("an-empty-folder") is None
        True
    """
    try:
        return int((Path(folder) / "best").read_text())
    except (OSError, ValueError):
        return None


def _extract_arrays(value: Any, name: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """The value with its arrays moved to `arrays`, and their names in place of them."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
        arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
        return {ARRAY_KEY: name}
    if isinstance(value, Mapping):
        keys = [json.dumps(key) for key in value]  # 1 and "1" are different keys
        entries = [
            _extract_arrays(v, f"{name}.{k}", arrays) for k, v in zip(keys, value.values(), strict=True)
        ]
        return {"$dict": list(zip(keys, entries, strict=True))}
    if isinstance(value, (list, tuple)):
        return [_extract_arrays(entry, f"{name}.{i}", arrays) for i, entry in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ArgumentError(f"[save_checkpoint] {name} is {type(value).__name__}, which cannot be kept")


def _insert_arrays(value: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """The inverse of :func:`_extract_arrays`."""
    if isinstance(value, list):
        return [_insert_arrays(entry, arrays) for entry in value]
    if isinstance(value, dict) and ARRAY_KEY in value:
        return arrays[value[ARRAY_KEY]]
    if isinstance(value, dict):
        return {json.loads(key): _insert_arrays(entry, arrays) for key, entry in value["$dict"]}
    return value


def _load(path: Path) -> dict[str, Any]:
    """The state in one checkpoint's folder.

    Raises:
        FileFormatError: the checkpoint is damaged or unfinished.
    """
    try:
        manifest = json.loads(_read(path / "manifest.json"))
        for name in FILES:
            with opened(path / name) as stream:
                found = _digest(stream)
            if manifest["files"][name] != found:
                raise FileFormatError(
                    f"{path / name}: truncated or damaged, its sha256 is not the manifest's"
                )
        text = _read(path / STATE_FILE)
        arrays = load_weights(path / ARRAYS_FILE, max_tensors=text.count(ARRAY_KEY))
        state = _insert_arrays(json.loads(text), arrays)
        if not isinstance(state, dict):
            raise TypeError(f"{STATE_FILE} holds no state")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{path}: unreadable checkpoint: {brief(str(error), 200)}") from None
    return state


def _read(file: Path) -> str:
    """The text in a regular file; opening a pipe would wait for its writer.

    Raises:
        FileFormatError: it cannot be read.
    """
    with opened(file) as stream:
        return stream.read().decode("utf-8")


def _digest(stream: BinaryIO) -> dict[str, Any]:
    """The sha256 and the size of a file, as in the manifest."""
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return {"sha256": digest.hexdigest(), "bytes": stream.tell()}


def _temporary(root: Path) -> Path:
    """A path for a file or folder that is not complete yet."""
    return root / f"{UNFINISHED_PREFIX}{secrets.token_hex(8)}"


def _remove_old(root: Path, keep: int, alone: bool) -> None:
    """Remove all but the newest checkpoints and the best one, and what is not complete if we are `alone`."""
    best = best_step(root)
    for step, path in checkpoints(root)[:-keep]:
        if step != best:
            gone = _temporary(root)
            with contextlib.suppress(OSError):
                path.rename(gone)  # so that nobody sees a part of it
            shutil.rmtree(gone, ignore_errors=True)
    if not alone:
        return
    for path in root.glob(f"{UNFINISHED_PREFIX}*"):
        if path not in _unfinished:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
