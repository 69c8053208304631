"""Losses of many classes with the layer that scores them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dl4all import ops
from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import functional
from dl4all.nn.module import Module
from dl4all.nn.modules.container import ModuleList, Sequential
from dl4all.nn.modules.linear import Linear
from dl4all.nn.modules.loss import _WeightedLoss
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.tensor.arguments import DeviceLike
from dl4all.tensor.tensor import Tensor


class LinearCrossEntropyOptions(NamedTuple):
    """PyTorch's options to save memory in :class:`LinearCrossEntropyLoss`; here nothing depends on them.

    Example:
        >>> import dl4all as dl
        >>> options = dl.nn.LinearCrossEntropyOptions()
        >>> isinstance(options, dl.nn.LinearCrossEntropyOptions)
        True
    """

    batch_chunk_size: int | None = None
    chunking_method: str | None = None
    acc_dtype: Any = None
    acc_policy: str | None = None
    allow_retain_graph: bool = False


class LinearCrossEntropyLoss(_WeightedLoss):
    """The cross entropy of a linear layer's scores: ``cross_entropy(linear(input), target)``.

    Args:
        in_features: features of the input.
        num_classes: how many classes there are.
        out_features: sizes of further axes of the scores, each with losses of its own.
        bias: whether the layer has a bias.
        device, dtype: of the layer; by default the default device and float32.
        reduction, weight, ignore_index, label_smoothing: as for :class:`CrossEntropyLoss`.
        options: is taken for PyTorch's sake and changes nothing.

    Shape:
        (N, in_features) or (in_features,), and a target (N, *out_features) of classes, or
        (N, num_classes, *out_features) of probabilities, to a 0-d tensor, or without a reduction to
        (N, *out_features).

    Raises:
        ShapeError: `weight` is not one number for each class.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.LinearCrossEntropyLoss(5, 3)
        >>> loss(dl.rand(7, 5, device="cpu"), dl.zeros(7, dtype="int64", device="cpu")).shape
        ()
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: Sequence[int] = (),
        bias: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and weight.shape != (num_classes,):
            raise ShapeError(
                f"[LinearCrossEntropyLoss] expected a weight of shape {(num_classes,)}, got {weight.shape}"
            )
        if not 0 <= label_smoothing <= 1:
            raise ArgumentError(
                f"[LinearCrossEntropyLoss] label_smoothing must lie from 0 to 1, got {label_smoothing}"
            )
        super().__init__(weight, None, None, reduction)
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
        self.linear = Linear(
            in_features, math.prod(self.out_features, start=num_classes), bias, device, dtype
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if input.ndim not in (1, 2) or (self.out_features and input.ndim == 1):
            raise ShapeError(
                f"[LinearCrossEntropyLoss] expected an input of shape (N, {self.linear.in_features}), got "
                f"{input.shape}"
            )
        scores = self.linear(input).reshape(*input.shape[:-1], self.num_classes, *self.out_features)
        if self.ignore_index is not None and target.shape == scores.shape:
            raise ArgumentError(
                "[LinearCrossEntropyLoss] ignore_index is for classes, and the target has probabilities"
            )
        result: Tensor = functional.cross_entropy(
            scores,
            target,
            self.weight,
            ignore_index=-100 if self.ignore_index is None else self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
        return result


class ASMOutput(NamedTuple):
    """The results of :class:`AdaptiveLogSoftmaxWithLoss`."""

    output: Tensor
    """The log-probability of each sample's target."""
    loss: Tensor
    """The mean of their negatives."""


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes, frequent ones first, that scores rare ones in clusters.

    Grave et al., arXiv:1609.04309. Each cluster is a class of the head, and has a smaller layer of its own.

    Args:
        in_features: features of the input.
        n_classes: how many classes there are, sorted from the most frequent to the rarest.
        cutoffs: at which classes clusters begin, increasing.
        div_value: by how much each cluster has fewer features than the one before.
        head_bias: whether the head has a bias.
        device, dtype: of the parameters; by default the default device and float32.

    Shape:
        (N, in_features) and a target (N,) of classes, or both without N, to (N,) and a 0-d loss.

    Raises:
        ArgumentError: the cutoffs do not increase, or are no classes.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.AdaptiveLogSoftmaxWithLoss(16, 20, cutoffs=[5, 10])
        >>> output, loss = layer(dl.rand(3, 16, device="cpu"), dl.tensor([0, 7, 19], device="cpu"))
        >>> output.shape, loss.shape
        ((3,), ())
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        cuts = list(cutoffs)
        if not cuts or cuts != sorted(set(cuts)) or min(cuts) <= 0 or max(cuts) > n_classes - 1:
            raise ArgumentError(
                f"[AdaptiveLogSoftmaxWithLoss] cutoffs must increase from 1 to at most {n_classes - 1}, got "
                f"{cuts}"
            )
        self.in_features, self.n_classes, self.div_value = in_features, n_classes, div_value
        self.cutoffs, self.head_bias = [*cuts, n_classes], head_bias
        self.shortlist_size, self.n_clusters = cuts[0], len(cuts)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for number in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (number + 1)))
            size = self.cutoffs[number + 1] - self.cutoffs[number]
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, False, device, dtype),
                    Linear(hidden, size, False, device, dtype),
                )
            )

    def forward(self, input_: Tensor, target_: Tensor) -> ASMOutput:
        """The targets' log-probabilities, and the loss.

        Raises:
            ShapeError: input and target do not fit.
        """
        input, target = input_, target_
        if target.ndim != input.ndim - 1 or input.shape[:-1] != target.shape or target.ndim > 1:
            raise ShapeError(
                f"[AdaptiveLogSoftmaxWithLoss] expected an input (N, {self.in_features}) and a target (N,), "
                f"got {input.shape} and {target.shape}"
            )
        logs = self.log_prob(input if target.ndim else input.unsqueeze(0))
        output = ops.gather(logs, 1, target.reshape(-1, 1)).squeeze(1)
        return ASMOutput(output if target.ndim else output.squeeze(0), -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities (N, n_classes) of all classes."""
        head = functional.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for number, layers in enumerate(self.tail):
            at = self.shortlist_size + number
            parts.append(functional.log_softmax(layers(input), 1) + head[:, at : at + 1])
        result: Tensor = ops.cat(parts, 1)
        return result

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class (N,) of each sample."""
        result: Tensor = self.log_prob(input).argmax(1)
        return result
