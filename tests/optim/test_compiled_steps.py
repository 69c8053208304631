"""Compiled steps of training do what immediate steps do, whatever happens between them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.nn import functional as F
from tests.support.operands import generator

OPTIMIZERS: dict[str, Callable[[Any], dl.optim.Optimizer]] = {
    "SGD": lambda p: dl.optim.SGD(p, lr=0.1),
    "momentum": lambda p: dl.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: dl.optim.Adam(p, lr=0.01),
    "AMSGrad": lambda p: dl.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda p: dl.optim.AdamW(p, lr=0.01),
    "Adagrad": lambda p: dl.optim.Adagrad(p, lr=0.1, lr_decay=0.1),
    "Adadelta": lambda p: dl.optim.Adadelta(p),
    "RMSprop": lambda p: dl.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    "Lion": lambda p: dl.optim.Lion(p, lr=0.01),
    "NAdam": lambda p: dl.optim.NAdam(p, lr=0.01),
    "ASGD": lambda p: dl.optim.ASGD(p, lr=0.05, t0=2),
}


class Training:
    """A network with an optimizer, an average of its parameters, and a step, which may be compiled."""

    def __init__(self, optimizer: str, device: str, *, compiled: bool) -> None:
        dl.manual_seed(18)
        self.network = dl.models.MLP(7, [11, 13], 3).to(device)
        self.optimizer = OPTIMIZERS[optimizer](self.network.parameters())
        self.ema = dl.optim.EMA(self.network.parameters(), decay=0.8)
        self.plain: Any = self._step
        self.step: Any = dl.compile(self._step) if compiled else self._step

    def _step(self, x: dl.Tensor, target: dl.Tensor) -> dl.Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.network(x), target)
        loss.backward()
        dl.nn.utils.clip_grad_norm_(self.network.parameters(), 0.5)
        self.optimizer.step()
        self.ema.update()
        return loss.detach()

    def tensors(self) -> list[Any]:
        """All that a step changes, and the gradients."""
        parameters = list(self.network.parameters())
        state = [s for p in parameters for s in self.optimizer.state[p].values() if isinstance(s, dl.Tensor)]
        return [*parameters, *[p.grad for p in parameters], *self.ema.shadow, *state]


def batches(device: str) -> list[tuple[dl.Tensor, dl.Tensor]]:
    rng = generator("compiled optimizers")
    return [
        (
            dl.tensor(rng.standard_normal((5, 7)).astype(np.float32), device=device),
            dl.tensor(rng.integers(0, 3, 5), device=device),
        )
        for _ in range(9)
    ]


def assert_same(compiled: Training, immediate: Training) -> None:
    for found, expected in zip(compiled.tensors(), immediate.tensors(), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=2e-5, atol=2e-6)
    assert compiled.ema.updates == immediate.ema.updates


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps(device: str, optimizer: str) -> None:
    compiled, immediate = (Training(optimizer, device, compiled=flag) for flag in (True, False))
    for x, target in batches(device)[:6]:
        found, expected = compiled.step(x, target), immediate.step(x, target)
        np.testing.assert_allclose(found.item(), expected.item(), rtol=1e-5)
    assert_same(compiled, immediate)
    assert sum(map(len, compiled.step.specializations.values())) == 1


@pytest.mark.parametrize("optimizer", ["momentum", "Adam"])
def test_what_happens_between_steps(device: str, optimizer: str) -> None:
    """Immediate steps, other rates, and states that are loaded, of both the network and the optimizer."""
    compiled, immediate = (Training(optimizer, device, compiled=flag) for flag in (True, False))
    saved: list[Any] = []
    part: Any
    for number, (x, target) in enumerate(batches(device)):
        for training in (compiled, immediate):
            if number == 4:
                training.plain(x, target)
            if number == 5:
                training.optimizer.param_groups[0]["lr"] *= 0.5
                states = (training.network, training.optimizer, training.ema)
                saved.append([copy.deepcopy(part.state_dict()) for part in states])
            if number == 7:
                state = saved[training is immediate]
                for part, part_state in zip(
                    (training.network, training.optimizer, training.ema), state, strict=True
                ):
                    part.load_state_dict(part_state)
            training.step(x, target)
        assert_same(compiled, immediate)
