"""Stands in for gymnasium: the pole on a cart (Barto, Sutton and Anderson, 1983) and nothing else."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt


class CartPole:
    """Four floats of state, two actions, a reward of 1 for each step until the pole falls."""

    spec = SimpleNamespace(reward_threshold=475.0)

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.state, self.steps = np.zeros(4), 0

    def reset(self, seed: int | None = None) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Set the pole up nearly straight."""
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.state, self.steps = self.rng.uniform(-0.05, 0.05, 4), 0
        return self.state.astype(np.float32), {}

    def step(self, action: int) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Push the cart to the left (0) or to the right (1) for 20 ms."""
        _, speed, angle, turning = self.state
        sine, cosine = math.sin(angle), math.cos(angle)
        force = ((10.0 if action else -10.0) + 0.05 * turning**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * force) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        push = force - 0.05 * turn * cosine / 1.1
        self.state = self.state + 0.02 * np.array([speed, push, turning, turn])
        self.steps += 1
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > math.radians(12)
        return self.state.astype(np.float32), 1.0, fallen, self.steps >= 500, {}


def make(name: str, render_mode: str | None = None) -> CartPole:
    """The environment of this name."""
    if name != "CartPole-v1":
        raise ValueError(f"expected CartPole-v1, got {name!r}")
    return CartPole()
