"""Models and their training steps, and graphs of them, traced on a device that computes nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all.graph.ir.graph import Graph
from dl4all.graph.tracing.trace import trace
from dl4all.nn import functional as F

Array = npt.NDArray[Any]
DEVICE = "null:0"


def _uniform(*shape: int) -> Array:
    return np.random.default_rng(0).random(shape, np.float32)


def _indices(most: int, *shape: int) -> Array:
    return np.random.default_rng(0).integers(0, most, shape)


def _loss(scores: dl.Tensor, target: dl.Tensor) -> dl.Tensor:
    return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), target.reshape(-1))


def _mlp() -> tuple[dl.nn.Module, list[Array], int]:
    return dl.models.MLP(13, [17], 5), [_uniform(7, 13)], 5


def _lenet() -> tuple[dl.nn.Module, list[Array], int]:
    return dl.models.LeNet(), [_uniform(2, 1, 28, 28)], 10


def _resnet() -> tuple[dl.nn.Module, list[Array], int]:
    return dl.models.resnet18(10, base_channels=8), [_uniform(2, 3, 32, 32)], 10


def _gpt() -> tuple[dl.nn.Module, list[Array], int]:
    return (
        dl.models.GPT(29, block_size=8, n_layer=2, n_head=2, n_embd=16, dropout=0.1),
        [_indices(29, 3, 8)],
        29,
    )


def _tagger() -> tuple[dl.nn.Module, list[Array], int]:
    return dl.models.LSTMTagger(19, 8, 12, 5), [_indices(19, 3, 7)], 5


MODELS = {"mlp": _mlp, "lenet": _lenet, "resnet": _resnet, "gpt": _gpt, "tagger": _tagger}


class Call(NamedTuple):
    """A function, tensors to call it with, and the module that it uses."""

    function: Callable[..., Any]
    tensors: list[dl.Tensor]
    module: dl.nn.Module


def forward(name: str, device: str) -> Call:
    """A model's inference."""
    module, arrays, _ = MODELS[name]()
    module.to(device).eval()

    def call(*tensors: dl.Tensor) -> Any:
        with dl.no_grad():
            result = module(*tensors)
        return result[0] if isinstance(result, tuple) else result

    return Call(call, [dl.tensor(array, device=device) for array in arrays], module)


def training(name: str, device: str) -> Call:
    """A training step of a model with AdamW."""
    module, arrays, classes = MODELS[name]()
    module.to(device).train()
    optimizer = dl.optim.AdamW(module.parameters(), lr=1e-3)

    def step(*tensors: dl.Tensor) -> dl.Tensor:
        *operands, target = tensors
        optimizer.zero_grad()
        result = module(*operands)
        loss = _loss(result[0] if isinstance(result, tuple) else result, target)
        loss.backward()
        optimizer.step()
        return loss

    scores = forward(name, DEVICE)
    target = _indices(classes, *scores.function(*scores.tensors).shape[:-1])
    return Call(step, [dl.tensor(array, device=device) for array in (*arrays, target)], module)


def case_on(case: str, device: str) -> Call:
    """A case, such as ``"training mlp"``, on a device."""
    kind, name = case.split()
    return (forward if kind == "forward" else training)(name, device)


CASES = [f"{kind} {name}" for kind in ("forward", "training") for name in MODELS]


@functools.cache
def traced(case: str) -> Graph:
    """The graph of a case, of its second call."""
    function, tensors, _ = case_on(case, DEVICE)
    function(*tensors)
    return trace(function, *tensors)
