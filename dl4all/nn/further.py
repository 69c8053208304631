"""Layers that stand alone: products of two inputs, bags of vectors, other shapes, neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.nn import functional, init
from dl4all.nn.module import Module, Parameter
from dl4all.tensor.creation import empty
from dl4all.tensor.tensor import Tensor


class Bilinear(Module):
    """``x1 @ weight[i] @ x2 + bias[i]`` for each output i, over the last axes.

    Args:
        in1_features, in2_features: sizes of the inputs' last axes.
        out_features: size of the output's.
        bias: whether there is a bias.

    Shape:
        (..., in1_features) and (..., in2_features) to (..., out_features).

    Raises:
        ArgumentError: a size is not positive.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Bilinear(2, 3, 4)(dl.ones(5, 2, device="cpu"), dl.ones(5, 3, device="cpu")).shape
        (5, 4)
    """

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        if min(in1_features, in2_features, out_features) < 1:
            raise ArgumentError(
                f"[Bilinear] cannot map {in1_features} and {in2_features} features to {out_features}"
            )
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(init.fan_in_uniform(shape, in1_features))
        self.bias = Parameter(init.fan_in_uniform((out_features,), in1_features)) if bias else None

    def forward(self, x1: Tensor, x2: Tensor) -> Any:
        return functional.bilinear(x1, x2, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = f"{self.in1_features}, {self.in2_features}, {self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


class EmbeddingBag(Module):
    """The sum, mean or largest elements of vectors, bag by bag, without keeping the vectors.

    Args:
        num_embeddings: how many vectors there are.
        embedding_dim: their length.
        mode: "sum", "mean" or "max".
        include_last_offset: whether the last offset is the end of the last bag.
        padding_idx: a number that does not count.

    Shape:
        Ints (bags, numbers), or one axis and where each bag begins, to (bags, embedding_dim).

    Raises:
        ArgumentError: a size is not positive.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.EmbeddingBag(10, 3)(dl.tensor([[1, 2], [4, 4]], device="cpu")).shape
        (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        if num_embeddings < 1 or embedding_dim < 1:
            raise ArgumentError(
                f"[EmbeddingBag] cannot have {num_embeddings} vectors of length {embedding_dim}; "
                "both must be positive"
            )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.mode, self.include_last_offset, self.padding_idx = mode, include_last_offset, padding_idx
        self.weight = Parameter(init.normal_(empty((num_embeddings, embedding_dim), device="cpu")))

    def forward(self, input: Tensor, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        return functional.embedding_bag(
            input,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"


class Unflatten(Module):
    """One axis as several, as :meth:`dl4all.Tensor.unflatten` makes them.

    Args:
        dim: the axis.
        unflattened_size: the sizes in its place; one may be -1.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Unflatten(1, (2, 3))(dl.zeros(5, 6)).shape
        (5, 2, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class LocalResponseNorm(Module):
    """:func:`~dl4all.nn.functional.local_response_norm` as a layer."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Any:
        return functional.local_response_norm(x, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
