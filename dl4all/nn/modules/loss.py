"""Losses as layers, and distances."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from dl4all.nn import functional
from dl4all.nn.module import Module
from dl4all.ops.loss.reduction import REDUCTIONS, check_reduction
from dl4all.tensor.tensor import Tensor

Lengths: TypeAlias = Tensor | Sequence[int]


class _Loss(Module):
    """A loss with a reduction, and optional weights, which move with the module and are part of its state."""

    reductions: ClassVar[tuple[str, ...]] = REDUCTIONS

    def __init__(
        self,
        reduction: str,
        size_average: bool | None = None,
        reduce: bool | None = None,
        **weights: Tensor | None,
    ) -> None:
        super().__init__()
        reduction = _reduction(reduction, size_average, reduce)
        check_reduction(type(self).__name__, reduction, self.reductions)
        self.reduction = reduction
        for name, value in weights.items():
            self.register_buffer(name, value)


class _WeightedLoss(_Loss):
    """A loss with a weight for each class or element."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, size_average, reduce, weight=weight)


class CrossEntropyLoss(_Loss):
    """:func:`~dl4all.nn.functional.cross_entropy` as a layer.

    Example:
        >>> import dl4all as dl
        >>> scores = dl.tensor([[1000.0, 0.0]], device="cpu")
        >>> dl.nn.CrossEntropyLoss()(scores, dl.tensor([0], device="cpu")).item()
        0.0
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction, size_average, reduce, weight=weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_Loss):
    """:func:`~dl4all.nn.functional.nll_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.NLLLoss()(dl.tensor([[0.25, 0.75]]).log(), dl.tensor([1]))
        >>> round(loss.item(), 4)
        0.2877
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, size_average, reduce, weight=weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.nll_loss(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class MSELoss(_Loss):
    """:func:`~dl4all.nn.functional.mse_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.MSELoss()(dl.tensor([0.5, 0.25]), dl.tensor([1.0, 0.0]))
        >>> round(loss.item(), 4)
        0.1562
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction, size_average, reduce)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """:func:`~dl4all.nn.functional.l1_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.L1Loss()(dl.tensor([0.5, 0.25]), dl.tensor([1.0, 0.0]))
        >>> round(loss.item(), 4)
        0.375
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction, size_average, reduce)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """:func:`~dl4all.nn.functional.smooth_l1_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.SmoothL1Loss()(dl.tensor([0.5, 0.25]), dl.tensor([1.0, 0.0]))
        >>> round(loss.item(), 4)
        0.0781
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(reduction, size_average, reduce)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """:func:`~dl4all.nn.functional.huber_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.HuberLoss()(dl.tensor([0.5, 0.25]), dl.tensor([1.0, 0.0]))
        >>> round(loss.item(), 4)
        0.0781
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class BCELoss(_Loss):
    """:func:`~dl4all.nn.functional.binary_cross_entropy` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.BCELoss()(dl.tensor([0.5, 0.25]), dl.tensor([1.0, 0.0]))
        >>> round(loss.item(), 4)
        0.4904
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, size_average, reduce, weight=weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """:func:`~dl4all.nn.functional.binary_cross_entropy_with_logits` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.BCEWithLogitsLoss()(dl.tensor([0.5, 0.25]), dl.tensor([1.0, 0.0]))
        >>> round(loss.item(), 4)
        0.65
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction, size_average, reduce, weight=weight, pos_weight=pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class KLDivLoss(_Loss):
    """:func:`~dl4all.nn.functional.kl_div` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.KLDivLoss(reduction="sum")(dl.tensor([0.5, 0.25]).log(), dl.tensor([0.75, 0.25]))
        >>> round(loss.item(), 4)
        0.3041
    """

    reductions = (*REDUCTIONS, "batchmean")

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(reduction, size_average, reduce)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class CosineSimilarity(Module):
    """:func:`~dl4all.nn.functional.cosine_similarity` as a layer.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.tensor([[1.0, 0.0]]), dl.tensor([[1.0, 1.0]])
        >>> [round(v, 4) for v in dl.nn.CosineSimilarity()(x, y).tolist()]
        [0.7071]
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functional.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """:func:`~dl4all.nn.functional.pairwise_distance` as a layer."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class GaussianNLLLoss(_Loss):
    """:func:`~dl4all.nn.functional.gaussian_nll_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> mean, target, variance = dl.tensor([0.5, 0.25]), dl.tensor([1.0, 0.0]), dl.tensor([1.0, 2.0])
        >>> loss = dl.nn.GaussianNLLLoss()(mean, target, variance)
        >>> round(loss.item(), 4)
        0.2436
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return functional.gaussian_nll_loss(input, target, var, self.full, self.eps, reduction=self.reduction)


class PoissonNLLLoss(_Loss):
    """:func:`~dl4all.nn.functional.poisson_nll_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.PoissonNLLLoss()(dl.tensor([0.5, 0.25]), dl.tensor([1.0, 0.0]))
        >>> round(loss.item(), 4)
        1.2164
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, size_average, reduce)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return functional.poisson_nll_loss(
            log_input, target, self.log_input, self.full, eps=self.eps, reduction=self.reduction
        )


class CTCLoss(_Loss):
    """:func:`~dl4all.nn.functional.ctc_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> scores = dl.nn.functional.log_softmax(dl.zeros(5, 1, 3), 2)
        >>> loss = dl.nn.CTCLoss()(scores, dl.tensor([[1, 2]]), dl.tensor([5]), dl.tensor([2]))
        >>> round(loss.item(), 4)
        0.9689
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths
    ) -> Tensor:
        lengths = input_lengths, target_lengths
        return functional.ctc_loss(
            log_probs, targets, *lengths, self.blank, self.reduction, self.zero_infinity
        )


def _reduction(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction that PyTorch's old arguments stand for; without these, `reduction`."""
    if size_average is None and reduce is None:
        return reduction
    meant = "none" if reduce is False else "sum" if size_average is False else "mean"
    warnings.warn(
        f"size_average and reduce are old; use reduction={meant!r}", DeprecationWarning, stacklevel=4
    )
    return meant
