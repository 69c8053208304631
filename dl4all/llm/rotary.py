"""Rotary positions: angles of each pair of features, in all variants of scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ConfigError
from dl4all.ops.indexing.concatenation import cat
from dl4all.tensor.tensor import Tensor

Floats = npt.NDArray[np.float64]


def rotary_tables(
    settings: Mapping[str, Any], head_dim: int, positions: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Cosines and sines (positions, rotated features), those of the first half of the features negative.

    Args:
        settings: as :class:`~dl4all.llm.families.DecoderConfig` has them for a layer.
        head_dim: features of a head.
        positions: how many there are; dynamic and long scaling depend on it.

    Raises:
        ConfigError: a setting is missing.

    Source: J. Su et al., RoFormer, 2021; the variants are those of Hugging Face's ``modeling_rope_utils``.

    Example:
        >>> plain = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
        >>> (rotary_tables(plain, 4, 2)[1] * 100).astype(int).tolist()
        [[0, 0, 0, 0], [-84, 0, 84, 0]]
    """
    frequencies, factor = rotary_frequencies(settings, head_dim, positions)
    angles = np.arange(positions)[:, None] * np.concatenate([-frequencies, frequencies])
    return (np.cos(angles) * factor).astype(np.float32), (np.sin(angles) * factor).astype(np.float32)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys (..., T, head_dim), of which the first features are turned by angles (T, features).

    The halves change places in one copy; the sign of one of them is that of its sine.
    """
    count = cos.shape[-1]
    turned = x[..., :count] if count < x.shape[-1] else x
    halves = turned.unflatten(-1, (2, count // 2)).flip(-2).flatten(-2)
    y = turned * cos + halves * sin
    return y if count == x.shape[-1] else cat([y, x[..., count:]], -1)


def rotary_frequencies(settings: Mapping[str, Any], head_dim: int, positions: int) -> tuple[Floats, float]:
    """Angles for one position of each pair of features, and the factor of sines and cosines.

    Raises:
        ConfigError: a setting is missing.
    """
    try:
        return _frequencies(settings, int(head_dim * settings["partial_rotary_factor"]), positions)
    except KeyError as error:
        raise ConfigError(f"[llm] rope of type {settings['rope_type']!r} needs {error}") from None


def _frequencies(settings: Mapping[str, Any], dim: int, positions: int) -> tuple[Floats, float]:
    base, factor = settings["rope_theta"], settings.get("factor", 1.0)
    original = settings.get("original_max_position_embeddings", positions)
    plain: Floats = base ** -(np.arange(0, dim, 2) / dim)
    match settings["rope_type"]:
        case "linear":
            return plain / factor, 1.0
        case "dynamic" if positions > original:
            grown = base * (factor * positions / original - (factor - 1)) ** (dim / (dim - 2))
            return grown ** -(np.arange(0, dim, 2) / dim), 1.0
        case "llama3":
            low, high = settings["low_freq_factor"], settings["high_freq_factor"]
            turns = original * plain / (2 * np.pi)
            part = np.clip((turns - low) / (high - low), 0, 1)
            return (1 - part) * plain / factor + part * plain, 1.0
        case "yarn":
            return _yarn(settings, plain, dim, factor, original)
        case "longrope":
            long = positions > original
            scaled = plain / np.asarray(settings["long_factor" if long else "short_factor"], np.float64)
            attention = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
            return scaled, settings.get("attention_factor") or attention
    return plain, 1.0


def _yarn(
    settings: Mapping[str, Any], plain: Floats, dim: int, factor: float, original: int
) -> tuple[Floats, float]:
    """Fast turns stay as they are, slow ones become slower (B. Peng et al., YaRN, 2023)."""

    def place(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(settings["rope_theta"]))

    low = max(math.floor(place(settings.get("beta_fast") or 32)), 0)
    high = min(math.ceil(place(settings.get("beta_slow") or 1)), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 1e-3), 0, 1)
    attention = settings.get("attention_factor") or (0.1 * math.log(factor) + 1 if factor > 1 else 1.0)
    return plain / factor * ramp + plain * (1 - ramp), attention
