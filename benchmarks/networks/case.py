"""What a case of the training benchmarks is: a network, a batch and a way to train it, for either library.

A network is written once, against ``lib``, which is `dl4all` or `torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Batch = tuple[Array, ...]
Step = Callable[..., Any]
"""Takes the tensors of a batch, updates the network once, and returns the detached loss."""
Loss = Callable[..., Any]
"""Of the library, the network and the tensors of a batch."""


class Case(NamedTuple):
    """A training step that is measured."""

    network: Callable[[Any], Any]
    """Makes the network, given the library."""
    batch: Callable[[np.random.Generator], Batch]
    """Makes the arrays of a batch."""
    training: Callable[[Any, Any], Step]
    """Makes the step, given the library and the network: it has the optimizers and the loss."""


def supervised(
    loss: Loss | None = None, optimizer: str = "SGD", clip: float | None = None, **options: Any
) -> Callable[[Any, Any], Step]:
    """Training with one optimizer.

    Args:
        loss: of the library, the network and the batch; cross entropy of the second tensor unless given.
        optimizer: name of its class.
        clip: largest norm of all gradients together.
        **options: of the optimizer; SGD has a momentum of 0.9 and a learning rate of 0.01 unless given.
    """
    if optimizer == "SGD":
        options = {"lr": 0.01, "momentum": 0.9, **options}
    loss = loss or cross_entropy

    def training(lib: Any, net: Any) -> Step:
        descent = getattr(lib.optim, optimizer)(net.parameters(), **options)

        def step(*batch: Any) -> Any:
            descent.zero_grad()
            value = loss(lib, net, *batch)
            value.backward()
            if clip is not None:
                lib.nn.utils.clip_grad_norm_(net.parameters(), clip)
            descent.step()
            return value.detach()

        return step

    return training


def cross_entropy(lib: Any, net: Any, x: Any, y: Any) -> Any:
    return lib.nn.functional.cross_entropy(net(x), y)


def images(count: int, channels: int, size: int, classes: int = 10) -> Callable[[np.random.Generator], Batch]:
    """Square images and their classes."""

    def batch(rng: np.random.Generator) -> Batch:
        x = rng.standard_normal((count, channels, size, size)).astype(np.float32)
        return x, rng.integers(0, classes, count)

    return batch


def vectors(count: int, features: int, classes: int = 10) -> Callable[[np.random.Generator], Batch]:
    """Vectors and their classes."""

    def batch(rng: np.random.Generator) -> Batch:
        return rng.standard_normal((count, features)).astype(np.float32), rng.integers(0, classes, count)

    return batch


def tokens(
    *shape: int, vocabulary: int, labels: int | None = None, per_text: bool = False
) -> Callable[[np.random.Generator], Batch]:
    """Texts of shape (texts, tokens), and a label for each text or, flattened, for each token."""

    def batch(rng: np.random.Generator) -> Batch:
        y = rng.integers(0, labels or vocabulary, shape[:1] if per_text else shape)
        return rng.integers(0, vocabulary, shape), y.reshape(-1)

    return batch
