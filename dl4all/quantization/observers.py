"""Observers: what inputs of layers were like in calibrating calls, and which steps of uint8 suit them.

A number x is held as q, from 0 to 255, for ``(q - zero_point) * scale``; 0 is held exactly (Jacob et al.,
arXiv:1712.05877, section 2.1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.nn.module import Module
from dl4all.quantization.weights import SMALLEST
from dl4all.tensor.creation import tensor
from dl4all.tensor.tensor import Tensor

LEVELS = 255  # steps from the least number to the largest
BINS = 2048  # of a histogram
CUTS = 128  # of a histogram's range that are tried


class ObserverBase(Module):
    """A layer that returns its input and remembers its range. Buffers: ``min_val``, ``max_val``.

    A class of one's own defines ``observe``, or ``chosen_range``.

    Raises:
        ArgumentError: an input is infinite or nan, or there was none before ``calculate_qparams``.

    Example:
        >>> import dl4all as dl
        >>> observer = dl.quantization.ObserverBase()
        >>> observer(dl.tensor([-3.0, 2.0])).shape, observer.range
        ((2,), (-3.0, 2.0))
    """

    min_val: Tensor
    max_val: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("min_val", tensor(np.float32(np.inf), device="cpu"))
        self.register_buffer("max_val", tensor(np.float32(-np.inf), device="cpu"))

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest number so far; (inf, -inf) of none."""
        return self.min_val.item(), self.max_val.item()

    def forward(self, input: Tensor) -> Tensor:
        if input.numel():
            numbers = input.detach()
            found = numbers.amin().item(), numbers.amax().item()
            if not np.isfinite(found).all():
                raise ArgumentError(
                    f"[{type(self).__name__}] an input goes from {found[0]} to {found[1]}, which has no "
                    "steps; look for inf and nan in the layers before"
                )
            self.observe(numbers, *found)
        return input

    def observe(self, input: Tensor, low: float, high: float) -> None:
        """Take note of an input that goes from `low` to `high`."""
        before = self.range
        self._keep(min(before[0], low), max(before[1], high))

    def _keep(self, low: float, high: float) -> None:
        self.min_val, self.max_val = (tensor(np.float32(x), device="cpu") for x in (low, high))

    def calculate_qparams(self) -> tuple[float, int]:
        """The scale and the zero point."""
        low, high = self.range
        if low > high:
            raise ArgumentError(
                f"[{type(self).__name__}] has seen no input; call the prepared network with typical ones"
            )
        return qparams(*self.chosen_range())

    def chosen_range(self) -> tuple[float, float]:
        """The numbers from which to which steps go; what is beyond becomes the nearest."""
        return self.range

    def extra_repr(self) -> str:
        return "min_val={:.4g}, max_val={:.4g}".format(*self.range)


def qparams(low: float, high: float) -> tuple[float, int]:
    """The scale and the zero point of uint8 for a range, which is extended to 0.

    >>> qparams(-1.0, 254.0)
    (1.0, 1)
    """
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max((high - low) / LEVELS, SMALLEST)
    return scale, int(np.clip(np.rint(-low / scale), 0, LEVELS))


class MinMaxObserver(ObserverBase):
    """The whole range of all inputs.

    Example:
        >>> import dl4all as dl
        >>> observer = dl.quantization.MinMaxObserver()
        >>> _ = observer(dl.tensor([-1.0, 0.5, 1.55]))
        >>> scale, zero_point = observer.calculate_qparams()
        >>> round(scale, 4), zero_point
        (0.01, 100)
    """


class MovingAverageMinMaxObserver(ObserverBase):
    """A moving average of the ends of inputs' ranges, as in training.

    Args:
        averaging_constant: the weight of a new input.

    Example:
        >>> import dl4all as dl
        >>> observer = dl.quantization.MovingAverageMinMaxObserver(0.5)
        >>> _ = observer(dl.tensor([0.0, 1.0])), observer(dl.tensor([0.0, 3.0]))
        >>> observer.range
        (0.0, 2.0)
    """

    def __init__(self, averaging_constant: float = 0.01) -> None:
        super().__init__()
        if not 0 < averaging_constant <= 1:
            raise ArgumentError(
                f"[MovingAverageMinMaxObserver] averaging_constant must be in (0, 1], got "
                f"{averaging_constant}"
            )
        self.averaging_constant = averaging_constant

    def observe(self, input: Tensor, low: float, high: float) -> None:
        before, share = self.range, self.averaging_constant
        if before[0] > before[1]:
            self._keep(low, high)
        else:
            self._keep(before[0] + share * (low - before[0]), before[1] + share * (high - before[1]))


class HistogramObserver(ObserverBase):
    """A histogram of all inputs, and of its ranges the one with the least squared error.

    Args:
        bins: of the histogram, which is widened in whole steps where inputs go beyond it.

    Example:
        >>> import dl4all as dl
        >>> observer = dl.quantization.HistogramObserver()
        >>> _ = observer(dl.linspace(0, 1, 1000))
        >>> round(observer.calculate_qparams()[0], 4)
        0.0039
    """

    histogram: Tensor
    limit: Tensor

    def __init__(self, bins: int = BINS) -> None:
        super().__init__()
        if bins < 2 * LEVELS:
            raise ArgumentError(f"[{type(self).__name__}] needs {2 * LEVELS} bins or more, got {bins}")
        self.bins = bins
        self.register_buffer("histogram", tensor(np.zeros(bins, np.float32), device="cpu"))
        self.register_buffer("limit", tensor(np.float32(0.0), device="cpu"))

    def observe(self, input: Tensor, low: float, high: float) -> None:
        super().observe(input, low, high)
        limit, counts = self.limit.item(), self.histogram.numpy().astype(np.float64)
        largest = max(abs(low), abs(high), SMALLEST)
        if not limit:
            limit = largest
        while limit < largest:  # two bins become one, in the middle
            pairs, rest = counts.reshape(-1, 2).sum(1), self.bins // 4
            counts = np.concatenate([np.zeros(rest), pairs, np.zeros(self.bins - rest - len(pairs))])
            limit *= 2
        counts += np.histogram(input.cpu().float().numpy(), self.bins, (-limit, limit))[0]
        self.histogram = tensor(counts.astype(np.float32), device="cpu")
        self.limit = tensor(np.float32(limit), device="cpu")

    def chosen_range(self) -> tuple[float, float]:
        low, high = self.range
        centers, counts = self._bins()
        ranges = [(low * share, high * share) for share in np.arange(CUTS, 0, -1) / CUTS]
        return min(ranges, key=lambda ends: self.error(centers, counts, ends))

    def _bins(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The middles of bins that are not empty, and their counts."""
        limit, counts = self.limit.item(), self.histogram.numpy().astype(np.float64)
        edges = np.linspace(-limit, limit, self.bins + 1)
        found = counts > 0
        return ((edges[1:] + edges[:-1]) / 2)[found], counts[found]

    def error(self, centers: Any, counts: Any, ends: tuple[float, float]) -> float:
        """The difference that steps between these ends make."""
        return float((counts * (held(centers, ends) - centers) ** 2).sum())


class EntropyObserver(HistogramObserver):
    """The range for which the distribution of what is held differs least from that of the inputs.

    The difference is the Kullback-Leibler divergence (S. Migacz, "8-bit inference with TensorRT", GTC 2017).

    Example:
        >>> import dl4all as dl
        >>> observer = dl.quantization.EntropyObserver()
        >>> _ = observer(dl.linspace(-1, 1, 1000))
        >>> observer.calculate_qparams()[1] in (127, 128)
        True
    """

    def error(self, centers: Any, counts: Any, ends: tuple[float, float]) -> float:
        inside = (centers >= ends[0]) & (centers <= ends[1])
        if (ends[1] - ends[0]) / (2 * self.limit.item()) * self.bins < LEVELS or not inside.any():
            return math.inf  # each step holds one bin, and nothing differs
        own, scale = counts[inside], qparams(*ends)[0]
        steps = np.rint(held(centers[inside], ends) / scale).astype(int)
        steps -= steps.min()
        # the counts of a step, evenly over the bins that it holds
        spread = (np.bincount(steps, own) / np.maximum(np.bincount(steps), 1))[steps]
        reference = own.copy()  # what is outside becomes the nearest number inside
        reference[0] += counts[centers < ends[0]].sum()
        reference[-1] += counts[centers > ends[1]].sum()
        shares, held_shares = reference / reference.sum(), spread / spread.sum()
        return float((shares * np.log(shares / held_shares)).sum())


class PercentileObserver(HistogramObserver):
    """The range that leaves out so many of the numbers at either end.

    Args:
        percentile: of the numbers that are inside, in percent.

    Example:
        >>> import dl4all as dl
        >>> observer = dl.quantization.PercentileObserver(99.0)
        >>> _ = observer(dl.linspace(0, 1, 10000))
        >>> round(observer.calculate_qparams()[0] * 255, 2)
        0.99
    """

    def __init__(self, percentile: float = 99.99, bins: int = BINS) -> None:
        super().__init__(bins)
        if not 50 < percentile <= 100:
            raise ArgumentError(f"[PercentileObserver] percentile must be in (50, 100], got {percentile}")
        self.percentile = percentile

    def chosen_range(self) -> tuple[float, float]:
        centers, counts = self._bins()
        shares: Any = counts.cumsum() / counts.sum()
        outside = 1 - self.percentile / 100
        low, high = (
            float(centers[min(int(np.searchsorted(shares, share)), len(centers) - 1)])
            for share in (outside, 1 - outside)
        )
        least, largest = self.range
        return max(min(low, 0.0), least), min(max(high, 0.0), largest)


def held(numbers: Any, ends: tuple[float, float]) -> Any:
    """The numbers as they are held with steps between these ends."""
    scale, zero_point = qparams(*ends)
    return (np.clip(np.rint(numbers / scale) + zero_point, 0, LEVELS) - zero_point) * scale
