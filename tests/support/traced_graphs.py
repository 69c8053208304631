"""Graphs of models and of training steps, traced on a device that computes nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import dl4all as dl
from dl4all.graph.graph import Graph
from dl4all.graph.trace import trace
from dl4all.nn import functional as F

DEVICE = "null:0"


def _uniform(*shape: int) -> dl.Tensor:
    return dl.tensor(np.random.default_rng(0).random(shape, np.float32), device=DEVICE)


def _indices(most: int, *shape: int) -> dl.Tensor:
    return dl.tensor(np.random.default_rng(0).integers(0, most, shape), device=DEVICE)


def _loss(scores: dl.Tensor, target: dl.Tensor) -> dl.Tensor:
    return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), target.reshape(-1))


def _mlp() -> tuple[dl.nn.Module, list[dl.Tensor], int]:
    return dl.models.MLP(13, [17], 5), [_uniform(7, 13)], 5


def _lenet() -> tuple[dl.nn.Module, list[dl.Tensor], int]:
    return dl.models.LeNet(), [_uniform(2, 1, 28, 28)], 10


def _resnet() -> tuple[dl.nn.Module, list[dl.Tensor], int]:
    return dl.models.resnet18(10, base_channels=8), [_uniform(2, 3, 32, 32)], 10


def _gpt() -> tuple[dl.nn.Module, list[dl.Tensor], int]:
    return (
        dl.models.GPT(29, block_size=8, n_layer=2, n_head=2, n_embd=16, dropout=0.1),
        [_indices(29, 3, 8)],
        29,
    )


def _tagger() -> tuple[dl.nn.Module, list[dl.Tensor], int]:
    return dl.models.LSTMTagger(19, 8, 12, 5), [_indices(19, 3, 7)], 5


MODELS = {"mlp": _mlp, "lenet": _lenet, "resnet": _resnet, "gpt": _gpt, "tagger": _tagger}


def forward(name: str) -> tuple[Callable[..., Any], list[dl.Tensor]]:
    """A model's inference, and tensors to call it with."""
    module, inputs, _ = MODELS[name]()
    module.to(DEVICE).eval()

    def call(*tensors: dl.Tensor) -> Any:
        with dl.no_grad():
            result = module(*tensors)
        return result[0] if isinstance(result, tuple) else result

    return call, inputs


def training(name: str) -> tuple[Callable[..., Any], list[dl.Tensor]]:
    """A training step of a model with AdamW, and tensors to call it with."""
    module, inputs, classes = MODELS[name]()
    module.to(DEVICE).train()
    optimizer = dl.optim.AdamW(module.parameters(), lr=1e-3)

    def step(*tensors: dl.Tensor) -> dl.Tensor:
        *operands, target = tensors
        optimizer.zero_grad()
        result = module(*operands)
        loss = _loss(result[0] if isinstance(result, tuple) else result, target)
        loss.backward()
        optimizer.step()
        return loss

    result = forward(name)[0](*inputs)
    return step, [*inputs, _indices(classes, *result.shape[:-1])]


CASES = [f"{kind} {name}" for kind in ("forward", "training") for name in MODELS]


@functools.cache
def traced(case: str) -> Graph:
    """The graph of a case, such as ``"training mlp"``, of its second call."""
    kind, name = case.split()
    function, tensors = (forward if kind == "forward" else training)(name)
    function(*tensors)
    return trace(function, *tensors)
