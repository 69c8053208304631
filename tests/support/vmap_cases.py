"""Cases for ``vmap``, at least one for each batching rule, and the loop that they are compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl

N = 5
DEVICE_NAMES = ("cpu", pytest.param("vulkan:0", marks=pytest.mark.vulkan))


def array(*shape: int, seed: int = 0) -> Any:
    """Positive and negative numbers that are not near 0, determined by shape and seed."""
    rng = np.random.default_rng([seed, *shape])
    numbers = rng.uniform(0.3, 1.7, shape) * rng.choice([-1.0, 1.0], shape)
    return numbers.astype(np.float32)


def loop(function: Callable[..., Any], in_dims: Any = 0, out_dims: int = 0) -> Callable[..., Any]:
    """The reference for ``vmap``: calls the function for each sample and stacks the results."""

    def called(*operands: Any) -> Any:
        dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(operands)
        count = next(o.shape[d] for o, d in zip(operands, dims, strict=True) if d is not None)
        samples = [
            [o if d is None else o.select(d, i) for o, d in zip(operands, dims, strict=True)]
            for i in range(count)
        ]
        results = [function(*sample) for sample in samples]
        if isinstance(results[0], tuple):
            return tuple(dl.stack(parts, out_dims) for parts in zip(*results, strict=True))
        return dl.stack(results, out_dims)

    return called


def listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def same(ours: Any, theirs: Any) -> None:
    """Equal dtypes, and elements equal up to the order of float32 sums, relative to the largest element."""
    for one, other in zip(listed(ours), listed(theirs), strict=True):
        outcomes, expected = one.detach().numpy(), other.detach().numpy()
        assert outcomes.dtype == expected.dtype
        largest = float(np.abs(expected).max(initial=1))
        np.testing.assert_allclose(outcomes, expected, rtol=0, atol=1e-5 * largest)


X, Y = array(N, 3, 7), array(N, 3, 7, seed=1)
W, B = array(11, 7), array(11)
LOSS_WEIGHTS = array(N)  # of the samples in a sum of losses
IMAGES, FILTERS = array(N, 2, 4, 8, 9), array(6, 2, 3, 3)

# Functions of (library, its functional module), the operands, and in_dims.
VMAP_CASES: dict[str, tuple[Callable[[Any, Any], Any], tuple[Any, ...], Any]] = {
    "elementwise": (lambda lib, f: lambda a, b: (a * 2 + b.sin()) / (1 + b * b), (X, Y), 0),
    "of other axes": (lambda lib, f: lambda a, b: a * b + b.exp(), (X, array(N, 7)), 0),
    "numbers first": (lambda lib, f: lambda a: 2.0 - a, (X,), 0),
    "where": (lambda lib, f: lambda a, b: lib.where(a > b, a, b * 2), (X, Y), 0),
    "shared first": (lambda lib, f: lambda a, b: a - b, (array(3, 1), X), (None, 0)),
    "scalars": (lambda lib, f: lambda a, b: a * b + 1, (array(N), X), 0),
    "sum": (lambda lib, f: lambda a: (a.sum(), a.sum(0), a.sum(-1, keepdim=True), a.sum((0, 1))), (X,), 0),
    "mean": (lambda lib, f: lambda a: (a.mean(), a.mean(1), a.var(0), a.std()), (X,), 0),
    "extremes": (lambda lib, f: lambda a: (a.amax(0), a.amin((0, 1)), a.argmax(), a.argmin(1)), (X,), 0),
    "prod": (lambda lib, f: lambda a: (a.prod(0), a.logsumexp(1), a.norm()), (X,), 0),
    "max with indices": (lambda lib, f: lambda a: tuple(a.max(1)), (X,), 0),
    "of no axes": (lambda lib, f: lambda a: (a.sum(), a.amax(), lib.softmax(a, 0)), (array(N),), 0),
    "matmul": (lambda lib, f: lambda a, b: (a @ b.T, a @ b[0], a[0] @ b.T, lib.dot(a[0], b[1])), (X, Y), 0),
    "matmul of a shared": (lambda lib, f: lambda a, w: (a @ w.T, w @ a.T, w @ a[0]), (X, W), (0, None)),
    "batched matmul": (lambda lib, f: lambda a, b: a @ b, (array(N, 2, 3, 7), array(N, 7, 4)), 0),
    "linear": (lambda lib, f: f.linear, (X, W, B), (0, None, None)),
    "linear of each": (lambda lib, f: f.linear, (X, array(N, 11, 7), array(N, 11)), 0),
    "linear of one row": (lambda lib, f: f.linear, (array(7, N), W, B), (1, None, None)),
    "einsum": (lambda lib, f: lambda a, b: lib.einsum("ij,kj->ik", a, b), (X, Y), 0),
    "reshape": (lambda lib, f: lambda a: (a.reshape(7, 3), a.flatten(), a.T.reshape(-1)), (X,), 0),
    "transpose": (lambda lib, f: lambda a: (a.T, a.permute(1, 0), a.transpose(0, 1).sin()), (X,), 0),
    "expand": (lambda lib, f: lambda a: (a.unsqueeze(0).expand(2, 3, 7), a[:1].expand(4, -1)), (X,), 0),
    "squeeze": (lambda lib, f: lambda a: (a[:1].squeeze(), a.unsqueeze(1).squeeze(1)), (X,), 0),
    "index": (lambda lib, f: lambda a: (a[1], a[:, 2:5], a[-1, ::2], a[..., None], a[[2, 0], 1:]), (X,), 0),
    "cat": (
        lambda lib, f: lambda a, b: (lib.cat([a, b], 1), lib.stack([a, b]), lib.cat([a[:1], b])), (X, Y), 0,
    ),
    "cat with a shared": (lambda lib, f: lambda a, w: lib.cat([w, a]), (X, W), (0, None)),
    "split": (lambda lib, f: lambda a: a.split(3, 1), (X,), 0),
    "flip and roll": (lambda lib, f: lambda a: (a.flip(0), a.roll(2, 1), lib.tril(a)), (X,), 0),
    "pad": (lambda lib, f: lambda a: f.pad(a, (1, 2), value=3.0), (X,), 0),
    "softmax": (lambda lib, f: lambda a: (a.softmax(0), a.log_softmax(-1), a.softmax(1)), (X,), 0),
    "cumsum": (lambda lib, f: lambda a: (a.cumsum(0), a.cumprod(1)), (X,), 0),
    "layer_norm": (lambda lib, f: lambda a, w: f.layer_norm(a, (7,), w), (X, array(7)), (0, None)),
    "layer_norm of each": (
        lambda lib, f: lambda a, w, b: f.layer_norm(a, (7,), w, b), (X, *array(2, N, 7)), 0,
    ),
    "group_norm": (lambda lib, f: lambda a: f.group_norm(a, 2), (IMAGES,), 0),
    "batch_norm": (
        lambda lib, f: lambda a, m, v: f.batch_norm(a, m, v),
        (IMAGES, array(4), np.abs(array(4))), (0, None, None),
    ),
    "batch_norm in training": (
        lambda lib, f: lambda a, w, b: f.batch_norm(a, None, None, w, b, training=True),
        (IMAGES, array(4), array(4, seed=1)),
        (0, None, None),
    ),
    "batch_norm of each": (
        lambda lib, f: lambda a, w, b: f.batch_norm(a, None, None, w, b, training=True),
        (IMAGES, array(N, 4), array(N, 4, seed=1)),
        0,
    ),
    "conv2d": (lambda lib, f: lambda x, w: f.conv2d(x, w, padding=1, groups=2), (IMAGES, FILTERS), (0, None)),
    "conv2d of each": (
        lambda lib, f: lambda x, w, b: f.conv2d(x, w, b, stride=2),
        (IMAGES, array(N, 6, 4, 3, 3), array(N, 6)), 0,
    ),
    "conv2d of one image": (
        lambda lib, f: lambda w, x: f.conv2d(x, w), (array(N, 6, 4, 3, 3), IMAGES[0]), (0, None),
    ),
    "conv1d": (
        lambda lib, f: lambda x, w: f.conv1d(x, w, dilation=2),
        (array(N, 2, 4, 9), array(5, 4, 3)), (0, None),
    ),
    "conv3d": (
        lambda lib, f: lambda x, w: f.conv3d(x, w),
        (array(N, 1, 2, 3, 4, 5), array(3, 2, 2, 2, 2)), (0, None),
    ),
    "pooling": (
        lambda lib, f: lambda x: (f.max_pool2d(x, 2), f.avg_pool2d(x, 3, 2), f.adaptive_avg_pool2d(x, 2)),
        (IMAGES,), 0,
    ),
    "mse": (lambda lib, f: f.mse_loss, (X, Y), 0),
    "smooth_l1": (lambda lib, f: f.smooth_l1_loss, (X, Y), 0),
    "gelu": (lambda lib, f: lambda a: (f.gelu(a), f.silu(a), a.relu(), f.elu(a), a.tanh()), (X,), 0),
    "flash_attention": (
        lambda lib, f: lambda q, k: f.scaled_dot_product_attention(q, k, k), (array(N, 2, 3, 4),) * 2, 0,
    ),
    "attention with a mask": (
        lambda lib, f: lambda q, k, m: f.scaled_dot_product_attention(q, k, k, m > -1),
        (array(N, 2, 3, 4), array(N, 2, 6, 4), array(N, 3, 6)), 0,
    ),
    "attention of shared keys": (
        lambda lib, f: lambda q, k, m: f.scaled_dot_product_attention(q, k, k, abs(m) > 0.4),
        (array(N, 2, 3, 4), array(2, 6, 4), array(2, 1, 6)), (0, None, None),
    ),
    "other axes": (lambda lib, f: lambda a, b: a * b, (X, array(3, 7, N)), (0, -1)),
}  # fmt: skip
