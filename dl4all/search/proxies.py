"""Scores of untrained networks, that cost no training: larger is better. The networks stay as they are.

Source: M. Abdelfattah et al., Zero-Cost Proxies for Lightweight NAS, 2021, where most of them are compared.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dl4all.autograd import no_grad
from dl4all.autograd.backward_pass import grad
from dl4all.errors import ArgumentError
from dl4all.nn import functional as F
from dl4all.nn import init
from dl4all.nn.module import Module
from dl4all.nn.modules.activation import ReLU, ReLU6
from dl4all.nn.modules.conv import _ConvNd
from dl4all.nn.modules.linear import Linear
from dl4all.nn.modules.normalization import BatchNorm
from dl4all.tensor.creation import ones
from dl4all.tensor.random import randn_like
from dl4all.tensor.tensor import Tensor

Loss = Callable[[Any, Any], Tensor]


def grad_norm(model: Module, inputs: Tensor, targets: Tensor, loss: Loss = F.cross_entropy) -> float:
    """Sum of the norms of the parameters' gradients.

    Args:
        inputs, targets: a batch on the network's device.
        loss: ``loss(output, targets)``, of one element.

    Example:
        >>> import dl4all as dl
        >>> model, x, y = dl.nn.Linear(4, 3), dl.randn(8, 4), dl.arange(8) % 3
        >>> dl.search.proxies.grad_norm(model, x, y) > 0
        True
    """
    return sum(float(g.norm()) for _, g in _gradients(copy.deepcopy(model), inputs, targets, loss))


def snip(model: Module, inputs: Tensor, targets: Tensor, loss: Loss = F.cross_entropy) -> float:
    """Sum of what the loss would change by if a weight were not there, to first order.

    Args:
        inputs, targets: a batch on the network's device.
        loss: ``loss(output, targets)``, of one element.

    Source: N. Lee, T. Ajanthan and P. Torr, SNIP, 2019.

    Example:
        >>> import dl4all as dl
        >>> model, x, y = dl.nn.Linear(4, 3), dl.randn(8, 4), dl.arange(8) % 3
        >>> dl.search.proxies.snip(model, x, y) > 0
        True
    """
    return sum(float((p * g).abs().sum()) for p, g in _gradients(copy.deepcopy(model), inputs, targets, loss))


def synflow(model: Module, inputs: Tensor) -> float:
    """Logarithm of the sum of the paths' products of weights, whose signs do not count; without any data.

    Args:
        inputs: a batch, of which shape, dtype and device count.

    Source: H. Tanaka et al., Pruning Neural Networks without Any Data by Iteratively Conserving Synaptic
    Flow, 2020.

    Example:
        >>> import dl4all as dl
        >>> first, last = dl.nn.Linear(4, 8, bias=False), dl.nn.Linear(8, 1, bias=False)
        >>> paths = (last.weight.abs() @ first.weight.abs()).sum()
        >>> score = dl.search.proxies.synflow(dl.nn.Sequential(first, dl.nn.ReLU(), last), dl.zeros(2, 4))
        >>> bool(abs(score - (2 * paths).log().item()) < 1e-5)
        True
    """
    own = copy.deepcopy(model).eval().to("cpu").double()  # products of many layers leave float32's range
    with no_grad():
        for parameter in own.parameters():
            parameter.abs_()
    output = own(ones(1, *inputs.shape[1:], dtype=np.float64, device="cpu"))
    parameters = [p for p in own.parameters() if p.requires_grad]
    gradients = grad(output.sum(), parameters, allow_unused=True)
    flow = sum(float((p * g).sum()) for p, g in zip(parameters, gradients, strict=True) if g is not None)
    return math.log(flow) if flow > 0 else -math.inf


def jacob_cov(model: Module, inputs: Tensor) -> float:
    """Unlikeness of the directions in which the samples' outputs change with their inputs.

    Args:
        inputs: a batch of real samples, at least two, on the network's device.

    Source: J. Mellor et al., Neural Architecture Search without Training, first version, 2020.

    Raises:
        ArgumentError: there are fewer than two samples.

    Example:
        >>> import dl4all as dl
        >>> model = dl.nn.Sequential(dl.nn.Linear(4, 8), dl.nn.Tanh(), dl.nn.Linear(8, 2))
        >>> dl.search.proxies.jacob_cov(model, dl.randn(6, 4)) < 0
        True
    """
    _check_samples("jacob_cov", inputs)
    leaf = inputs.detach().clone().requires_grad_()
    (jacobian,) = grad(copy.deepcopy(model).train()(leaf).sum(), [leaf])
    rows = jacobian.numpy().reshape(len(inputs), -1).astype(np.float64)
    rows = rows - rows.mean(1, keepdims=True)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
    values = np.linalg.eigvalsh(rows @ rows.T).clip(0) + 1e-5
    return float(-np.sum(np.log(values) + 1 / values))


def naswot(model: Module, inputs: Tensor) -> float:
    """Logarithm of the determinant of how many rectifiers two samples have in common.

    Args:
        inputs: a batch of real samples, at least two, on the network's device.

    Source: J. Mellor et al., Neural Architecture Search without Training, 2021.

    Raises:
        ArgumentError: there are fewer than two samples, or the network has no ``ReLU`` module.

    Example:
        >>> import dl4all as dl
        >>> model = dl.nn.Sequential(dl.nn.Linear(4, 32), dl.nn.ReLU(), dl.nn.Linear(32, 2))
        >>> dl.search.proxies.naswot(model, dl.randn(6, 4)) > 0
        True
    """
    _check_samples("naswot", inputs)
    own, common = copy.deepcopy(model).train(), np.zeros((len(inputs), len(inputs)))

    def count(_: Module, __: Any, output: Tensor) -> None:
        on = (output.detach().numpy().reshape(len(inputs), -1) > 0).astype(np.float64)
        common[:] += on @ on.T + (1 - on) @ (1 - on).T

    with _hooked(own, (ReLU, ReLU6), count) as hooked, no_grad():
        if not hooked:
            raise ArgumentError("[naswot] the network has no ReLU module to look at")
        own(inputs)
    sign, logarithm = np.linalg.slogdet(common)
    return float(logarithm) if sign > 0 else -math.inf


def zen(model: Module, inputs: Tensor, *, draws: int = 4, step: float = 0.01) -> float:
    """Zen-score: how much the output changes with the input, of networks with random weights.

    Weights of products and convolutions are drawn anew. What batch normalization takes away is added back.

    Args:
        inputs: a batch, of which shape, dtype and device count.
        draws: of weights and inputs, over which the mean is taken.
        step: of the inputs' change.

    Source: M. Lin et al., Zen-NAS: A Zero-Shot NAS for High-Performance Deep Image Recognition, 2021.

    Example:
        >>> import dl4all as dl
        >>> conv = dl.nn.Conv2d(3, 8, 3)
        >>> shallow = dl.nn.Sequential(conv, dl.nn.BatchNorm2d(8), dl.nn.ReLU())
        >>> deep = dl.nn.Sequential(*shallow, dl.nn.Conv2d(8, 8, 3), dl.nn.BatchNorm2d(8), dl.nn.ReLU())
        >>> x = dl.zeros(16, 3, 9, 9)
        >>> dl.search.proxies.zen(deep, x) > dl.search.proxies.zen(shallow, x)
        True
    """
    own = copy.deepcopy(model).train()
    deviations: list[float] = []

    def count(_: Module, given: Any, __: Any) -> None:
        x = given[0].detach()
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        deviations.append(0.5 * math.log(float(x.var(axes, correction=0).mean()) + 1e-12))

    scores = []
    with no_grad():
        for _ in range(draws):
            for part in own.modules():
                if isinstance(part, (_ConvNd, Linear)):
                    init.normal_(part.weight)
            x = randn_like(inputs)
            deviations.clear()
            with _hooked(own, (BatchNorm,), count):
                output = own(x)
            change = own(x + step * randn_like(x)) - output
            scores.append(math.log(float(change.abs().mean()) + 1e-12) + sum(deviations))
    return float(np.mean(scores))


def _gradients(model: Module, inputs: Tensor, targets: Tensor, loss: Loss) -> Iterator[tuple[Tensor, Tensor]]:
    """The parameters that a loss depends on, and its gradients."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = grad(loss(model.train()(inputs), targets), parameters, allow_unused=True)
    return ((p, g) for p, g in zip(parameters, found, strict=True) if g is not None)


@contextmanager
def _hooked(model: Module, kinds: tuple[type, ...], hook: Callable[..., None]) -> Iterator[int]:
    """Call a function after each call of a module of some kinds; how many there are."""
    handles = [part.register_forward_hook(hook) for part in model.modules() if isinstance(part, kinds)]
    try:
        yield len(handles)
    finally:
        for handle in handles:
            handle.remove()


def _check_samples(name: str, inputs: Tensor) -> None:
    if len(inputs) < 2:
        raise ArgumentError(f"[{name}] expected at least two samples, which are compared, got {len(inputs)}")
