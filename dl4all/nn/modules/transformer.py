"""Transformer encoders and decoders (Vaswani et al., arXiv:1706.03762)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.nn import functional, init
from dl4all.nn.module import Module
from dl4all.nn.modules.attention import MultiheadAttention
from dl4all.nn.modules.container import ModuleList
from dl4all.nn.modules.dropout import Dropout
from dl4all.nn.modules.linear import Linear
from dl4all.nn.modules.normalization import LayerNorm
from dl4all.ops.core.limits import LAYERS, integer
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.tensor.arguments import DeviceLike
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

ACTIVATIONS: dict[str, Callable[..., Any]] = {"relu": functional.relu, "gelu": functional.gelu}


class _TransformerLayer(Module):
    """The sublayers that encoder and decoder layers share."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[..., Any] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if isinstance(activation, str) and activation not in ACTIVATIONS:
            raise ArgumentError(
                f"[{name}] activation must be 'relu', 'gelu' or a function, got {activation!r}"
            )
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation
        self.norm_first = norm_first
        attention = {"dropout": dropout, "bias": bias, "batch_first": batch_first}
        self.self_attn = MultiheadAttention(d_model, nhead, **attention)  # type: ignore[arg-type]
        if self.crosses:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **attention)  # type: ignore[arg-type]
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        for k in range(3 if self.crosses else 2):
            setattr(self, f"norm{k + 1}", LayerNorm(d_model, layer_norm_eps, bias=bias))
            setattr(self, f"dropout{k + 1}", Dropout(dropout))
        self._place(device, dtype)

    crosses = False  # whether there is attention to the encoder's output

    def _residual(self, x: Tensor, number: int, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """A sublayer with a residual connection, normalized before or after."""
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        result: Tensor = x + dropout(sublayer(norm(x))) if self.norm_first else norm(x + dropout(sublayer(x)))
        return result

    def _feedforward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return result

    def _self_attention(self, mask: Tensor | None, padding: Tensor | None) -> Callable[[Tensor], Tensor]:
        return lambda x: self.self_attn(x, x, x, padding, need_weights=False, attn_mask=mask)[0]


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention, then a feed-forward network of two layers for each element.

    Args:
        d_model: how many features an element has.
        nhead: how many attention heads there are.
        dim_feedforward: how many features there are between the two layers.
        dropout: the probability with which elements become zero in training.
        activation: ``"relu"``, ``"gelu"`` or a function.
        layer_norm_eps: `eps` of the normalizations.
        batch_first: whether tensors are (N, T, d_model) rather than (T, N, d_model).
        norm_first: normalize the input of each sublayer, rather than the output.
        bias: whether linear layers and normalizations have biases.
        device, dtype: of the parameters; by default the default device and float32.

    Shape:
        (T, N, d_model), or without N, the same out.

    Raises:
        ArgumentError: an argument makes no sense.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.TransformerEncoderLayer(6, 2, 8)(dl.zeros(5, 3, 6, device="cpu")).shape
        (5, 3, 6)
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Masks as in :class:`MultiheadAttention`; `is_causal` only describes `src_mask`."""
        x = self._residual(src, 1, self._self_attention(src_mask, src_key_padding_mask))
        return self._residual(x, 2, self._feedforward)


class TransformerDecoderLayer(_TransformerLayer):
    """As :class:`TransformerEncoderLayer`, with attention to the encoder's output in between.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation: as for the encoder layer.
        layer_norm_eps, batch_first, norm_first, bias, device, dtype: as for the encoder layer.

    Shape:
        (T, N, d_model) and a memory (S, N, d_model), to (T, N, d_model).

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True).eval()
        >>> layer(dl.rand(1, 3, 8), dl.rand(1, 5, 8)).shape
        (1, 3, 8)
    """

    crosses = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Masks as in :class:`MultiheadAttention`; the last two arguments only describe masks."""

        def cross_attention(x: Tensor) -> Tensor:
            result: Tensor
            result, _ = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, need_weights=False, attn_mask=memory_mask
            )
            return result

        x = self._residual(tgt, 1, self._self_attention(tgt_mask, tgt_key_padding_mask))
        x = self._residual(x, 2, cross_attention)
        return self._residual(x, 3, self._feedforward)


class TransformerEncoder(Module):
    """A stack of encoder layers.

    Args:
        encoder_layer: the layer that is copied.
        num_layers: how many copies there are.
        norm: a normalization after the last layer.
        enable_nested_tensor, mask_check: are taken for PyTorch's sake, which computes faster by them.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.TransformerEncoderLayer(6, 2, 8)
        >>> dl.nn.TransformerEncoder(layer, 2)(dl.zeros(5, 3, 6, device="cpu")).shape
        (5, 3, 6)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        integer(type(self).__name__, "num_layers", num_layers, least=0, most=LAYERS)
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Masks as in :class:`MultiheadAttention`; `is_causal` only describes `mask`."""
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """A stack of decoder layers.

    Args:
        decoder_layer: the layer that is copied.
        num_layers: how many copies there are.
        norm: a normalization after the last layer.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
        >>> dl.nn.TransformerDecoder(layer, 2).eval()(dl.rand(1, 3, 8), dl.rand(1, 5, 8)).shape
        (1, 3, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        integer(type(self).__name__, "num_layers", num_layers, least=0, most=LAYERS)
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Arguments as for :class:`TransformerDecoderLayer`."""
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """A transformer: an encoder, and a decoder that attends to the encoder's output.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation: as for :class:`TransformerEncoderLayer`.
        layer_norm_eps, batch_first, norm_first, bias, device, dtype: as for the encoder layer, too.
        num_encoder_layers, num_decoder_layers: how many layers each has.
        custom_encoder, custom_decoder: modules to use in place of the stacks.

    Shape:
        A source (S, N, d_model) and a target (T, N, d_model), to (T, N, d_model).

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Transformer(6, 2, 1, 1, 8)
        >>> mask = net.generate_square_subsequent_mask(3, device="cpu")
        >>> net(dl.zeros(5, 2, 6, device="cpu"), dl.zeros(3, 2, 6, device="cpu"), tgt_mask=mask).shape
        (3, 2, 6)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[..., Any] = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        layer_arguments: tuple[Any, ...] = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
            bias,
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*layer_arguments), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*layer_arguments), num_decoder_layers, norm()
        )
        for parameter in self.parameters():
            if len(parameter.shape) > 1:
                init.xavier_uniform_(parameter)
        self._place(device, dtype)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Masks as in :class:`MultiheadAttention`; the last three arguments only describe masks."""
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        result: Tensor = self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        )
        return result

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: DeviceLike | None = None, dtype: DTypeLike = None
    ) -> Tensor:
        """A causal mask: -inf above the diagonal, 0 elsewhere.

        Example:
            >>> import dl4all as dl
            >>> dl.nn.Transformer.generate_square_subsequent_mask(2, device="cpu").tolist()
            [[0.0, -inf], [0.0, 0.0]]
        """
        return from_numpy(np.triu(np.full((sz, sz), -math.inf, dtype or np.float32), 1), device or "auto")
