"""Multi-head attention."""

from __future__ import annotations

from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import functional, init
from dl4all.nn.module import Module
from dl4all.nn.modules.linear import Linear
from dl4all.nn.parameter import Parameter
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.tensor.arguments import DeviceLike
from dl4all.tensor.creation import empty
from dl4all.tensor.tensor import Tensor


class MultiheadAttention(Module):
    """Multi-head attention (Vaswani et al., arXiv:1706.03762).

    Args:
        embed_dim: features of the query and of the result, divided among the heads.
        num_heads: how many heads there are.
        dropout: the probability with which an attention weight becomes zero in training.
        bias: whether the projections have biases.
        add_bias_kv: whether a learned key and value come after the others.
        add_zero_attn: whether a key and a value of zeros come after the others.
        kdim, vdim: features of key and value; by default `embed_dim`.
        batch_first: whether tensors are (N, L, features) rather than (L, N, features).
        device, dtype: of the parameters; by default the default device and float32.

    Shape:
        Query (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim), or all without N.

    Raises:
        ArgumentError: the features do not split into the heads.

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(7, 2, 6, device="cpu")
        >>> result, weights = dl.nn.MultiheadAttention(6, 3)(x, x, x)
        >>> result.shape, weights.shape
        ((7, 2, 6), (2, 7, 7))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError(
                f"[MultiheadAttention] {embed_dim} features do not split into {num_heads} heads"
            )
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.batch_first = batch_first
        self.out_proj = Linear(embed_dim, embed_dim, bias)  # draws before the projections, as PyTorch's does
        if bias:
            self.out_proj.bias = Parameter(init.zeros((embed_dim,)))
        self.in_proj_weight = self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = _xavier(3 * embed_dim, embed_dim)
        else:
            self.q_proj_weight = _xavier(embed_dim, embed_dim)
            self.k_proj_weight = _xavier(embed_dim, self.kdim)
            self.v_proj_weight = _xavier(embed_dim, self.vdim)
        self.in_proj_bias = Parameter(init.zeros((3 * embed_dim,))) if bias else None
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            self.bias_k, self.bias_v = (
                Parameter(init.xavier_normal_(empty((1, 1, embed_dim), device="cpu"))) for _ in range(2)
            )
        self.add_zero_attn = add_zero_attn
        self._place(device, dtype)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result, and the weights of all keys for each query.

        Args:
            query, key, value: see the class.
            key_padding_mask: (N, S): bools, True for keys that no query may see, or floats that are added to
                the scores.
            need_weights: whether weights are returned, all of which are then in memory; if not, only as many
                scores are as :func:`~dl4all.nn.functional.scaled_dot_product_attention` says.
            attn_mask: (L, S) or (N * num_heads, L, S): bools, True where a query may *not* see a key, or
                floats that are added to the scores.
            average_attn_weights: return the mean over the heads.
            is_causal: a promise that `attn_mask` is causal, which must be given too.

        Returns:
            (L, N, embed_dim) and None or weights (N, L, S), or (N, num_heads, L, S) for each head.

        Raises:
            ShapeError: the shapes do not fit.
            ArgumentError: `is_causal` without `attn_mask`.
        """
        self._check(query, key, value)
        swapped = self.batch_first and query.ndim == 3
        operands = (query, key, value)
        if swapped:
            same = query is key and key is value
            operands = (query.swapaxes(0, 1),) * 3 if same else tuple(t.swapaxes(0, 1) for t in operands)  # type: ignore[assignment]
        result, weights = functional.multi_head_attention_forward(
            *operands,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            self.training,
            key_padding_mask,
            need_weights,
            attn_mask,
            self.in_proj_weight is None,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return result.swapaxes(0, 1) if swapped else result, weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        features = (self.embed_dim, self.kdim, self.vdim)
        shapes = tuple(t.shape for t in (query, key, value))
        if (
            query.ndim not in (2, 3)
            or any(len(s) != query.ndim or s[-1] != size for s, size in zip(shapes, features, strict=True))
            or key.shape[:-1] != value.shape[:-1]
        ):
            raise ShapeError(
                "[MultiheadAttention] expected query, key and value of 2 or 3 axes with "
                f"{features} features, got {', '.join(map(str, shapes))}"
            )

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, batch_first={self.batch_first}"


def _xavier(rows: int, columns: int) -> Parameter:
    return Parameter(init.xavier_uniform_(empty((rows, columns), device="cpu")))
