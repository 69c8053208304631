"""Batch normalization of a batch that is spread over several devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.autograd.function import Function
from dl4all.autograd.grad_mode import no_grad
from dl4all.errors import ShapeError
from dl4all.multi_device.data_parallel import shard
from dl4all.multi_device.data_parallel.shard import Shard
from dl4all.nn import functional
from dl4all.nn.module import Module
from dl4all.nn.modules.normalization import BatchNorm
from dl4all.ops.normalization.batch_normalization import (
    batch_norm_apply,
    batch_norm_backward,
    batch_norm_stats,
    batch_norm_sums,
    elements_per_channel,
)
from dl4all.ops.normalization.functional import update_running
from dl4all.tensor.creation import from_numpy, zeros_like
from dl4all.tensor.tensor import Tensor

Statistics = npt.NDArray[np.float64]
"""Of each channel the number of elements, their mean and their variance; of shape (3, C)."""


def combined(parts: list[Statistics]) -> Statistics:
    """The statistics of a whole, from those of its parts.

    Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
    1979.

    >>> combined([np.array([[1.0], [1.0], [0.0]]), np.array([[3.0], [5.0], [0.0]])]).tolist()
    [[4.0], [4.0], [3.0]]
    """
    counts, means, variances = np.stack(parts, axis=1)
    total = np.maximum(counts.sum(axis=0), 1)
    mean = (counts * means).sum(axis=0) / total
    variance = (counts * (variances + np.square(means - mean))).sum(axis=0) / total
    return np.stack([counts.sum(axis=0), mean, variance])


def _summed(parts: list[Statistics]) -> Statistics:
    return np.asarray(sum(parts[1:], parts[0]))


class _Normalize(Function):
    """Normalization of a shard by the statistics of the whole batch, which depend on the input."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        x, weight, bias, stats, ctx.eps, ctx.shard, ctx.share = inputs
        ctx.save_for_backward(x, weight, stats)
        y: Tensor = batch_norm_apply(x, stats[0], stats[1], weight, bias, eps=ctx.eps)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        x, weight, stats = ctx.saved_tensors
        sums = batch_norm_sums(gradients[0], x, stats[0], stats[1], eps=ctx.eps)
        whole_sums = ctx.shard.combined(sums.numpy().astype(np.float64), _summed)
        # The op divides by the elements of this shard; the mean is over those of all shards.
        whole = from_numpy((whole_sums * ctx.share).astype(x.dtype), x.device)
        slope = batch_norm_backward(gradients[0], x, stats[0], stats[1], whole, weight, eps=ctx.eps)
        return slope, sums[1], sums[0], None, None, None, None


class StatisticsUpdate:
    """A step of a layer's running statistics towards those of a batch.

    Args:
        source: the model's layer.
        mean, var: of the batch, on the device that computed them.
    """

    def __init__(self, source: BatchNorm, mean: Tensor, var: Tensor) -> None:
        self._source, self._mean, self._var = source, mean, var

    def bring(self) -> None:
        """Bring the numbers to the layer's device, while theirs is known to work."""
        device = self._source.running_mean.device
        self._mean, self._var = self._mean.to(device), self._var.to(device)

    def apply(self) -> None:
        momentum = self._source._next_momentum()
        update_running(self._source.running_mean, self._mean, momentum)
        update_running(self._source.running_var, self._var, momentum)


class ShardedBatchNorm(BatchNorm):
    """A batch normalization layer of a replica. It leaves running statistics to the model's own layer.

    Args:
        source: the model's layer.
        made: the replica's layer, whose place it takes.
        synchronized: whether training uses the statistics of the whole batch, or of each shard.
    """

    def __init__(self, source: BatchNorm, made: BatchNorm, synchronized: bool) -> None:
        Module.__init__(self)
        vars(self).update(vars(made))
        vars(self)["ranks"] = made.ranks
        # A tuple, so that the model's layer is no child of this one.
        self._source, self._synchronized = (source,), synchronized

    def forward(self, x: Tensor) -> Tensor:
        place = shard.current()
        of_batch = self.training or self.running_mean is None
        if not of_batch or place is None:
            return super().forward(x)
        self._check(x)
        if self._synchronized and place.several:
            return self._by_all(x, place)
        mean = var = None
        if place.first and self.running_mean is not None:
            mean, var = zeros_like(self.running_mean), zeros_like(self.running_var)
            self._keep(place, mean, var)
        return functional.batch_norm(x, mean, var, self.weight, self.bias, True, 1.0, self.eps)

    def _by_all(self, x: Tensor, place: Shard) -> Tensor:
        count = elements_per_channel(x) if x.numel() else 0
        with no_grad():
            own = np.zeros((3, x.shape[1]))
            if count:
                own[0], own[1:] = count, batch_norm_stats(x).numpy()
            counts, *stats = place.combined(own, combined)
            total = int(counts[0])
            if total < 2:
                raise ShapeError(
                    f"[{type(self).__name__}] training needs more than 1 element for each channel of a batch"
                )
            on_device = from_numpy(np.stack(stats).astype(x.dtype), x.device)
            if place.first and self.running_mean is not None:
                self._keep(place, on_device[0], on_device[1] * (total / (total - 1)))
        inputs = x, self.weight, self.bias, on_device, self.eps, place, count / total
        y: Tensor = _Normalize.apply(*inputs)
        return y

    def _keep(self, place: Shard, mean: Tensor, var: Tensor) -> None:
        """Have the model's layer move its running statistics, when all shards have succeeded."""
        place.afterwards.append(StatisticsUpdate(*self._source, mean, var))
