"""``dl4all convert``: writes weights in another format."""

from __future__ import annotations

from pathlib import Path

import click

import dl4all as dl
from dl4all.errors import FileFormatError
from dl4all.onnx.model_file import read_model


@click.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET.safetensors")
def convert(source: str, target: str) -> None:
    """Write the weights of SOURCE (.pth, .pt, .safetensors, or the initializers of an .onnx) to TARGET.

    Example: dl4all convert resnet18.pth resnet18.safetensors
    """
    if not target.endswith(".safetensors"):
        raise FileFormatError(f"{target}: weights are written as .safetensors files")
    if source.endswith(".onnx"):
        arrays = dict(read_model(source).graph.initializers)
    else:
        arrays = dl.io.load_weights(source)
    try:
        dl.io.save_weights(Path(target), arrays)
    except OSError as error:
        raise FileFormatError(f"{target}: cannot be written: {error.strerror or error}") from None
    size = sum(array.nbytes for array in arrays.values())
    print(f"{target}: {len(arrays)} tensors, {size / 1e6:.1f} MB")
