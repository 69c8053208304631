"""The memory that tuning takes, known before it starts: one layer and one piece of scores are tried."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, NamedTuple

from dl4all import memory
from dl4all.autograd import checkpoint
from dl4all.errors import ArgumentError
from dl4all.llm.decoder import Decoder, DecoderStage
from dl4all.llm.tuned_decoder import TunedDecoder
from dl4all.ops.random import generator
from dl4all.tensor.random import randn
from dl4all.tensor.ranges import arange
from dl4all.tensor.tensor import Tensor

COPIES = 4
"""Of adapters in memory: their numbers, gradients, and the two means of Adam."""


class TuningMemory(NamedTuple):
    """Bytes that a step of :class:`dl4all.optim.AdamW` on adapters takes.

    Attributes:
        weights: frozen ones, as they are held.
        adapters: with gradients and the optimizer's state.
        kept: of the layers' activations, for gradients.
        working: of what a layer or a piece of the scores computes, at most.

    Example:
        >>> import dl4all as dl
        >>> dl.llm.TuningMemory(weights=8, adapters=4, kept=2, working=1).total
        15
    """

    weights: int
    adapters: int
    kept: int
    working: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.adapters + self.kept + self.working

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {nbytes / 1e6:.0f}" for name, nbytes in self._asdict().items())
        return f"{self.total / 1e6:.0f} MB: {parts}"


def tuning_memory(model: Decoder, tokens: int, batch: int = 1) -> TuningMemory:
    """Find the memory that steps on the adapters of a model will take.

    One layer and one piece of the scores compute gradients of random numbers, which takes about as long as a
    step divided by the number of layers. Compiled steps take no more, after the two that are traced.

    Args:
        model: with adapters (:func:`get_lora_model`), on one device; its `gradient_checkpointing` says what
            is kept.
        tokens: of a row.
        batch: rows of a step.

    Raises:
        ArgumentError: the model has no adapters, or not so many positions.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> config = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> model = dl.llm.get_lora_model(dl.llm.Decoder(config), dl.llm.LoraConfig(r=4))
        >>> account = dl.llm.tuning_memory(model, tokens=64)
        >>> account.adapters == 4 * 4 * 1024, account.total > account.weights
        (True, True)
    """
    if not 1 <= tokens <= model.config.positions or batch < 1:
        raise ArgumentError(
            f"[llm] expected rows of 1 to {model.config.positions} tokens and at least one, got {batch} of "
            f"{tokens}"
        )
    tuned = TunedDecoder(model)
    learning = sum(parameter.nbytes for parameter in tuned.parameters())
    weights = sum(tensor.nbytes for tensor in model.state_dict().values()) - learning
    config, table, training = model.config, model.embed_tokens.weight, model.training
    device = table.device
    mixed = [n for n in range(config.layers) if config.experts and n not in config.dense_layers]
    numbers = range(mixed[0], mixed[0] + 1) if mixed else range(1)
    stage = DecoderStage(config, list(model.layers), numbers)
    at = arange(tokens, device=device)

    def layer(x: Tensor) -> Tensor:
        return stage(x, at, None, tokens)

    def once(x: Tensor) -> Tensor:
        return checkpoint(layer, x) if model.gradient_checkpointing else layer(x)

    def scores(x: Tensor) -> Tensor:
        wanted = arange(tokens, device=device).repeat(batch) % config.vocabulary
        return tuned.loss(x, wanted.reshape(batch, tokens))

    tuned.train()
    try:
        with generator.replayed(generator.default_generator().get_state()):
            x = randn(batch, tokens, config.width, device=device).to(table.dtype).requires_grad_()
            kept, of_layer = _measured(once, x)
            _, of_scores = _measured(scores, x)
    finally:
        tuned.train(training)
        for parameter in tuned.parameters():
            parameter.grad = None
    return TuningMemory(weights, COPIES * learning, config.layers * kept, max(of_layer, of_scores))


def _measured(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[int, int]:
    """Bytes that are kept for the gradient of a function, and those that it takes beside them at most."""
    device = x.device
    made: Any = function(x)  # tables, kernels and what else is made once
    del made
    gc.collect()
    memory.reset_peak(device)
    before = memory.stats(device).allocated
    made = function(x)
    kept = memory.stats(device).allocated - before
    made.sum().backward()
    peak = memory.stats(device).peak - before
    x.grad = None
    return kept, peak - kept
