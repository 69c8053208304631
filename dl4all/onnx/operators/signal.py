"""Transforms of signals, with complex numbers as pairs along the last axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.nn import functional as F
from dl4all.onnx.call import Call
from dl4all.onnx.dtypes import element_dtype
from dl4all.onnx.registry import operator


def transformed(call: Call, x: Any, length: int, kept: int, *, inverse: bool = False) -> Any:
    """The discrete Fourier transform of rows, by products with cosines and sines.

    Args:
        call: of the operator.
        x: shape (..., rows, 1 or 2), real or complex.
        length: to which rows are cut, or filled by zeros.
        kept: the first frequencies of the result.
        inverse: whether it is the inverse transform.

    Returns:
        Shape (..., kept, 2).
    """
    rows = x.shape[-2]
    x = x[..., :length, :] if rows > length else F.pad(x, (0, 0, 0, length - rows))
    # The product of the indices modulo the length: exact, where their sines would lose digits.
    angles = 2 * np.pi * (np.outer(np.arange(length), np.arange(kept)) % length) / length
    sign, scale = (1, 1 / length) if inverse else (-1, 1)
    cos, sin = (
        call.tensor((f * scale).astype(np.float32)).to(x.dtype)
        for f in (np.cos(angles), sign * np.sin(angles))
    )
    real = x[..., 0]
    parts = [functions.matmul(real, cos), functions.matmul(real, sin)]
    if x.shape[-1] == 2:
        imaginary = x[..., 1]
        parts[0] = parts[0] - functions.matmul(imaginary, sin)
        parts[1] = parts[1] + functions.matmul(imaginary, cos)
    return functions.stack(parts, -1)


@operator("DFT", reads=(1, 2))
def dft(call: Call, x: Any, length: Any = None, axis: Any = None) -> Any:
    x = call.tensor(x)
    at = int(call.number(axis, -2)) if call.opset >= 20 else call.get("axis", 1)
    at %= x.ndim
    real = call.flag("inverse") and call.flag("onesided")
    usual = 2 * (x.shape[at] - 1) if real else x.shape[at]
    count = usual if length is None else int(call.number(length))
    rows = functions.movedim(x, at, -2)
    if real:
        return functions.movedim(_real_inverse(call, rows, count), -2, at)
    kept = count // 2 + 1 if call.flag("onesided") else count
    y = transformed(call, rows, count, kept, inverse=call.flag("inverse"))
    return functions.movedim(y, -2, at)


def _real_inverse(call: Call, half: Any, count: int) -> Any:
    """The real signal whose transform begins with these frequencies; the others are their conjugates."""
    half = half[..., : count // 2 + 1, :]
    rest = functions.flip(half[..., 1 : count - half.shape[-2] + 1, :], (-2,))
    mirror = call.tensor(np.array([1, -1], np.float32)).to(half.dtype)
    return transformed(call, functions.cat([half, rest * mirror], -2), count, count, inverse=True)[..., :1]


@operator("STFT", reads=(1, 3))
def stft(call: Call, signal: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    """The transforms of overlapping frames."""
    signal = call.tensor(signal)
    signal = signal if signal.ndim == 3 else signal.unsqueeze(-1)
    size = int(call.number(length)) if length is not None else window.shape[0]
    hop = int(call.number(step))
    frames = functions.stack([signal[:, i : i + size] for i in range(0, signal.shape[1] - size + 1, hop)], 1)
    if window is not None:
        frames = frames * call.tensor(window).reshape(-1, 1)
    kept = size // 2 + 1 if call.flag("onesided", True) else size
    return transformed(call, frames, size, kept)


@operator("MelWeightMatrix", reads=(0, 1, 2, 3, 4))
def mel_weight_matrix(call: Call, bins: Any, length: Any, rate: Any, lowest: Any, highest: Any) -> Any:
    """Triangles over frequencies whose corners are even on the mel scale."""
    count, size, hertz = (int(call.number(v)) for v in (bins, length, rate))
    mels = [2595 * math.log10(1 + call.number(v) / 700) for v in (lowest, highest)]
    # The last step is not reached, as the standard has it.
    corners = np.arange(count + 2) * (mels[1] - mels[0]) / (count + 2) + mels[0]
    indices = ((size + 1) * (700 * (10 ** (corners / 2595) - 1)) // hertz).astype(np.int64)
    result = np.zeros((size // 2 + 1, count), np.float64)
    for i in range(count):
        low, middle, high = indices[i : i + 3]
        if middle == low:
            result[middle, i] = 1
        else:
            result[low : middle + 1, i] = (np.arange(low, middle + 1) - low) / (middle - low)
        if high > middle:
            result[middle:high, i] = (high - np.arange(middle, high)) / (high - middle)
    return result.astype(element_dtype(call.get("output_datatype", 1)))


@operator("HannWindow", "HammingWindow", "BlackmanWindow", reads=(0,))
def window(call: Call, size: Any) -> Any:
    """A sum of cosines; periodic unless the attribute says otherwise."""
    count = int(call.number(size))
    terms = {
        "HannWindow": (0.5, 0.5),
        "HammingWindow": (25 / 46, 21 / 46),
        "BlackmanWindow": (0.42, 0.5, 0.08),
    }
    angles = 2 * np.pi * np.arange(count) / max(count if call.flag("periodic", True) else count - 1, 1)
    signs = (1, -1, 1)
    made = sum(signs[i] * a * np.cos(i * angles) for i, a in enumerate(terms[call.node.op_type]))
    return np.asarray(made).astype(element_dtype(call.get("output_datatype", 1)))
