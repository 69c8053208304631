"""Losses with margins, negative log-likelihoods and distances as layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all.nn import functional
from dl4all.nn.loss import _Loss
from dl4all.nn.module import Module
from dl4all.tensor.tensor import Tensor


class MultiMarginLoss(_Loss):
    """:func:`~dl4all.nn.functional.multi_margin_loss` as a layer."""

    weight: Any

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction, weight=weight)
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return functional.multi_margin_loss(
            input, target, self.p, self.margin, self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(_Loss):
    """:func:`~dl4all.nn.functional.multilabel_margin_loss` as a layer."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return functional.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """:func:`~dl4all.nn.functional.multilabel_soft_margin_loss` as a layer."""

    weight: Any

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight)

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return functional.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """:func:`~dl4all.nn.functional.triplet_margin_loss` as a layer."""

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        *,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Any:
        given = self.margin, self.p, self.eps, self.swap
        return functional.triplet_margin_loss(anchor, positive, negative, *given, reduction=self.reduction)


class TripletMarginWithDistanceLoss(_Loss):
    """:func:`~dl4all.nn.functional.triplet_margin_with_distance_loss` as a layer."""

    def __init__(
        self,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Any:
        return functional.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """:func:`~dl4all.nn.functional.gaussian_nll_loss` as a layer."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Any) -> Any:
        return functional.gaussian_nll_loss(input, target, var, self.full, self.eps, reduction=self.reduction)


class PoissonNLLLoss(_Loss):
    """:func:`~dl4all.nn.functional.poisson_nll_loss` as a layer."""

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return functional.poisson_nll_loss(
            input, target, self.log_input, self.full, eps=self.eps, reduction=self.reduction
        )


class CTCLoss(_Loss):
    """:func:`~dl4all.nn.functional.ctc_loss` as a layer."""

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Tensor, targets: Any, input_lengths: Any, target_lengths: Any) -> Any:
        lengths = input_lengths, target_lengths
        return functional.ctc_loss(
            log_probs, targets, *lengths, self.blank, self.reduction, self.zero_infinity
        )


class PairwiseDistance(Module):
    """:func:`~dl4all.nn.functional.pairwise_distance` as a layer."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Any:
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
