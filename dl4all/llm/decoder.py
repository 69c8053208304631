"""One decoder for all families: attention, feed-forward networks, mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dl4all import nn
from dl4all.errors import ArgumentError, ShapeError
from dl4all.functions.sorting.sort_and_search import topk
from dl4all.graph.run.compiled import compile
from dl4all.llm.cache import KeyValueCache, Rows, attended, rounded_up
from dl4all.llm.families import DecoderConfig
from dl4all.llm.rotary import rotary_tables, rotated
from dl4all.nn import functional as F
from dl4all.tensor.creation import from_numpy, tensor, zeros
from dl4all.tensor.ranges import arange
from dl4all.tensor.tensor import Tensor

Angles = tuple[Tensor, Tensor] | None


class Tokens(NamedTuple):
    """The tensors that all layers of one call share.

    Attributes:
        angles: cosines and sines of the tokens' positions, for each layer.
        masks: which keys each token sees, for each layer.
        rows: of the cache, to which keys and values are written.
        end: keys of the cache that are looked at.
    """

    angles: list[Angles]
    masks: list[Tensor]
    rows: Rows | None = None
    end: int = 0


class Norm(nn.Module):
    """A norm over the last axis: of the root mean square, or of mean and variance as in GPT-2."""

    def __init__(self, config: DecoderConfig, width: int) -> None:
        super().__init__()
        self.eps, self.width = config.eps, width
        self.weight = nn.Parameter(zeros(width) + 1.0)
        self.bias = nn.Parameter(zeros(width)) if config.rules.plain else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalized features, computed in the dtype of the weight."""
        y = x.to(self.weight.dtype)
        if self.bias is not None:
            return F.layer_norm(y, (self.width,), self.weight, self.bias, self.eps).to(x.dtype)
        return F.rms_norm(y, (self.width,), self.weight, self.eps).to(x.dtype)


class Attention(nn.Module):
    """Attention of heads that share keys and values in groups."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        size, width = config.head_dim, config.width
        self.q_proj = nn.Linear(width, config.heads * size, bias=config.qkv_bias)
        self.k_proj = nn.Linear(width, config.kv_heads * size, bias=config.qkv_bias)
        self.v_proj = nn.Linear(width, config.kv_heads * size, bias=config.qkv_bias)
        self.o_proj = nn.Linear(config.heads * size, width, bias=config.out_bias)
        if config.rules.qk_norm:
            self.q_norm, self.k_norm = Norm(config, size), Norm(config, size)

    def forward(self, x: Tensor, tokens: Tokens, cache: KeyValueCache | None) -> Tensor:
        """Outputs (N, T, width)."""
        config, (n, count, _) = self.config, x.shape
        q, k, v = (
            proj(x).reshape(n, count, -1, config.head_dim) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        if config.rules.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if (angles := tokens.angles[self.layer]) is not None:
            q, k = rotated(q, *angles), rotated(k, *angles)
        if cache is not None:
            assert tokens.rows is not None
            cache.write(self.layer, tokens.rows, k, v)
            k, v = cache.keys[self.layer], cache.values[self.layer]
            if tokens.end < cache.length:
                k, v = k[:, :, : tokens.end], v[:, :, : tokens.end]
            k, v = k.to(q.dtype), v.to(q.dtype)
        y = self._attended(q, k, v, tokens.masks[self.layer])
        made: Tensor = self.o_proj(y.transpose(1, 2).reshape(n, count, -1))
        return made

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Outputs (N, heads, T, head_dim); heads of a group are rows of one product, so no key is copied."""
        config, (n, heads, count, size) = self.config, q.shape
        group = heads // config.kv_heads
        grouped = q.reshape(n, config.kv_heads, group * count, size)
        if group > 1 and count > 1:
            mask = mask.repeat(group, 1)
        if config.score_cap is None and count > 1:
            y = F.scaled_dot_product_attention(grouped, k, v, mask, scale=config.scale)
            return y.reshape(n, heads, count, size)
        scores = (grouped @ k.transpose(2, 3)) * config.scale
        if config.score_cap is not None:
            scores = (scores / config.score_cap).tanh() * config.score_cap
        weights = scores.masked_fill(mask.logical_not(), -1e30).softmax(-1)
        y = weights @ v
        return y.reshape(n, heads, count, size)


class DecoderFeedForward(nn.Module):
    """Two linear layers with an activation between them, and a gate beside it in all families but GPT-2."""

    def __init__(self, config: DecoderConfig, inner: int) -> None:
        super().__init__()
        self.activation, self.gated = config.activation, not config.rules.plain
        if self.gated:
            self.gate_proj = nn.Linear(config.width, inner, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.width, inner, bias=config.mlp_bias)
        self.down_proj = nn.Linear(inner, config.width, bias=config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of the input's shape."""
        gate = self._active((self.gate_proj if self.gated else self.up_proj)(x))
        y: Tensor = self.down_proj(gate * self.up_proj(x) if self.gated else gate)
        return y

    def _active(self, x: Tensor) -> Tensor:
        if self.activation == "silu":
            return F.silu(x)
        return F.gelu(x, approximate="tanh" if self.activation == "gelu_tanh" else "none")


class Experts(nn.Module):
    """A mixture of experts: each token goes to the few that its gate chooses."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.used, self.norm_topk = config.experts_used, config.norm_topk
        self.gate = nn.Linear(config.width, config.experts, bias=False)
        self.experts = nn.ModuleList(
            [DecoderFeedForward(config, config.expert_inner) for _ in range(config.experts)]
        )
        if config.shared_inner:
            self.shared_expert = DecoderFeedForward(config, config.shared_inner)
            self.shared_expert_gate = nn.Linear(config.width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of the input's shape. The chosen experts are read on the host."""
        rows = x.reshape(-1, x.shape[-1])
        weights, chosen = topk(self.gate(rows).float().softmax(-1), self.used, -1)
        if self.norm_topk:
            weights = weights / weights.sum(-1, keepdim=True)
        weights, index = weights.to(x.dtype), chosen.numpy()
        y = zeros(*rows.shape, device=x.device, dtype=x.dtype)
        for number in np.unique(index).tolist():
            which, place = np.nonzero(index == number)
            token = tensor(which, device=x.device)
            part = weights[token, tensor(place, device=x.device)].reshape(-1, 1)
            y = y.index_add(0, token, self.experts[number](rows[token]) * part)
        y = y.reshape(x.shape)
        if hasattr(self, "shared_expert"):
            y = y + self.shared_expert_gate(x).sigmoid() * self.shared_expert(x)
        return y


class DecoderLayer(nn.Module):
    """Attention and a feed-forward network, each with norms and a way past it."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        width = config.width
        self.input_layernorm, self.self_attn = Norm(config, width), Attention(config, layer)
        self.post_attention_layernorm = Norm(config, width)
        mixed = config.experts and layer not in config.dense_layers
        self.mlp = Experts(config) if mixed else DecoderFeedForward(config, config.inner)
        self.norms_after = config.rules.gemma > 1
        if self.norms_after:
            self.pre_feedforward_layernorm = Norm(config, width)
            self.post_feedforward_layernorm = Norm(config, width)

    def forward(self, x: Tensor, tokens: Tokens, cache: KeyValueCache | None) -> Tensor:
        """Features (N, T, width)."""
        y: Tensor = self.self_attn(self.input_layernorm(x), tokens, cache)
        if self.norms_after:
            x = x + self.post_attention_layernorm(y)
            y = self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
        else:
            x = x + y
            y = self.mlp(self.post_attention_layernorm(x))
        return x + y


class Decoder(nn.Module):
    """A language model: a decoder of any family, as its configuration says.

    Args:
        config: from :func:`decoder_config`.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> config = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> dl.llm.Decoder(config)(dl.tensor([[5, 6, 7]])).shape
        (1, 3, 97)
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocabulary, config.width)
        if config.rules.plain:
            self.embed_positions = nn.Embedding(config.positions, config.width)
        self.layers = nn.ModuleList([DecoderLayer(config, layer) for layer in range(config.layers)])
        self.norm = Norm(config, config.width)
        if not config.tied:
            self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        self._tables: dict[tuple[str, int, str], tuple[Tensor, Tensor]] = {}

    def forward(self, idx: Tensor, cache: KeyValueCache | None = None, *, last: bool = False) -> Tensor:
        """Scores (N, T, vocabulary) after each token.

        Args:
            idx: ints (N, T).
            cache: of the tokens before these, which are written to it.
            last: give those after the last token alone, (N, 1, vocabulary).

        Raises:
            ShapeError: `idx` has other axes, or other rows than the cache.
            ArgumentError: there are more tokens than positions or room, or one is not in the vocabulary.
        """
        begin = 0 if cache is None else cache.position
        self._check(idx, begin, cache)
        count = idx.shape[1]
        at = arange(begin, begin + count, device=idx.device)
        scores = self.scores(idx, at, cache, begin + count, last)
        if cache is not None:
            cache.position += count
        return scores

    def scores(
        self, idx: Tensor, at: Tensor, cache: KeyValueCache | None, end: int, last: bool = False
    ) -> Tensor:
        """Scores of tokens (N, T) at positions, which a compiled step takes as a tensor.

        Args:
            at: (T,) for all sequences, or (N, 1): a position of each sequence's one token.
            end: keys that are looked at.
            last: give those after the last token alone.
        """
        config = self.config
        x = self.embed_tokens(idx)
        if config.embed_scale != 1:
            # as the embedding's dtype has it: that is how these models were trained
            x = x * float(np.asarray(config.embed_scale).astype(x.dtype))
        if config.rules.plain:
            x = x + self.embed_positions(at)
        length = end if cache is None else cache.length
        masks = {window: attended(at, end, window) for window in set(config.windows)}
        kinds = {id(settings): settings for settings in config.ropes}  # few, which layers share
        angles = {key: self._angles(settings, length, at) for key, settings in kinds.items()}
        rows = None if cache is None else cache.rows(at)
        turned = [angles[id(settings)] for settings in config.ropes]
        tokens = Tokens(turned, [masks[window] for window in config.windows], rows, end)
        for layer in self.layers:
            x = layer(x, tokens, cache)
        x = self.norm(x[:, -1:] if last else x)
        y = F.linear(x, self.embed_tokens.weight) if config.tied else self.lm_head(x)
        if config.logit_cap is not None:
            y = (y / config.logit_cap).tanh() * config.logit_cap
        return y

    @compile
    def token_scores(self, idx: Tensor, at: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        """Scores (N, vocabulary) after one more token (N, 1) at a position (1,): a replay after two calls.

        Args:
            keys, values: those of a cache, which are written to.
        """
        cache = KeyValueCache(keys, values)
        return self.scores(idx, at, cache, cache.length)[:, -1]

    @compile
    def drafted_scores(self, idx: Tensor, at: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        """Scores (N, T, vocabulary) after each of few tokens (N, T) at positions (T,): a replay, too."""
        cache = KeyValueCache(keys, values)
        return self.scores(idx, at, cache, cache.length)

    def scores_after(self, token: Tensor, cache: KeyValueCache) -> Tensor:
        """Scores (1, vocabulary) after one more token (1,), which is written to the cache."""
        at = tensor([cache.position], device=token.device)
        idx = token.reshape(1, 1)
        if self.config.experts:  # which are chosen on the host
            scores = self.scores(idx, at, cache, cache.length)[:, -1]
        else:
            scores = self.token_scores(idx, at, cache.keys, cache.values)
        cache.position += 1
        return scores

    def make_cache(self, batch: int = 1, length: int | None = None) -> KeyValueCache:
        """An empty cache.

        Args:
            batch: sequences.
            length: tokens of each; all that the model has positions for if not given.

        Raises:
            ArgumentError: there are not so many positions.
        """
        config, length = self.config, self.config.positions if length is None else length
        if batch < 1 or not 1 <= length <= config.positions:
            raise ArgumentError(
                f"[llm] expected at least one sequence of 1 to {config.positions} tokens, got {batch} of "
                f"{length}"
            )
        weight = self.embed_tokens.weight
        shape = (batch, config.kv_heads, length, config.head_dim)
        made = [zeros(*shape, device=weight.device, dtype=weight.dtype) for _ in range(2 * config.layers)]
        return KeyValueCache(made[: config.layers], made[config.layers :])

    def _check(self, idx: Tensor, begin: int, cache: KeyValueCache | None) -> None:
        if idx.ndim != 2 or not idx.numel():
            raise ShapeError(f"[llm] expected tokens of shape (N, T), got {idx.shape}")
        room = self.config.positions if cache is None else min(self.config.positions, cache.length)
        if begin + idx.shape[1] > room:
            raise ArgumentError(
                f"[llm] {idx.shape[1]} tokens after {begin} are more than there is room for: {room}"
            )
        if cache is not None and idx.shape[0] != cache.keys[0].shape[0]:
            raise ShapeError(f"[llm] {idx.shape[0]} sequences for a cache of {cache.keys[0].shape[0]}")

    def _angles(self, settings: Mapping[str, Any] | None, length: int, at: Tensor) -> Angles:
        """Cosines and sines of positions, from tables that are made once for each kind and length."""
        if settings is None:
            return None
        depends = settings["rope_type"] in ("dynamic", "longrope")  # on the length itself
        size = length if depends else rounded_up(length)
        key = (repr(settings), size, str(at.device))
        if key not in self._tables:
            made = rotary_tables(settings, self.config.head_dim, size)
            self._tables[key] = tuple(from_numpy(table, at.device) for table in made)  # type: ignore[assignment]
        dtype = self.embed_tokens.weight.dtype
        cos, sin = (table[at].to(dtype) for table in self._tables[key])
        return (cos, sin) if at.ndim == 1 else (cos.unsqueeze(1), sin.unsqueeze(1))  # for all heads
