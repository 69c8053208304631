"""Losses with a margin as layers: of embeddings, rankings, classes and triplets."""

from __future__ import annotations

from collections.abc import Callable

from dl4all.nn import functional
from dl4all.nn.modules.loss import _Loss
from dl4all.tensor.tensor import Tensor


class _MarginLoss(_Loss):
    """A loss with a margin and a reduction."""

    def __init__(
        self, margin: float, reduction: str, size_average: bool | None = None, reduce: bool | None = None
    ) -> None:
        super().__init__(reduction, size_average, reduce)
        self.margin = margin


class CosineEmbeddingLoss(_MarginLoss):
    """:func:`~dl4all.nn.functional.cosine_embedding_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.tensor([[1.0, 0.0]]), dl.tensor([[1.0, 1.0]])
        >>> loss = dl.nn.CosineEmbeddingLoss()(x, y, dl.tensor([1]))
        >>> round(loss.item(), 4)
        0.2929
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, reduction, size_average, reduce)

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functional.cosine_embedding_loss(input1, input2, target, self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(_MarginLoss):
    """:func:`~dl4all.nn.functional.hinge_embedding_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.HingeEmbeddingLoss()(dl.tensor([0.5, 0.25]), dl.tensor([1, -1]))
        >>> round(loss.item(), 4)
        0.625
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, reduction, size_average, reduce)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.hinge_embedding_loss(input, target, self.margin, reduction=self.reduction)


class MarginRankingLoss(_MarginLoss):
    """:func:`~dl4all.nn.functional.margin_ranking_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.tensor([0.5, 0.25]), dl.tensor([1.0, 0.0])
        >>> loss = dl.nn.MarginRankingLoss(margin=0.5)(x, y, dl.tensor([1, -1]))
        >>> round(loss.item(), 4)
        0.875
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, reduction, size_average, reduce)

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functional.margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """:func:`~dl4all.nn.functional.soft_margin_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.SoftMarginLoss()(dl.tensor([0.5, 0.25]), dl.tensor([1.0, -1.0]))
        >>> round(loss.item(), 4)
        0.65
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction, size_average, reduce)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.soft_margin_loss(input, target, reduction=self.reduction)


class MultiMarginLoss(_Loss):
    """:func:`~dl4all.nn.functional.multi_margin_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.MultiMarginLoss()(dl.tensor([[0.1, 0.8]]), dl.tensor([1]))
        >>> round(loss.item(), 4)
        0.15
    """

    weight: Tensor | None

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, size_average, reduce, weight=weight)
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.multi_margin_loss(
            input, target, self.p, self.margin, self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(_Loss):
    """:func:`~dl4all.nn.functional.multilabel_margin_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.MultiLabelMarginLoss()(dl.tensor([[0.1, 0.2, 0.4, 0.8]]), dl.tensor([[3, 0, -1, 1]]))
        >>> round(loss.item(), 4)
        0.85
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction, size_average, reduce)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """:func:`~dl4all.nn.functional.multilabel_soft_margin_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> loss = dl.nn.MultiLabelSoftMarginLoss()(dl.tensor([[0.5, -1.0]]), dl.tensor([[1.0, 0.0]]))
        >>> round(loss.item(), 4)
        0.3937
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
        return functional.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """:func:`~dl4all.nn.functional.triplet_margin_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> anchor, positive = dl.tensor([[1.0, 0.0]]), dl.tensor([[1.0, 1.0]])
        >>> loss = dl.nn.TripletMarginLoss()(anchor, positive, dl.tensor([[0.0, 0.0]]))
        >>> round(loss.item(), 4)
        1.0
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, size_average, reduce)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        settings = self.margin, self.p, self.eps, self.swap
        return functional.triplet_margin_loss(anchor, positive, negative, *settings, reduction=self.reduction)


class TripletMarginWithDistanceLoss(_Loss):
    """:func:`~dl4all.nn.functional.triplet_margin_with_distance_loss` as a layer.

    Example:
        >>> import dl4all as dl
        >>> far = lambda a, b: (a - b).abs().sum(1)
        >>> loss = dl.nn.TripletMarginWithDistanceLoss(distance_function=far)
        >>> anchor, positive, negative = dl.tensor([[1.0]]), dl.tensor([[1.5]]), dl.tensor([[0.0]])
        >>> loss(anchor, positive, negative).item()
        0.5
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return functional.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )
