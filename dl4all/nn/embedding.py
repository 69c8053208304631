"""Embedding layers: tables of learned vectors."""

from __future__ import annotations

from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import functional, init
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.ops.core import tape
from dl4all.ops.memory.copy import fill_with
from dl4all.tensor.creation import empty
from dl4all.tensor.tensor import Tensor


class Embedding(Module):
    """A table of learned vectors, one for each index.

    Args:
        num_embeddings: how many vectors there are.
        embedding_dim: their length.
        padding_idx: an index whose vector starts as zeros and gets no gradient.

    Shape:
        Ints of any shape to (..., embedding_dim); ``weight`` is (num_embeddings, embedding_dim).

    Raises:
        ArgumentError: a size is not positive, or `padding_idx` is out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Embedding(10, 3)(dl.tensor([[1, 2, 1]], device="cpu")).shape
        (1, 3, 3)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None) -> None:
        super().__init__()
        if num_embeddings < 1 or embedding_dim < 1:
            raise ArgumentError(
                f"[Embedding] cannot have {num_embeddings} vectors of length {embedding_dim}; "
                "both must be positive"
            )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _padding_index(padding_idx, num_embeddings)
        self.weight = Parameter(init.normal_(empty((num_embeddings, embedding_dim), device="cpu")))
        if self.padding_idx is not None:
            with tape.gradients(False):
                fill_with(self.weight[self.padding_idx], 0)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Embedding:
        """A layer with the vectors of a matrix.

        Args:
            embeddings: shape (num_embeddings, embedding_dim); the memory is shared.
            freeze: whether training leaves the vectors unchanged.
            padding_idx: as for the class.

        Raises:
            ShapeError: `embeddings` is no matrix.
            ArgumentError: `padding_idx` is out of range.

        Example:
            >>> import dl4all as dl
            >>> layer = dl.nn.Embedding.from_pretrained(dl.tensor([[1.0, 2.0], [3.0, 4.0]]))
            >>> layer(dl.tensor([1])).tolist()
            [[3.0, 4.0]]
        """
        if len(embeddings.shape) != 2:
            raise ShapeError(
                "[Embedding] expected vectors of shape (num_embeddings, embedding_dim), "
                f"got {embeddings.shape}"
            )
        layer = object.__new__(cls)
        Module.__init__(layer)
        layer.num_embeddings, layer.embedding_dim = embeddings.shape
        layer.padding_idx = _padding_index(padding_idx, layer.num_embeddings)
        layer.weight = Parameter(embeddings, requires_grad=not freeze)
        return layer

    def forward(self, input: Tensor) -> Tensor:
        return functional.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class EmbeddingBag(Module):
    """The sum, mean or maximum of the vectors in each bag of indices; the vectors are never stored.

    Args:
        num_embeddings: how many vectors there are.
        embedding_dim: their length.
        mode: "sum", "mean" or "max".
        include_last_offset: whether the last offset is the end of the last bag.
        padding_idx: an index that does not count.

    Shape:
        Ints (bags, indices), or (indices,) with the offset of each bag, to (bags, embedding_dim).

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

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
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


def _padding_index(padding_idx: int | None, count: int) -> int | None:
    """The index counted from the front; None if there is no padding.

    Raises:
        ArgumentError: the index is out of range.
    """
    if padding_idx is None:
        return None
    if not -count <= padding_idx < count:
        raise ArgumentError(f"[Embedding] padding_idx {padding_idx} is out of range for {count} vectors")
    return padding_idx % count
