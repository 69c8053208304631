"""Tokens a second of a language model."""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import numpy as np

from dl4all.llm import Decoder, stream_generate


class Rate(NamedTuple):
    """Tokens a second: the mean of some rounds, and their standard deviation."""

    test: str
    mean: float
    deviation: float


def measure_rates(model: Decoder, prompt: int, tokens: int, repeat: int) -> list[Rate]:
    """The rates of a prompt (pp) and of tokens after one token (tg), after a round that is not counted."""
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {f"pp{prompt}": [], f"tg{tokens}": []}
    for number in range(repeat + 1):
        for test, rates in found.items():
            is_prompt = test.startswith("pp")
            count = prompt if is_prompt else 1
            given = rng.integers(0, model.config.vocabulary, count).tolist()
            pieces = stream_generate(model, None, given, 1 if is_prompt else tokens)
            begun = time.perf_counter()
            told = sum(1 for _ in pieces)
            if number:
                rates.append((prompt if is_prompt else told) / (time.perf_counter() - begun))
    return [
        Rate(test, statistics.mean(rates), statistics.stdev(rates) if len(rates) > 1 else 0.0)
        for test, rates in found.items()
    ]
