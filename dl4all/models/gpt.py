"""GPT-2 (Radford et al., 2019), with its parameter names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all import nn
from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, ShapeError
from dl4all.models.init import Layer
from dl4all.nn import init
from dl4all.nn.functional import dropout, gelu, scaled_dot_product_attention
from dl4all.ops import cat, reshape
from dl4all.ops.random.generator import Generator
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.random import multinomial
from dl4all.tensor.tensor import Tensor

KeyValueCache: TypeAlias = list[Tensor]
"""Keys and values (N, heads, tokens, features of a head) of a layer's past tokens; empty at first."""


class CausalSelfAttention(nn.Module):
    """Attention of each token to itself and the tokens before it.

    Args:
        n_embd: how many features a token has.
        n_head: how many heads there are.
        rate: the dropout probability in training.
        bias: whether projections have biases.
    """

    def __init__(self, n_embd: int, n_head: int, rate: float, bias: bool) -> None:
        super().__init__()
        self.n_head, self.rate = n_head, rate
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias)

    def forward(self, x: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """With a filled cache, `x` is the one token after those whose keys and values the cache holds."""
        batch, steps, features = x.shape
        heads = reshape(self.c_attn(x), batch, steps, 3, self.n_head, features // self.n_head)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        if cache:
            k, v = (cat([cached, new], 2) for cached, new in zip(cache, (k, v), strict=True))
        rate = self.rate if self.training else 0.0
        y = scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=not cache)
        if cache is not None:
            cache[:] = k, v
        y = self.c_proj(reshape(y.swapaxes(1, 2), batch, steps, features))
        return dropout(y, self.rate, self.training)


class FeedForward(nn.Module):
    """Two linear layers for each token, with four times the features in between."""

    def __init__(self, n_embd: int, rate: float, bias: bool) -> None:
        super().__init__()
        self.rate = rate
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias)
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias)

    def forward(self, x: Tensor) -> Tensor:
        return dropout(self.c_proj(gelu(self.c_fc(x), approximate="tanh")), self.rate, self.training)


class Block(nn.Module):
    """Attention and a feed-forward network, each after a normalization and with a residual connection."""

    def __init__(self, n_embd: int, n_head: int, rate: float, bias: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd, bias=bias)
        self.attn = CausalSelfAttention(n_embd, n_head, rate, bias)
        self.ln_2 = nn.LayerNorm(n_embd, bias=bias)
        self.mlp = FeedForward(n_embd, rate, bias)

    def forward(self, x: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache)
        y: Tensor = x + self.mlp(self.ln_2(x))
        return y


class _Embeddings(nn.Module):
    """The embeddings of a network as one layer, which has no parameters of its own."""

    def __init__(
        self, wte: nn.Embedding, wpe: nn.Embedding, rate: float, check: Callable[[Tensor], None]
    ) -> None:
        super().__init__()
        self.wte, self.wpe, self.rate, self._check = wte, wpe, rate, check

    def forward(self, idx: Tensor) -> Tensor:
        self._check(idx)
        return dropout(_embed(self.wte, self.wpe, idx, 0), self.rate, self.wte.training)


def _embed(wte: nn.Embedding, wpe: nn.Embedding, idx: Tensor, start: int) -> Tensor:
    """The features of tokens at positions from `start` on."""
    x: Tensor = wte(idx) + wpe.weight[start : start + idx.shape[1]]
    return x


class GPT(nn.Module):
    """Predicts the next token of a sequence.

    The last layer shares the table of the embedding, which is thus also ``lm_head.weight``.

    Args:
        vocab_size: how many tokens there are.
        block_size: the length of the longest sequence.
        n_layer, n_head, n_embd: how many blocks, heads in each block, and features.
        dropout: the dropout probability in training.
        bias: whether linear layers and normalizations have biases.

    Shape:
        Ints (N, T) to scores (N, T, vocab_size).

    Raises:
        ArgumentError: the features do not split into the heads.

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.GPT(vocab_size=11, block_size=8, n_layer=1, n_head=2, n_embd=6)
        >>> net(dl.tensor([[1, 2, 3]], device="cpu")).shape
        (1, 3, 11)
        >>> net.generate(dl.tensor([[1, 2, 3]], device="cpu"), 4).shape
        (1, 7)
    """

    def __init__(
        self,
        vocab_size: int,
        block_size: int,
        n_layer: int = 12,
        n_head: int = 12,
        n_embd: int = 768,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if n_head < 1 or n_embd % n_head:
            raise ArgumentError(f"[GPT] {n_embd} features do not split into {n_head} heads")
        self.vocab_size, self.block_size, self.rate = vocab_size, block_size, dropout
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab_size, n_embd),
                "wpe": nn.Embedding(block_size, n_embd),
                "h": nn.ModuleList([Block(n_embd, n_head, dropout, bias) for _ in range(n_layer)]),
                "ln_f": nn.LayerNorm(n_embd, bias=bias),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                init.zeros_(parameter)
            elif len(parameter.shape) == 2:
                residual = name.endswith("c_proj.weight")
                init.normal_(parameter, std=0.02 / math.sqrt(2 * n_layer) if residual else 0.02)
        self.lm_head.weight = self._part("wte").weight

    def forward(self, idx: Tensor) -> Tensor:
        """Scores of the next token after each token.

        Raises:
            ShapeError: the sequences are too long.
            ArgumentError: a token is out of range.
        """
        self._check(idx)
        scores: Tensor = self.lm_head(self._features(idx, 0, [None] * len(self._part("h"))))
        return scores

    def layers(self) -> list[tuple[str, Layer]]:
        """The modules that ``forward`` calls in turn, by name: a pipeline can be cut between them."""
        embedding = _Embeddings(self._part("wte"), self._part("wpe"), self.rate, self._check)
        blocks = ((f"transformer.h.{name}", block) for name, block in self._part("h").named_children())
        return [
            ("transformer.wte", embedding),
            *blocks,
            ("transformer.ln_f", self._part("ln_f")),
            ("lm_head", self.lm_head),
        ]

    def _check(self, idx: Tensor) -> None:
        if idx.ndim != 2 or idx.shape[1] > self.block_size:
            raise ShapeError(f"[GPT] expected ints of shape (N, up to {self.block_size}), got {idx.shape}")

    def _features(self, idx: Tensor, start: int, caches: Sequence[KeyValueCache | None]) -> Any:
        """The inputs of the last layer, for tokens at positions from `start` on."""
        x = _embed(self._part("wte"), self._part("wpe"), idx, start)
        x = dropout(x, self.rate, self.training)
        for block, cache in zip(self._part("h"), caches, strict=True):
            x = block(x, cache)
        return self._part("ln_f")(x)

    def _part(self, name: str) -> Any:
        return self.transformer[name]

    @no_grad()
    def generate(
        self,
        idx: Tensor,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        """Continue sequences, token by token.

        The network computes each token once, because its keys and values are cached. Beyond `block_size`
        tokens each new token shifts the positions of the others, which are then computed again.

        Args:
            idx: ints (N, T), T at least 1.
            max_new_tokens: how many to append.
            temperature: divides the scores; 0 always takes the likeliest token.
            top_k: how many of the likeliest tokens to choose among.
            generator: the source of the random numbers.

        Returns:
            Ints (N, T + max_new_tokens).

        Raises:
            ArgumentError: the temperature is negative, or `top_k` less than 1.
            ShapeError: the sequences are empty, or `idx` has not two axes.
        """
        if temperature < 0 or (top_k is not None and top_k < 1):
            raise ArgumentError(
                f"[generate] expected temperature >= 0 and top_k >= 1, got {temperature} and {top_k}"
            )
        if idx.ndim != 2 or not idx.shape[1]:
            raise ShapeError(f"[generate] expected ints of shape (N, at least 1), got {idx.shape}")
        caches: list[KeyValueCache] = []
        for _ in range(max_new_tokens):
            if (
                not caches or idx.shape[1] > self.block_size
            ):  # in the first step, and whenever the positions shift
                caches = [[] for _ in self._part("h")]
                features = self._features(idx[:, -self.block_size :], 0, caches)
            else:
                features = self._features(idx[:, -1:], idx.shape[1] - 1, caches)
            scores = self.lm_head(features[:, -1]).numpy().astype(np.float64)
            if temperature == 0:
                tokens = from_numpy(scores.argmax(-1, keepdims=True))
            else:
                probabilities = from_numpy(_probabilities(scores / temperature, top_k))
                tokens = multinomial(probabilities, 1, generator=generator)
            idx = cat([idx, tokens.to(idx.device).to(idx.dtype)], 1)
        return idx


def _probabilities(scores: npt.NDArray[np.float64], top_k: int | None) -> npt.NDArray[np.float32]:
    """Softmax of the scores, of which all but the `top_k` largest become 0."""
    if top_k is not None and top_k < scores.shape[-1]:
        threshold = np.sort(scores, -1)[:, -top_k, None]
        scores = np.where(scores < threshold, -np.inf, scores)
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    probabilities: npt.NDArray[np.float64] = exponentials / exponentials.sum(-1, keepdims=True)
    return probabilities.astype(np.float32)
