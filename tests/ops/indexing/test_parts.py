"""Gradients of the parts that split, chunk and unbind make, and of cat and stack, compared with PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl

torch = pytest.importorskip("torch", reason="gradients are compared with PyTorch's")

SHAPES = [((7, 5, 3), 0), ((7, 5, 3), 1), ((7, 5, 3), -1), ((6,), 0), ((1, 4), 0), ((3, 1, 2), 1)]
SPLITS: dict[str, Callable[[Any, int], Any]] = {
    "split": lambda x, dim: x.split(2, dim),
    "sections": lambda x, dim: x.split([0, 1, x.shape[dim] - 1], dim),
    "chunk": lambda x, dim: x.chunk(3, dim),
    "unbind": lambda x, dim: x.unbind(dim),
}
CHOICES: dict[str, Callable[[Any], Any]] = {
    "all": lambda parts: parts,
    "every second": lambda parts: parts[::2],
    "last": lambda parts: parts[-1:],
    "twice": lambda parts: (*parts, *parts),
}


@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_parts(shape: tuple[int, ...], dim: int, split: Any, choose: Any, device: str) -> None:
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    results = []
    for leaf in (dl.tensor(values, device=device).requires_grad_(), torch.tensor(values, requires_grad=True)):
        turned = leaf * 2 if len(shape) == 1 else (leaf * 2).transpose(0, 1).transpose(0, 1)
        sum((part * part * part).sum() for part in choose(split(turned, dim))).backward()
        results.append(leaf.grad.numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
def test_gradients_of_gradients(split: Any) -> None:
    x = dl.tensor(np.random.default_rng(2).standard_normal((4, 3)), device="cpu").requires_grad_()
    assert dl.autograd.gradgradcheck(lambda x: (split(x, 0)[1] * split(x, 1)[-1].sum()).sum(), [x])


def test_adjacent_gradients_are_not_copied(device: str) -> None:
    """As those of query, key and value, which attention computes in one piece of memory."""
    memory = dl.tensor(np.random.default_rng(3).standard_normal((3, 5, 4)).astype(np.float32), device=device)
    x = dl.tensor(np.zeros((3, 5, 4), np.float32), device=device).requires_grad_()
    y = x * 1
    y.retain_grad()
    dl.autograd.backward(list(y.unbind(0)), [memory[i] for i in range(3)])
    assert y.grad.storage is memory.storage
    np.testing.assert_array_equal(y.grad.numpy(), memory.numpy())
    z = x * 1
    z.retain_grad()
    dl.autograd.backward(list(z.split([2, 1, 2], 1)), [memory[:, :2], memory[:, 2:3], memory[:, 3:]])
    assert z.grad.storage is memory.storage
    np.testing.assert_array_equal(z.grad.numpy(), memory.numpy())


def test_gradients_that_only_seem_adjacent(device: str) -> None:
    """Of the same storage, in another order, with gaps, or with other strides."""
    memory = dl.tensor(np.random.default_rng(4).standard_normal((6, 4, 4)).astype(np.float32), device=device)
    turned = memory.transpose(1, 2)
    for gradients in (
        [memory[2], memory[1], memory[0]],
        [memory[0], memory[1], memory[3]],
        [memory[1], memory[1], memory[1]],
        [memory[0], memory[1], turned[2]],
    ):
        x = dl.tensor(np.zeros((3, 4, 4), np.float32), device=device).requires_grad_()
        dl.autograd.backward(list((x * 1).unbind(0)), gradients)
        np.testing.assert_array_equal(x.grad.numpy(), np.stack([g.numpy() for g in gradients]))


def test_a_part_changes_in_place(device: str) -> None:
    """The tensor that it was split from changes, too, and so does its history."""
    values = np.random.default_rng(5).standard_normal((4, 3)).astype(np.float32)
    x = dl.tensor(values, device=device).requires_grad_()
    y = x * 2
    y.split(2)[1].mul_(3)
    (y * y).sum().backward()
    scale = np.array([[2], [2], [6], [6]], np.float32)
    np.testing.assert_allclose(x.grad.numpy(), 2 * values * scale * scale, rtol=1e-6)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["cat", "stack"])
def test_joined(name: str, dim: int, device: str) -> None:
    """Parts of other strides, some of which need no gradient, beside PyTorch's result and gradients."""
    random = np.random.default_rng(6)
    arrays = [random.standard_normal((3, 5)).astype(np.float32) for _ in range(4)]
    weight = random.standard_normal((3, 5)).astype(np.float32)
    results = []
    for make, library in ((lambda a: dl.tensor(a, device=device), dl), (torch.tensor, torch)):
        leaves = [make(a) for a in arrays]
        for leaf in leaves[1:]:
            leaf.requires_grad_()
        parts = [leaves[0], leaves[1], (leaves[2].T * 3).T, leaves[3] * make(weight)]
        joined = getattr(library, name)(parts, dim)
        (joined * joined).sum().backward()
        results.append([joined.detach().numpy(), *(leaf.grad.numpy() for leaf in leaves[1:])])
    for got, expected in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 40_009])
def test_joined_dtypes(count: int) -> None:
    """Those of the parts differ, and some parts are empty."""
    random = np.random.default_rng(7)
    arrays = [random.integers(-5, 5, (count, 2)).astype(dtype) for dtype in ("int32", "float64", "bool")]
    joined = dl.cat([dl.tensor(a, device="cpu") for a in arrays])
    assert joined.dtype == np.float64
    np.testing.assert_array_equal(joined.numpy(), np.concatenate(arrays))
    empty = dl.cat(
        [dl.tensor(arrays[0], device="cpu"), dl.zeros(0, device="cpu"), dl.zeros(0, 2, device="cpu")]
    )
    np.testing.assert_array_equal(empty.numpy(), arrays[0].astype(np.float32))
