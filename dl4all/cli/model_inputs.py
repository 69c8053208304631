"""Inputs of a model file from files, or drawn at random."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

import dl4all as dl
from dl4all.errors import ArgumentError, FileFormatError
from dl4all.onnx.graph import NDArray, ValueInfo
from dl4all.ops.core.dtypes import kind_of

MOST_ELEMENTS = 1 << 28
open_sizes = click.option(
    "--size", multiple=True, metavar="NAME=N", help="A size that the file leaves open; 1 unless given."
)


def sizes_of(pairs: Sequence[str]) -> dict[str, int]:
    """
    >>> sizes_of(["batch=4"])
    {'batch': 4}
    """
    sizes = {}
    for pair in pairs:
        name, _, size = pair.partition("=")
        if not size.isdigit():
            raise ArgumentError(f"--size {pair}: expected NAME=NUMBER, such as batch=4")
        sizes[name] = int(size)
    return sizes


def shape_of(info: ValueInfo, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """An input's shape: sizes that the file leaves open are those of their names, or 1."""
    if info.shape is None:
        raise ArgumentError(f"the file says nothing of the shape of {info.name!r}; give it by --input")
    return tuple(size if isinstance(size, int) else sizes.get(str(size), 1) for size in info.shape)


def random_input(info: ValueInfo, sizes: Mapping[str, int]) -> NDArray:
    """Floats of a normal distribution, or ones of integers: they may be indices, or masks."""
    shape, dtype = shape_of(info, sizes), info.dtype or np.dtype(np.float32)
    if np.prod(shape, dtype=float) > MOST_ELEMENTS:
        raise ArgumentError(f"the input {info.name!r} of shape {shape} is too large; give it by --input")
    if kind_of(dtype) == "f":
        return np.random.default_rng(0).standard_normal(shape).astype(dtype)
    return np.ones(shape, dtype)


def read_inputs(pairs: Sequence[str], infos: Sequence[ValueInfo], sizes: Mapping[str, int]) -> dict[str, Any]:
    """The inputs that ``[NAME=]FILE`` name, in the order of the model's where there is no name.

    Raises:
        FileFormatError, ArgumentError
    """
    names, found = {info.name: info for info in infos}, dict[str, Any]()
    for pair in pairs:
        name, separator, path = pair.partition("=")
        if not separator or name not in names:
            path, name = pair, next((n for n in names if n not in found), "")
        if not name:
            raise ArgumentError(f"--input {pair}: the model has {len(names)} inputs: {', '.join(names)}")
        if path.endswith(".npz"):
            found |= _arrays(path, names)
        elif path.endswith(".npy"):
            found[name] = _array(path)
        else:
            found[name] = _picture(path, names[name], sizes)
    return found


def _array(path: str) -> NDArray:
    try:
        array: NDArray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileFormatError(f"{path}: cannot be read: {error}") from None
    return array


def _arrays(path: str, names: Mapping[str, ValueInfo]) -> dict[str, NDArray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"{path}: cannot be read: {error}") from None
    if unknown := sorted(found.keys() - names.keys()):
        raise ArgumentError(f"{path}: the model has no input {unknown[0]!r}; use {', '.join(names)}")
    return found


def _picture(path: str, info: ValueInfo, sizes: Mapping[str, int]) -> NDArray:
    """An image as ImageNet's networks take them: resized to the input's height and width, and normalised."""
    shape = info.shape or ()
    if len(shape) != 4 or (shape[1] not in (3, None) and not isinstance(shape[1], str)):
        raise ArgumentError(f"--input {path}: {info.name!r} of shape {shape} takes no image; give an .npy")
    height, width = (
        size if isinstance(size, int) else sizes.get(str(size), 224) for size in (shape[2], shape[3])
    )
    image = dl.data.transforms.load_image(path).resize((width, height))
    array = dl.data.transforms.to_array(image)
    array = dl.data.transforms.normalize(array, dl.data.IMAGENET_MEAN, dl.data.IMAGENET_STD)
    return array[None].astype(info.dtype or np.float32)


def save_outputs(path: str, outputs: Mapping[str, NDArray]) -> None:
    """Write results as an .npz file, or one result as an .npy file."""
    try:
        if path.endswith(".npy"):
            if len(outputs) != 1:
                raise ArgumentError(f"--output {path}: there are {len(outputs)} outputs; use an .npz file")
            np.save(path, next(iter(outputs.values())))
        else:
            with Path(path).open("wb") as file:
                np.savez(file, **outputs)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror}") from None
