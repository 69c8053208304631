"""The compiled part of a training step: gradients, and the update where nothing comes in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all.graph.run.compiled import Compiled, compile
from dl4all.nn.module import Module
from dl4all.nn.utils import clip_grad_norm_

Step = Compiled[..., tuple[Any, Any]]


def compiled_gradients(network: Module, loss: Callable[[Any, Any], Any]) -> Step:
    """A compiled function of a batch, which adds to the parameters' gradients; returns loss and outputs.

    It takes inputs, targets, and a tensor that the loss is multiplied by before its gradients are taken.

    Args:
        network: maps inputs to outputs.
        loss: ``loss(outputs, targets)``.
    """

    def gradients(inputs: Any, targets: Any, scale: Any = None) -> tuple[Any, Any]:
        outputs = network(inputs)
        value = loss(outputs, targets)
        (value if scale is None else value * scale).backward()
        return value, outputs

    return compile(gradients)


def compiled_update(
    network: Module, loss: Callable[[Any, Any], Any], optimizer: Any, clip_norm: float | None
) -> Step:
    """As :func:`compiled_gradients`, with the step of the optimizer, after which there are no gradients."""

    def update(inputs: Any, targets: Any) -> tuple[Any, Any]:
        outputs = network(inputs)
        value = loss(outputs, targets)
        value.backward()
        if clip_norm is not None:
            clip_grad_norm_(network.parameters(), clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        network.zero_grad()
        return value, outputs

    return compile(update)
