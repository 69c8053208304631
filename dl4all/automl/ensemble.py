"""Ensembles of networks: which of them, and how much each counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Predictions = npt.NDArray[Any]
ROUNDS = 50
"""Times that a network is added to the ensemble."""


def greedy_selection(
    predictions: Sequence[Predictions], loss: Callable[[Predictions], float], rounds: int = ROUNDS
) -> npt.NDArray[np.float64]:
    """Weights of an ensemble: again and again the network is added with which the mean is best.

    Args:
        predictions: of each network for the same samples, which it was not trained on.
        loss: of predictions; small is good.
        rounds: networks that are added, one of them as often as it helps.

    Returns:
        A weight for each network, of sum 1: that of the round with the least loss.

    Source: R. Caruana et al., Ensemble Selection from Libraries of Models, 2004.

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> truth = np.array([1.0, 2.0, 3.0])
        >>> guesses = [truth + 1, truth - 1, truth + 5]
        >>> dl.automl.greedy_selection(guesses, lambda guess: float(np.square(guess - truth).mean())).tolist()
        [0.5, 0.5, 0.0]
    """
    counts, total = np.zeros(len(predictions)), np.zeros_like(predictions[0], np.float64)
    best, least = counts, np.inf
    for number in range(1, rounds + 1):
        losses = [loss((total + one) / number) for one in predictions]
        added = int(np.argmin(losses))
        total += predictions[added]
        counts = counts + (np.arange(len(predictions)) == added)
        if losses[added] < least - 1e-12:  # of equals the smaller ensemble
            best, least = counts / number, losses[added]
    return best
