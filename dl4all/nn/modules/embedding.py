"""Embedding layers: tables of learned vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dl4all import ops
from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import functional, init
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.ops.core import tape
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.ops.memory.copy import fill_with
from dl4all.tensor.arguments import DeviceLike
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor


class Embedding(Module):
    """A table of learned vectors, one for each index.

    Args:
        num_embeddings: how many vectors there are.
        embedding_dim: their length.
        padding_idx: an index whose vector starts as zeros and gets no gradient.
        max_norm: vectors with a larger norm are scaled down to it, in place, when they are looked up.
        norm_type: the exponent of that norm.
        scale_grad_by_freq: divide gradients by how often the index occurs in the batch.
        sparse: is taken for PyTorch's sake: gradients are dense, with the same values.
        device, dtype: of the table; by default the default device and float32.

    Shape:
        Ints of any shape to (..., embedding_dim); ``weight`` is (num_embeddings, embedding_dim).

    Raises:
        ArgumentError: a size is not positive, or `padding_idx` is out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Embedding(10, 3)(dl.tensor([[1, 2, 1]], device="cpu")).shape
        (1, 3, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        if num_embeddings < 1 or embedding_dim < 1:
            raise ArgumentError(
                f"[Embedding] cannot have {num_embeddings} vectors of length {embedding_dim}; "
                "both must be positive"
            )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _padding_index(padding_idx, num_embeddings)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.weight = _table("Embedding", num_embeddings, embedding_dim, _weight, not _freeze)
        if self.padding_idx is not None and _weight is None:
            with tape.gradients(False):
                fill_with(self.weight[self.padding_idx], 0)
        given = None if _weight is None else _weight.device
        self._place(given if device is None else device, dtype)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A layer with the vectors of a matrix.

        Args:
            embeddings: shape (num_embeddings, embedding_dim); the memory is shared.
            freeze: whether training leaves the vectors unchanged.
            padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse: as for the class.

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
        return cls(
            *embeddings.shape,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
            _weight=embeddings,
            _freeze=freeze,
        )

    def forward(self, input: Tensor) -> Tensor:
        if self.max_norm is not None:
            _limit_norms(self.weight, input, self.max_norm, self.norm_type)
        result: Tensor = functional.embedding(input, self.weight, self.padding_idx)
        if self.scale_grad_by_freq and result.requires_grad:
            result.register_hook(_by_frequency(input, self.num_embeddings))
        return result

    def extra_repr(self) -> str:
        defaults = {
            "padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False,
            "sparse": False,
        }  # fmt: skip
        shown = [f", {k}={getattr(self, k)}" for k, v in defaults.items() if getattr(self, k) != v]
        return f"{self.num_embeddings}, {self.embedding_dim}{''.join(shown)}"


class EmbeddingBag(Module):
    """The sum, mean or maximum of the vectors in each bag of indices; the vectors are never stored.

    Args:
        num_embeddings: how many vectors there are.
        embedding_dim: their length.
        max_norm, norm_type: as for :class:`Embedding`.
        scale_grad_by_freq: only False.
        mode: "sum", "mean" or "max".
        sparse: is taken for PyTorch's sake: gradients are dense.
        include_last_offset: whether the last offset is the end of the last bag.
        padding_idx: an index that does not count.
        device, dtype: of the table; by default the default device and float32.

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
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        if num_embeddings < 1 or embedding_dim < 1:
            raise ArgumentError(
                f"[EmbeddingBag] cannot have {num_embeddings} vectors of length {embedding_dim}; "
                "both must be positive"
            )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if scale_grad_by_freq:
            raise ArgumentError("[EmbeddingBag] scale_grad_by_freq is not supported; use Embedding and a sum")
        self.mode, self.include_last_offset, self.padding_idx = mode, include_last_offset, padding_idx
        self.max_norm, self.norm_type, self.sparse = max_norm, norm_type, sparse
        self.weight = _table("EmbeddingBag", num_embeddings, embedding_dim, _weight, True)
        given = None if _weight is None else _weight.device
        self._place(given if device is None else device, dtype)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A layer with the vectors of a matrix, whose memory it shares; see :class:`Embedding`."""
        if len(embeddings.shape) != 2:
            raise ShapeError(
                "[EmbeddingBag] expected vectors of shape (num_embeddings, embedding_dim), "
                f"got {embeddings.shape}"
            )
        layer = cls(
            *embeddings.shape,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        layer.weight.requires_grad_(not freeze)
        return layer

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        if self.max_norm is not None:
            _limit_norms(self.weight, input, self.max_norm, self.norm_type)
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


def _table(name: str, count: int, size: int, values: Tensor | None, requires_grad: bool) -> Parameter:
    """The vectors: those that are given, or random ones.

    Raises:
        ShapeError: the given ones have another shape.
    """
    if values is None:
        return Parameter(init.standard_normal((count, size)), requires_grad)
    if values.shape != (count, size):
        raise ShapeError(f"[{name}] expected vectors of shape {(count, size)}, got {values.shape}")
    return Parameter(values, requires_grad)


def _limit_norms(table: Tensor, indices: Tensor, most: float, p: float) -> None:
    """Scale the vectors that are looked up down to a norm, in place."""
    used = from_numpy(np.unique(indices.detach().numpy()), table.device)
    with tape.gradients(False):
        rows = table.detach().index_select(0, used)
        norms = ops.norm(rows, p, 1, True)
        factors = ops.where(norms > most, most / (norms + 1e-7), 1.0)
        table.index_copy_(0, used, rows * factors)


def _by_frequency(indices: Tensor, count: int) -> Callable[[Tensor], Tensor]:
    """Divides gradients of looked-up vectors by how often each index occurs."""
    numbers = indices.detach().numpy()
    counts = np.bincount(numbers.reshape(-1), minlength=count)[numbers][..., None]

    def scaled(gradient: Tensor) -> Tensor:
        return gradient / from_numpy(counts.astype(gradient.dtype), gradient.device)

    return scaled


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
