"""One decoder for all families: attention, feed-forward networks, mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import is_not
from typing import Any, NamedTuple

import numpy as np

from dl4all import nn
from dl4all.autograd import checkpoint, is_grad_enabled
from dl4all.errors import ArgumentError, ShapeError
from dl4all.functions.sorting.sort_and_search import topk
from dl4all.graph.run.compiled import compile
from dl4all.llm.cache import KeyValueCache, Rows, attended, rounded_up
from dl4all.llm.families import DecoderConfig
from dl4all.llm.rotary import rotary_tables, rotated
from dl4all.nn import functional as F
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import from_numpy, tensor, zeros
from dl4all.tensor.ranges import arange
from dl4all.tensor.tensor import Tensor

Angles = tuple[Tensor, Tensor] | None
LEAST_KEYS = 512
"""Of the cache that a token's step looks at: fewer take hardly less time, and would be traced apart."""


class Tokens(NamedTuple):
    """The tensors that layers of one call and device share.

    Attributes:
        first: the number of the first of these layers, which is the first of the lists and of the cache.
        angles: cosines and sines of the tokens' positions, for each layer.
        masks: which keys each token sees, for each layer: for several tokens a row for each of them and of
            the heads that share keys. None where these are all keys up to its own, from the first one on.
        rows: of the cache, to which keys and values are written.
        end: keys of the cache that are looked at.
    """

    first: int
    angles: list[Angles]
    masks: list[Tensor | None]
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
        config, (n, count, _), layer = self.config, x.shape, self.layer - tokens.first
        q, k, v = (
            proj(x).reshape(n, count, -1, config.head_dim) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        if config.rules.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if (angles := tokens.angles[layer]) is not None:
            q, k = rotated(q, *angles), rotated(k, *angles)
        if cache is not None:
            assert tokens.rows is not None
            cache.write(layer, tokens.rows, k, v)
            k, v = cache.keys[layer], cache.values[layer]
            if tokens.end < cache.length:
                k, v = k[:, :, : tokens.end], v[:, :, : tokens.end]
            k, v = k.to(q.dtype), v.to(q.dtype)
        y = self._attended(q, k, v, tokens.masks[layer])
        made: Tensor = self.o_proj(y.transpose(1, 2).reshape(n, count, -1))
        return made

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Outputs (N, heads, T, head_dim); heads of a group are rows of one product, so no key is copied."""
        config, (n, heads, count, size) = self.config, q.shape
        if mask is None:
            shared = heads > config.kv_heads
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=config.scale, enable_gqa=shared
            )
        grouped = q.reshape(n, config.kv_heads, -1, size)
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


class TokenStep:
    """A step of few tokens, compiled: each shape of its arguments is replayed after two calls.

    Args:
        function: of tokens or features, positions, a cache and `end`.
        end: keys of the cache that it looks at.
    """

    def __init__(self, function: Callable[[Tensor, Tensor, KeyValueCache, int], Tensor], end: int) -> None:
        self.function, self.end = function, end

    @compile
    def run(self, x: Tensor, at: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        """The function's result; keys and values of the cache are written to."""
        return self.function(x, at, KeyValueCache(keys, values), self.end)


class DecoderStage:
    """Layers of a decoder that lie on one device, one after the other.

    Args:
        config: of the decoder.
        layers: of which these are some.
        numbers: theirs.
    """

    def __init__(self, config: DecoderConfig, layers: Sequence[nn.Module], numbers: range) -> None:
        self.config, self.numbers = config, numbers
        self.layers: list[Any] = [layers[number] for number in numbers]
        self.steps: dict[int, TokenStep] = {}  # by the keys that they look at
        self._tables: dict[tuple[str, int, str], tuple[Tensor, Tensor]] = {}

    @property
    def device(self) -> Device:
        """The device of the layers."""
        found: Device = self.layers[0].input_layernorm.weight.device
        return found

    def __call__(
        self, x: Tensor, at: Tensor, cache: KeyValueCache | None, end: int, again: bool = False
    ) -> Tensor:
        """Features (N, T, width) of features; the cache is that of these layers.

        Args:
            again: compute each layer once more for gradients, and keep of it only the input.
        """
        first, stop = self.numbers.start, self.numbers.stop
        windows, ropes = self.config.windows[first:stop], self.config.ropes[first:stop]
        length = end if cache is None else cache.length
        masks = {window: self._mask(at, x.shape[1], end, window) for window in set(windows)}
        kinds = {id(settings): settings for settings in ropes}  # few, which layers share
        angles = {key: self._angles(settings, length, at, x.dtype) for key, settings in kinds.items()}
        rows = None if cache is None else cache.rows(at)
        turned = [angles[id(settings)] for settings in ropes]
        tokens = Tokens(first, turned, [masks[window] for window in windows], rows, end)
        for layer in self.layers:
            x = checkpoint(layer, x, tokens, cache) if again else layer(x, tokens, cache)
        return x

    def _mask(self, at: Tensor, count: int, end: int, window: int | None) -> Tensor | None:
        """The mask of layers with a window, or None, as :class:`Tokens` has them."""
        config = self.config
        if at.ndim == 1 and count == end and (window is None or window >= end) and config.score_cap is None:
            return None
        mask, group = attended(at, end, window), config.heads // config.kv_heads
        return mask.repeat(group, 1) if count > 1 and group > 1 else mask

    def _angles(
        self, settings: Mapping[str, Any] | None, length: int, at: Tensor, dtype: np.dtype[Any]
    ) -> Angles:
        """Cosines and sines of positions, from tables that are made once for each kind and length."""
        if settings is None:
            return None
        depends = settings["rope_type"] in ("dynamic", "longrope")  # on the length itself
        size = length if depends else rounded_up(length)
        key = (repr(settings), size, str(at.device))
        if key not in self._tables:
            made = rotary_tables(settings, self.config.head_dim, size)
            self._tables[key] = tuple(from_numpy(table, at.device) for table in made)  # type: ignore[assignment]
        cos, sin = (table[at].to(dtype) for table in self._tables[key])
        return (cos, sin) if at.ndim == 1 else (cos.unsqueeze(1), sin.unsqueeze(1))  # for all heads


class Decoder(nn.Module):
    """A language model: a decoder of any family, as its configuration says.

    Layers may lie on several devices, as :func:`dl4all.llm.load` puts them: what goes from one to the next
    is copied. With `gradient_checkpointing`, gradients compute a layer's activations again, so that of each
    layer only the input is kept.

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
        self.gradient_checkpointing = False
        self._stages: list[DecoderStage] = []
        self._steps: dict[int, TokenStep] = {}

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
        x = self.features(idx, at, cache, end)
        return self.head(x[:, -1:] if last else x)

    def features(self, idx: Tensor, at: Tensor, cache: KeyValueCache | None, end: int) -> Tensor:
        """Features (N, T, width) of tokens, by all layers; arguments as for :meth:`scores`."""
        x = self._embedded(idx, at)
        again = self.gradient_checkpointing and cache is None and is_grad_enabled()
        for stage in self.stages():
            of_stage = None if cache is None else cache.of_layers(stage.numbers)
            x = stage(x.to(stage.device), at.to(stage.device), of_stage, end, again)
        return x

    def head(self, x: Tensor) -> Tensor:
        """Scores (..., vocabulary) of features (..., width)."""
        cap, x = self.config.logit_cap, self.norm(x)
        if self.config.tied:
            weight = self.embed_tokens.weight
            y = F.linear(x.to(weight.device), weight)
        else:
            y = self.lm_head(x)
        return y if cap is None else (y / cap).tanh() * cap

    def stages(self) -> list[DecoderStage]:
        """Layers by their devices."""
        layers = list(self.layers)
        devices = [layer.input_layernorm.weight.device for layer in layers]
        starts = [n for n, device in enumerate(devices) if not n or device is not devices[n - 1]]
        numbers = [range(*both) for both in pairwise((*starts, len(layers)))]
        known = [layer for stage in self._stages for layer in stage.layers]
        if [stage.numbers for stage in self._stages] != numbers or any(map(is_not, known, layers)):
            self._stages = [DecoderStage(self.config, layers, each) for each in numbers]
        return self._stages

    def step_scores(
        self,
        idx: Tensor,
        at: Tensor,
        cache: KeyValueCache,
        known: int,
        steps: dict[int, TokenStep] | None = None,
    ) -> Tensor:
        """Scores (N, T, vocabulary) after each of few tokens, which are written to the cache.

        Steps look at a power of two of keys, so that few are compiled, and not at a cache that is empty.

        Args:
            at: as for :meth:`scores`.
            known: tokens of the longest sequence, these included.
            steps: where compiled ones are kept; with the model if not given.
        """
        end = min(cache.length, max(LEAST_KEYS, rounded_up(known)))
        if self.config.experts:  # which are chosen on the host
            return self.scores(idx, at, cache, end)
        stages = self.stages()
        if len(stages) == 1:
            whole = _step(self._steps if steps is None else steps, self.scores, end)
            scores: Tensor = whole.run(idx, at, cache.keys, cache.values)
            return scores
        x = self._embedded(idx, at)
        for stage in stages:
            part, step = cache.of_layers(stage.numbers), _step(stage.steps, stage, end)
            x = step.run(x.to(stage.device), at.to(stage.device), part.keys, part.values)
        return self.head(x)

    def scores_after(self, token: Tensor, cache: KeyValueCache) -> Tensor:
        """Scores (1, vocabulary) after one more token (1,), which is written to the cache."""
        token = token.to(self.embed_tokens.weight.device)
        at = tensor([cache.position], device=token.device)
        cache.position += 1
        return self.step_scores(token.reshape(1, 1), at, cache, cache.position)[:, -1]

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
        shape, dtype = (batch, config.kv_heads, length, config.head_dim), self.embed_tokens.weight.dtype
        devices = [stage.device for stage in self.stages() for _ in stage.numbers]
        keys, values = ([zeros(*shape, device=device, dtype=dtype) for device in devices] for _ in range(2))
        return KeyValueCache(keys, values)

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

    def _embedded(self, idx: Tensor, at: Tensor) -> Tensor:
        x: Tensor = self.embed_tokens(idx)
        if self.config.embed_scale != 1:
            # as the embedding's dtype has it: that is how these models were trained
            x = x * float(np.asarray(self.config.embed_scale).astype(x.dtype))
        return x + self.embed_positions(at) if self.config.rules.plain else x


def _step(steps: dict[int, TokenStep], function: Callable[..., Tensor], end: int) -> TokenStep:
    """The step that looks at so many keys."""
    if end not in steps:
        steps[end] = TokenStep(function, end)
    return steps[end]
