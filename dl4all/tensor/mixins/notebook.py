"""Tensors in notebooks: as they print, and as pictures where they look like some."""

from __future__ import annotations

import base64
import html
import io
from typing import Any

import numpy as np

from dl4all.ops.core.tensor_base import TensorBase

SIDES = range(8, 1025)
"""Heights and widths, in pixels, of what is shown as a picture."""
MOST_PICTURES = 16
LEAST_SIZE = 96
"""Pixels of the screen that a smaller picture is enlarged to."""


class Notebook(TensorBase):
    """The method that IPython asks for; a part of :class:`dl4all.Tensor`."""

    __slots__ = ()

    def _repr_html_(self: Any) -> str:
        """The text of the tensor; before it the pictures that it holds, if Pillow is installed.

        Pictures are tensors of shape (C, H, W) or (N, C, H, W) with 1 or 3 channels, of uint8, or of floats
        from 0 to 1.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.0, 2.0])._repr_html_()
            '<pre>tensor([1., 2.])</pre>'
        """
        text = f"<pre>{html.escape(repr(self))}</pre>"
        return "".join(map(_image, _pictures(self))) + text


def _pictures(tensor: Any) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    """The pictures (H, W) or (H, W, 3) that a tensor holds; none if it does not look like some."""
    shape = tensor.shape
    is_picture = len(shape) in (3, 4) and shape[-3] in (1, 3) and shape[-2] in SIDES and shape[-1] in SIDES
    if not is_picture or tensor.dtype not in (np.uint8, np.float16, np.float32, np.float64):
        return []
    array = tensor.detach().numpy().reshape(-1, *shape[-3:])[:MOST_PICTURES]
    if array.dtype != np.uint8:
        if not array.size or not (array.min() >= 0 and array.max() <= 1):
            return []
        array = (array * 255).round().astype(np.uint8)
    return [np.moveaxis(one, 0, -1).squeeze() for one in array]


def _image(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> str:
    """A picture as HTML; empty without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        return ""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    width = max(LEAST_SIZE, pixels.shape[1])
    source = base64.b64encode(file.getvalue()).decode()
    return f'<img width="{width}" style="image-rendering: pixelated" src="data:image/png;base64,{source}">'
