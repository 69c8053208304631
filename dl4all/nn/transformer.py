"""Transformers: layers of attention and of a network for each element (Vaswani et al., arXiv:1706.03762)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.nn import functional, init
from dl4all.nn.attention import MultiheadAttention
from dl4all.nn.container import ModuleList
from dl4all.nn.dropout import Dropout
from dl4all.nn.linear import Linear
from dl4all.nn.module import Module, Parameter
from dl4all.nn.normalization import LayerNorm
from dl4all.tensor.arguments import DeviceLike
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

ACTIVATIONS: dict[str, Callable[..., Any]] = {"relu": functional.relu, "gelu": functional.gelu}


class _Layer(Module):
    """What encoder and decoder layers share."""

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

    crosses = False

    def _around(self, x: Any, number: int, part: Callable[[Any], Any]) -> Any:
        """A part with a way around it, normalised before or after."""
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        if self.norm_first:
            return x + dropout(part(norm(x)))
        return norm(x + dropout(part(x)))

    def _feedforward(self, x: Any) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _attend_itself(self, mask: Any, padding: Any) -> Callable[[Any], Any]:
        return lambda x: self.self_attn(x, x, x, padding, need_weights=False, attn_mask=mask)[0]


class TransformerEncoderLayer(_Layer):
    """Attention among the elements of a sequence, and a network of two layers for each.

    Args:
        d_model: features.
        nhead: heads.
        dim_feedforward: features between the two layers.
        dropout: the probability with which elements become zero in training.
        activation: ``"relu"``, ``"gelu"`` or a function.
        layer_norm_eps: of the normalisations.
        batch_first: whether tensors are (N, T, d_model) rather than (T, N, d_model).
        norm_first: normalise the input of each part, rather than the output.
        bias: whether linear layers and normalisations have biases.

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
        self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Any:
        """Masks as in :class:`MultiheadAttention`; `is_causal` says what `src_mask` is."""
        x = self._around(src, 1, self._attend_itself(src_mask, src_key_padding_mask))
        return self._around(x, 2, self._feedforward)


class TransformerDecoderLayer(_Layer):
    """As :class:`TransformerEncoderLayer`, with attention to another sequence in between.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation: as there.
        layer_norm_eps, batch_first, norm_first, bias: as there.

    Shape:
        (T, N, d_model) and a memory (S, N, d_model), to (T, N, d_model).
    """

    crosses = True

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Any:
        """Masks as in :class:`MultiheadAttention`; the last two say what the masks are."""

        def attend(x: Any) -> Any:
            return self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, need_weights=False, attn_mask=memory_mask
            )[0]

        x = self._around(tgt, 1, self._attend_itself(tgt_mask, tgt_key_padding_mask))
        x = self._around(x, 2, attend)
        return self._around(x, 3, self._feedforward)


def copied(module: Module) -> Module:
    """A module of the same kind with parameters of its own, of the same values."""
    made = copy.copy(module)
    made._buffer_names = set(module._buffer_names)
    made._hooks, made._pre_hooks = {}, {}
    for name, value in vars(module).items():
        if isinstance(value, Parameter):
            again = from_numpy(np.array(value.detach().numpy()), value.device)
            setattr(made, name, Parameter(again, value.requires_grad))
        elif isinstance(value, Module):
            setattr(made, name, copied(value))
    return made


class TransformerEncoder(Module):
    """Encoder layers one after the other.

    Args:
        encoder_layer: what each is a copy of.
        num_layers: how many.
        norm: comes behind the last.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.TransformerEncoderLayer(6, 2, 8)
        >>> dl.nn.TransformerEncoder(layer, 2)(dl.zeros(5, 3, 6, device="cpu")).shape
        (5, 3, 6)
    """

    def __init__(
        self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copied(encoder_layer) for _ in range(num_layers)])
        self.norm = norm

    def forward(
        self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Any:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Decoder layers one after the other.

    Args:
        decoder_layer: what each is a copy of.
        num_layers: how many.
        norm: comes behind the last.
    """

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copied(decoder_layer) for _ in range(num_layers)])
        self.norm = norm

    def forward(self, tgt: Any, memory: Any, *masks: Any, **options: Any) -> Any:
        """Arguments as for :class:`TransformerDecoderLayer`."""
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **options)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder, and a decoder that looks at what it found.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation: as for :class:`TransformerEncoderLayer`.
        layer_norm_eps, batch_first, norm_first, bias: as there, too.
        num_encoder_layers, num_decoder_layers: how many layers each has.
        custom_encoder, custom_decoder: take the place of one.

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
    ) -> None:
        super().__init__()
        given: tuple[Any, ...] = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
            bias,
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*given), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*given), num_decoder_layers, norm()
        )
        for parameter in self.parameters():
            if len(parameter.shape) > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Any,
        tgt: Any,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
    ) -> Any:
        """Masks as in :class:`MultiheadAttention`."""
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: DeviceLike = "auto") -> Tensor:
        """A mask that forbids all that comes later: -inf above the diagonal, 0 elsewhere.

        Example:
            >>> import dl4all as dl
            >>> dl.nn.Transformer.generate_square_subsequent_mask(2, device="cpu").tolist()
            [[0.0, -inf], [0.0, 0.0]]
        """
        return from_numpy(np.triu(np.full((sz, sz), -math.inf, np.float32), 1), device)
