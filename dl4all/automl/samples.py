"""Data from files: tables, pictures in folders, and series."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dl4all.data import ImageFolder, load_image
from dl4all.errors import ArgumentError, FileFormatError

LARGEST_PICTURE = 64
"""Pixels to which pictures are made smaller where nothing else is said."""
MOST_CLASSES = 20
"""Different whole numbers of a target up to which they are taken for classes."""


class LabelledSamples(NamedTuple):
    """Samples of a file.

    Attributes:
        x: a table, pictures (N, C, height, width) from 0 to 255, or series (N, C, steps).
        y: targets (N,), or None where the file has none.

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> dl.automl.LabelledSamples(np.zeros((2, 1, 5)), None).x.shape
        (2, 1, 5)
    """

    x: Any
    y: npt.NDArray[Any] | None


def read(
    path: str | Path, target: str | None = None, *, window: int | None = None, size: int | None = None
) -> LabelledSamples:
    """Read samples and their targets.

    Args:
        path: a table (``.csv``, ``.tsv``, ``.parquet``), arrays (``.npz``: those of the target's name, and
            one other), or a folder with a folder of pictures for each class.
        target: the column, or the array, that is to be predicted; None reads what has no target.
        window: rows of a table, which are in the order of time, that make one sample: a series of all its
            numbers, whose target is that of the row after them.
        size: height and width to which pictures are resized; None takes the median of theirs, at most 64.

    Raises:
        ArgumentError: there is no such file or target.
        FileFormatError: the file cannot be read.

    Example:
        >>> import dl4all as dl
        >>> import pathlib
        >>> _ = pathlib.Path("flowers.csv").write_text("length,kind\\n1.5,a\\n2.5,b\\n")
        >>> x, y = dl.automl.read("flowers.csv", "kind")
        >>> list(x.columns), y.tolist()
        (['length'], ['a', 'b'])
    """
    path = Path(path)
    if not path.exists():
        raise ArgumentError(f"[automl] there is no file {path}")
    if window is not None and (path.is_dir() or path.suffix == ".npz"):
        raise ArgumentError(f"[automl] window= is for tables, and {path} is none")
    if path.is_dir():
        return _pictures(path, size)
    if path.suffix == ".npz":
        return _arrays(path, target)
    frame = _table(path)
    if target is not None and target not in frame.columns:
        raise ArgumentError(
            f"[automl] {path} has no column {target!r}; it has {', '.join(map(repr, frame.columns))}"
        )
    if window is not None:
        return windows(frame, target, window)
    if target is None:
        return LabelledSamples(frame, None)
    known = frame[frame[target].notna()]  # a row without its target has nothing to say
    if not len(known):
        raise ArgumentError(f"[automl] column {target!r} of {path} has no value")
    return LabelledSamples(known.drop(columns=target), known[target].to_numpy())


def windows(frame: pd.DataFrame, target: str | None, length: int) -> LabelledSamples:
    """Series of `length` rows of a table, each with the target's value in the row after them.

    Args:
        frame: rows in the order of time; columns that are no numbers are left out.
        target: a column of numbers; None makes all series, the last rows included, without targets.
        length: rows of each series.

    Returns:
        Series (N, columns, length), and targets (N,).

    Raises:
        ArgumentError: the target is no column of numbers, or there are too few rows.

    Example:
        >>> import dl4all as dl
        >>> import pandas as pd
        >>> x, y = dl.automl.windows(pd.DataFrame({"t": [1.0, 2.0, 3.0, 4.0]}), "t", 2)
        >>> x.tolist(), y.tolist()
        ([[[1.0, 2.0]], [[2.0, 3.0]]], [3.0, 4.0])
    """
    numbers = frame.select_dtypes(["number", "bool"])
    if target is not None and target not in numbers.columns:
        raise ArgumentError(f"[automl] the target of series is a column of numbers, {target!r} is none")
    most = len(frame) - (target is not None)
    if not 1 <= length <= most:
        raise ArgumentError(f"[automl] expected windows of 1 to {most} rows, got {length}")
    x = np.lib.stride_tricks.sliding_window_view(numbers.to_numpy(np.float32), length, axis=0)
    if target is None:
        return LabelledSamples(np.ascontiguousarray(x), None)
    y = numbers[target].to_numpy(np.float64)[length:]
    return LabelledSamples(np.ascontiguousarray(x[:-1][~np.isnan(y)]), y[~np.isnan(y)])


def is_classification(y: npt.NDArray[Any]) -> bool:
    """Whether targets are classes: anything but numbers, or few whole numbers that come again and again.

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> [dl.automl.is_classification(np.array(y)) for y in ([0, 1, 1, 0], [0.5, 2.0])]
        [True, False]
    """
    if y.dtype.kind not in "iuf":
        return True
    different = np.unique(y)
    whole = bool(np.all(different == np.floor(different)))
    return whole and len(different) <= min(MOST_CLASSES, len(y) // 2)


def _table(path: Path) -> pd.DataFrame:
    """The table of a file.

    Raises:
        FileFormatError: it cannot be read, or is empty.
    """
    readers = {
        ".csv": pd.read_csv,
        ".tsv": lambda file: pd.read_csv(file, sep="\t"),
        ".parquet": pd.read_parquet,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise FileFormatError(f"[automl] {path} is no folder, and ends in none of {', '.join(readers)}, .npz")
    try:
        frame = reader(path)
    except (ValueError, OSError, ImportError) as error:
        raise FileFormatError(f"[automl] {path} cannot be read: {error}") from error
    if not len(frame):
        raise FileFormatError(f"[automl] {path} has no rows")
    return frame


def _arrays(path: Path, target: str | None) -> LabelledSamples:
    """The arrays of a file.

    Raises:
        FileFormatError: it is none of NumPy's, or has objects.
        ArgumentError: there is no such target, or not one other array.
    """
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError) as error:
        raise FileFormatError(f"[automl] {path} cannot be read: {error}") from error
    y = None if target is None else arrays.pop(target, None)
    if (target is not None and y is None) or len(arrays) != 1:
        raise ArgumentError(
            f"[automl] expected an array of samples in {path}"
            + ("" if target is None else f", and one that is called {target!r}")
            + f"; beside that it has {', '.join(arrays) or 'none'}"
        )
    return LabelledSamples(next(iter(arrays.values())), y)


def _pictures(folder: Path, size: int | None) -> LabelledSamples:
    """The pictures of a folder: those of its subfolders with their names, or else its own ones."""
    from PIL import Image

    if any(path.is_dir() for path in folder.iterdir()):
        pictures = ImageFolder(folder)
        files = [file for file, _ in pictures.samples]
        labels = np.array([pictures.classes[label] for label in pictures.targets])
    else:
        files = sorted(str(f) for f in folder.iterdir() if f.name.lower().endswith(ImageFolder.SUFFIXES))
        labels = None
        if not files:
            raise ArgumentError(f"[automl] {folder} has no pictures ({', '.join(ImageFolder.SUFFIXES)})")
    sides, modes = [], set()
    for file in files:
        try:
            with Image.open(file) as image:
                sides.append(max(image.size))
                modes.add(image.mode)
        except OSError as error:
            raise FileFormatError(f"[automl] {file} cannot be read: {error}") from error
    side = min(LARGEST_PICTURE, int(np.median(sides))) if size is None else size
    if side < 1:
        raise ArgumentError(f"[automl] expected pictures of at least one pixel, got size={size}")
    mode = "L" if modes <= {"L", "1"} else "RGB"
    x = np.empty((len(files), len(mode), side, side), np.uint8)
    for number, file in enumerate(files):
        resized = load_image(file).resize((side, side)).convert(mode)
        x[number] = np.asarray(resized).reshape(side, side, -1).transpose(2, 0, 1)
    return LabelledSamples(x, labels)
