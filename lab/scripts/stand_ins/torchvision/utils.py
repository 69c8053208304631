"""Pictures of tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def save_image(tensor: Any, fp: str | Path, nrow: int = 8, normalize: bool = False) -> None:
    """Write a batch of shape (N, C, H, W), or one picture, beside each other into a file."""
    array = tensor.detach().cpu().numpy()
    array = array[None] if array.ndim == 3 else array
    if normalize:
        array = (array - array.min()) / max(float(np.ptp(array)), 1e-5)
    row = np.concatenate(list(array[:nrow]), axis=-1).transpose(1, 2, 0)
    pixels = (row * 255 + 0.5).clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(fp)
