"""Layers of random sizes on accelerators of random sizes: they equal immediate mode, or do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.nn import functional as F
from tests.support.subcases import FULL

LAYERS = 5_000 if FULL else 150
BLOCK = 50
Layer = tuple[Callable[..., Any], tuple[dl.Tensor, ...]]


class LayerWriter:
    """Random layers, with the tensors that they take."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def size(self, first: int, last: int) -> int:
        return int(self._rng.integers(first, last + 1))

    def noise(self, *shape: int) -> dl.Tensor:
        return dl.tensor(self._rng.standard_normal(shape, np.float32))

    def convolution(self) -> Layer:
        groups, kernel, dilation = self.size(1, 3), (self.size(1, 4), self.size(1, 4)), self.size(1, 2)
        stride = (self.size(1, 3), self.size(1, 3))
        padding = tuple(self.size(0, (k - 1) * dilation) for k in kernel)
        channels, filters = groups * self.size(1, 5), groups * self.size(1, 9)
        height, width = ((k - 1) * dilation + self.size(4, 19) for k in kernel)

        def call(x: Any, w: Any, b: Any) -> Any:
            y = F.conv2d(x, w, b, stride, padding, dilation, groups) * b.reshape(-1, 1, 1) + 0.5
            return y.relu() + y

        x = self.noise(self.size(1, 3), channels, height, width)
        return call, (x, self.noise(filters, channels // groups, *kernel), self.noise(filters))

    def pool(self) -> Layer:
        kernel, stride = (self.size(1, 4), self.size(1, 4)), (self.size(1, 3), self.size(1, 3))
        padding = tuple(self.size(0, k // 2) for k in kernel)
        pool = [F.avg_pool2d, F.max_pool2d][self.size(0, 1)]
        shape = self.size(1, 3), self.size(1, 7), self.size(5, 22), self.size(5, 22)
        return lambda x: pool(x, kernel, stride, padding), (self.noise(*shape),)

    def product(self) -> Layer:
        rows, depth, columns = self.size(1, 70), self.size(1, 90), self.size(1, 70)
        calls: list[Callable[..., Any]] = [
            lambda x, w, b: F.gelu(F.linear(x, w, b)),
            lambda x, w, b: F.layer_norm(F.linear(x, w, b), (columns,), b, b),
            lambda x, w, b: (x @ w.t()).softmax(-1) * b,
        ]
        tensors = self.noise(self.size(1, 4), rows, depth), self.noise(columns, depth), self.noise(columns)
        return calls[self.size(0, 2)], tensors

    def attention(self) -> Layer:
        batch, heads, features = self.size(1, 2), self.size(1, 3), self.size(1, 17)
        queries, keys, causal = self.size(1, 40), self.size(1, 40), self.size(0, 1)
        is_causal = bool(causal) and queries <= keys
        q, k = self.noise(batch, heads, queries, features), self.noise(batch, heads, keys, features)
        v = self.noise(batch, heads, keys, self.size(1, 17))
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal), (q, k, v)

    def elementwise(self) -> Layer:
        sizes = [self.size(1, 9) for _ in range(self.size(1, 3))]
        other = [size if self.size(0, 1) else 1 for size in sizes]
        dim = self.size(0, len(sizes) - 1)
        call = lambda x, y: ((x * 2 - y).tanh() + y).sum(dim) + x.amax(dim)  # noqa: E731
        return call, (self.noise(*sizes), self.noise(*other))

    def norms(self) -> Layer:
        groups = [1, 2, 3, 6][self.size(0, 3)]

        def call(x: Any, w: Any) -> Any:
            return dl.cat([F.group_norm(x, groups, w, w), F.instance_norm(x)], 1).permute(0, 2, 3, 1) * 2

        return call, (self.noise(self.size(1, 3), 6, self.size(3, 9), self.size(3, 9)), self.noise(6))


KINDS = ("convolution", "pool", "product", "attention", "elementwise", "norms")


@pytest.mark.parametrize("block", range(LAYERS // BLOCK))
def test_values_do_not_depend_on_the_hardware(block: int) -> None:
    compared = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        writer = LayerWriter(seed)
        name = KINDS[writer.size(0, len(KINDS) - 1)]
        call, tensors = getattr(writer, name)()
        model = dl.accelerator_model(
            (writer.size(1, 17), writer.size(1, 17)),
            scratchpad=512 << writer.size(0, 9),
            dataflow=("os", "ws", "is")[writer.size(0, 2)],
        )
        with dl.no_grad():
            expected = call(*tensors).numpy()
            try:
                program = model.compile(call, *tensors)
            except ArgumentError as problem:
                if "fits into no scratchpad" in str(problem):
                    continue
                raise
        bound = 2e-5 * max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(program(*tensors).numpy(), expected, 0, bound, err_msg=f"{seed}: {name}")
        report = program.report()
        assert max(report.busy.values()) <= report.cycles
        compared += 1
    assert compared > BLOCK // 2
