"""The keys and values of the tokens that a decoder has seen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dl4all import ops
from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, FileFormatError
from dl4all.io import load, save
from dl4all.ops.indexing import device_indices
from dl4all.ops.indexing.assignment import set_rows
from dl4all.ops.indexing.indices import Indices, out_of_range
from dl4all.tensor.creation import tensor, zeros
from dl4all.tensor.ranges import arange
from dl4all.tensor.tensor import Tensor

Rows = Tensor | Indices
SMALLEST, LARGEST_FIRST = 256, 1024
"""Tokens of the caches to begin with: sizes double, so that a compiled step has few of them."""


class KeyValueCache:
    """Keys and values of each layer, written in place; from :meth:`Decoder.make_cache`.

    Attributes:
        keys, values: for each layer, (N, heads, length, head_dim).
        position: tokens that are in it: the next one's position.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> config = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> model = dl.llm.Decoder(config)
        >>> cache = model.make_cache(1, 16)
        >>> _ = model(dl.tensor([[5, 6, 7]]), cache)
        >>> cache.position, cache.keys[0].shape
        (3, (1, 4, 16, 8))
    """

    def __init__(self, keys: Sequence[Tensor], values: Sequence[Tensor], position: int = 0) -> None:
        self.keys, self.values, self.position = list(keys), list(values), position

    @property
    def length(self) -> int:
        """Tokens that there is room for."""
        return int(self.keys[0].shape[2])

    def of_layers(self, layers: range) -> KeyValueCache:
        """The part of some layers, in the same memory."""
        if len(layers) == len(self.keys):
            return self
        keys, values = (kept[layers.start : layers.stop] for kept in (self.keys, self.values))
        return KeyValueCache(keys, values, self.position)

    def rows(self, at: Tensor) -> Rows:
        """Rows of all heads' tokens at positions, as the cache lies: checked once for all layers.

        Args:
            at: (T,) for all sequences, or (N, 1).
        """
        n, of_each = self.keys[0].shape[:2]
        heads = n * of_each
        first = arange(heads, device=at.device).reshape(n if at.ndim > 1 else heads, -1) * self.length
        rows = (first + at.to(first.dtype)).reshape(-1)
        if not device_indices.stays(rows, self.keys[0]):
            return rows
        size = heads * self.length
        checked = device_indices.checked(rows, size, partial(out_of_range, "cache", size))
        return rows if checked is None else Indices.of_checked(checked)

    def write(self, layer: int, rows: Rows, key: Tensor, value: Tensor) -> None:
        """Write keys and values (N, heads, T, head_dim) of one layer to its rows."""
        size = key.shape[-1]
        with no_grad():
            for kept, new in ((self.keys[layer], key), (self.values[layer], value)):
                set_rows(kept.reshape(-1, size), rows, new.reshape(-1, size).to(kept.dtype))

    def grown(self, tokens: int, most: int) -> KeyValueCache:
        """This cache, or a larger one with the same tokens, if there is no room for so many more.

        Raises:
            ArgumentError: there may not be so many tokens.
        """
        needed = self.position + tokens
        if needed > most:
            raise ArgumentError(
                f"[llm] {self.position} tokens and {tokens} more are beyond the model's {most} positions"
            )
        if needed <= self.length:
            return self
        length = min(most, rounded_up(needed))
        larger = []
        with no_grad():
            for kept in (*self.keys, *self.values):
                n, heads, _, size = kept.shape
                made = zeros(n, heads, length, size, device=kept.device, dtype=kept.dtype)
                made[:, :, : self.position] = kept[:, :, : self.position]
                larger.append(made)
        layers = len(self.keys)
        return KeyValueCache(larger[:layers], larger[layers:], self.position)

    def save(self, path: str | Path) -> None:
        """Write the tokens' keys and values to a safetensors file."""
        kept = {"position": tensor([self.position])}
        for name, tensors in (("keys", self.keys), ("values", self.values)):
            kept |= {f"{name}.{n}": t[:, :, : self.position].contiguous() for n, t in enumerate(tensors)}
        save(kept, path)

    def load(self, path: str | Path) -> None:
        """Take the tokens of a file in the place of those that are here.

        Raises:
            FileFormatError: the file is of another model, or has more tokens than there is room for.
        """
        stored = load(path)
        try:
            position = int(stored["position"].item())
            parts = [stored[f"{name}.{n}"] for name in ("keys", "values") for n in range(len(self.keys))]
        except KeyError as error:
            raise FileFormatError(f"[llm] {path} is no cache of this model: it has no {error}") from None
        for part, kept in zip(parts, (*self.keys, *self.values), strict=True):
            n, heads, length, size = kept.shape
            if position > length or part.shape != (n, heads, position, size):
                raise FileFormatError(
                    f"[llm] {path} has keys of shape {part.shape} for {position} tokens; the cache has "
                    f"{kept.shape}"
                )
        with no_grad():
            for part, kept in zip(parts, (*self.keys, *self.values), strict=True):
                kept[:, :, :position] = part.to(kept.device).to(kept.dtype)
        self.position = position


def first_length(tokens: int, most: int) -> int:
    """The length of a cache to begin with, for so many tokens or less.

    >>> first_length(3, 4096), first_length(300, 4096), first_length(5000, 4096), first_length(500, 300)
    (256, 512, 1024, 300)
    """
    return min(most, LARGEST_FIRST, rounded_up(tokens))


def rounded_up(tokens: int) -> int:
    """The power of two, from :data:`SMALLEST` on, that so many tokens fit into.

    >>> rounded_up(3), rounded_up(512), rounded_up(513)
    (256, 512, 1024)
    """
    return max(SMALLEST, 1 << (max(1, tokens) - 1).bit_length())


def attended(at: Tensor, keys: int, window: int | None) -> Tensor:
    """The keys that tokens at positions see: bools (T, keys) for (T,), (N, 1, 1, keys) for (N, 1)."""
    ahead = at.reshape(-1, 1) - arange(keys, device=at.device).to(at.dtype).reshape(1, -1)
    seen = ops.ge(ahead, 0)
    if window is not None:
        seen = ops.logical_and(seen, ops.lt(ahead, window))
    return seen if at.ndim == 1 else seen.reshape(-1, 1, 1, keys)
