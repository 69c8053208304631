"""A decoder whose adapters learn: features go out of it, and the loss makes scores of them in pieces."""

from __future__ import annotations

from collections.abc import Callable

from dl4all import nn
from dl4all.autograd import checkpoint
from dl4all.llm.decoder import Decoder
from dl4all.llm.examples import IGNORED
from dl4all.llm.lora import adapters_of
from dl4all.nn import functional as F
from dl4all.tensor.ranges import arange
from dl4all.tensor.tensor import Tensor

MOST_SCORES = 1 << 23
"""Numbers of scores that are in memory at once."""


class TunedDecoder(nn.Module):
    """The adapters of a decoder, for a :class:`dl4all.Trainer`: its parameters and state are theirs alone.

    Args:
        decoder: with adapters, from :func:`get_lora_model`.

    Raises:
        ArgumentError: it has none.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> config = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> model = dl.llm.get_lora_model(dl.llm.Decoder(config), dl.llm.LoraConfig(r=4))
        >>> tuned = dl.llm.TunedDecoder(model)
        >>> features = tuned(dl.tensor([[5, 6, 7]]))
        >>> features.shape, tuned.loss(features, dl.tensor([[6, 7, -100]])).shape
        ((1, 3, 32), ())
    """

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self._decoder = (decoder,)  # in a tuple it is no part of this module
        for name, layer in adapters_of(decoder):
            parts = {"lora_A": layer.lora_A, "lora_B": layer.lora_B, "dropout": layer.dropout}
            self.add_module(name.replace(".", "_"), nn.ModuleDict(parts))

    @property
    def decoder(self) -> Decoder:
        """The model."""
        return self._decoder[0]

    def forward(self, idx: Tensor) -> Tensor:
        """Features (N, T, width) of tokens (N, T), for :meth:`loss`."""
        decoder = self.decoder
        count = idx.shape[1]
        return decoder.features(idx, arange(count, device=idx.device), None, count)

    def train(self, mode: bool = True) -> TunedDecoder:
        """Let the model train, too, so that its dropout does, or let it not."""
        self.decoder.train(mode)
        return super().train(mode)

    def loss(self, features: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy of targets (N, T); -100 stands for none.

        At most :data:`MOST_SCORES` scores are in memory at once; gradients compute them again.
        """
        return mean_cross_entropy(self.decoder.head, features, targets, self.decoder.config.vocabulary)


def mean_cross_entropy(
    head: Callable[[Tensor], Tensor], features: Tensor, targets: Tensor, classes: int
) -> Tensor:
    """Mean cross entropy of scores that a function makes of features (..., width), some rows at a time."""
    rows, wanted = features.flatten(0, -2), targets.flatten()
    step = max(1, MOST_SCORES // classes)

    def part(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(head(x).float(), y.to(x.device), reduction="sum", ignore_index=IGNORED)

    if len(rows) <= step:
        total = part(rows, wanted)
    else:
        total = sum(
            (
                checkpoint(part, rows[start : start + step], wanted[start : start + step])
                for start in range(0, len(rows), step)
            ),
            start=features.new_zeros(()),
        )
    return total / (wanted != IGNORED).sum().to(total.device)
