"""Derivatives of functions, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, GradientError, ShapeError

torch = pytest.importorskip("torch", reason="derivatives are compared with PyTorch's")
rng = np.random.default_rng(5)
X, Y, V, W = (rng.uniform(0.5, 2, (3, 5)).astype(np.float32) for _ in range(4))
U = rng.standard_normal(3).astype(np.float32)


def function(lib: Any) -> Any:
    return lambda x, y: (x.sin() * y + lib.exp(x * 0.5)).sum(1)


def close(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, tuple):
        assert isinstance(ours, tuple)
        for one, other in zip(ours, theirs, strict=True):
            close(one, other)
        return
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-5)


def both(device: str, *arrays: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(dl.tensor(a, device=device) for a in arrays), tuple(torch.from_numpy(a) for a in arrays)


@pytest.mark.parametrize("name", ["vjp", "jvp", "hvp"])
def test_products(name: str, device: str) -> None:
    ours, theirs = both(device, X, Y)
    if name == "vjp":
        (v,), (w,) = both(device, U)
    else:
        v, w = both(device, V, W)
    f, g = function(dl), function(torch)
    if name == "hvp":
        result = dl.autograd.hvp(lambda x, y: f(x, y).sum(), ours, v)
        expected = torch.autograd.functional.hvp(lambda x, y: g(x, y).sum(), theirs, w)
    else:
        result = getattr(dl.autograd, name)(f, ours, v)
        expected = getattr(torch.autograd.functional, name)(g, theirs, w)
    close(result, expected)
    parts = result[1] if isinstance(result[1], tuple) else (result[1],)
    assert not any(part.requires_grad for part in (result[0], *parts))


def test_one_input_and_a_scalar(device: str) -> None:
    (x,), (t,) = both(device, X)
    value, slope = dl.autograd.vjp(lambda x: (x * x).sum(), x)
    close((value, slope), torch.autograd.functional.vjp(lambda x: (x * x).sum(), t))


def test_jacobian_and_hessian(device: str) -> None:
    (x, y), (s, t) = both(device, X[:2, :3].copy(), Y[:2, :3].copy())
    close(
        dl.autograd.jacobian(function(dl), (x, y)),
        torch.autograd.functional.jacobian(function(torch), (s, t)),
    )
    close(
        dl.autograd.hessian(lambda x: (x.exp() * x).sum(), x),
        torch.autograd.functional.hessian(lambda x: (x.exp() * x).sum(), s),
    )
    assert dl.autograd.jacobian(lambda x: x[:0], x).shape == (0, 3, 2, 3)


def test_what_does_not_depend_on_an_input(device: str) -> None:
    x, y = (dl.tensor(a, device=device) for a in (X, Y))
    assert dl.autograd.vjp(lambda x, y: x.sum(), (x, y))[1][1].tolist() == np.zeros((3, 5)).tolist()
    assert dl.autograd.hvp(lambda x: x.sum(), x, x)[1].tolist() == np.zeros((3, 5)).tolist()


def test_derivatives_of_derivatives(device: str) -> None:
    x = dl.tensor(X, device=device).requires_grad_()
    _, slope = dl.autograd.vjp(lambda x: (x * x * x).sum(), x, create_graph=True)
    (curvature,) = dl.grad(slope.sum(), x)
    np.testing.assert_allclose(curvature.numpy(), 6 * X, rtol=1e-5)
    _, change = dl.autograd.jvp(lambda x: x * x * x, x, dl.ones_like(x).detach(), create_graph=True)
    (curvature,) = dl.grad(change.sum(), x)
    np.testing.assert_allclose(curvature.numpy(), 6 * X, rtol=1e-5)


def test_vmap(device: str) -> None:
    (x, y), (s, t) = both(device, X, Y)
    close(dl.vmap(dl.dot)(x, y), torch.vmap(torch.dot)(s, t))
    close(
        dl.vmap(lambda a, b: a * b, (0, None), 1)(x, y[0]),
        torch.vmap(lambda a, b: a * b, (0, None), 1)(s, t[0]),
    )
    close(
        dl.vmap(lambda a: (a.sum(), a * 2), in_dims=-1)(x),
        torch.vmap(lambda a: (a.sum(), a * 2), in_dims=-1)(s),
    )
    weight = dl.tensor(X, device=device).requires_grad_()
    dl.vmap(dl.dot)(weight, y).sum().backward()
    assert weight.grad is not None
    np.testing.assert_allclose(weight.grad.numpy(), Y)


def test_refusals() -> None:
    x = dl.tensor(X, device="cpu")
    for call, error, text in (
        (lambda: dl.autograd.vjp(lambda x: x, x), ShapeError, r"\[vjp\] the result has shape \(3, 5\); v of"),
        (lambda: dl.autograd.vjp(lambda x: x, x, x[0]), ShapeError, r"\[vjp\] .* v has \(5,\)"),
        (lambda: dl.autograd.jvp(lambda x: x, x, x[0]), ShapeError, r"\[jvp\] expected directions of shapes"),
        (lambda: dl.autograd.hvp(lambda x: x.sum(), x, x[0]), ShapeError, r"\[hvp\] expected directions"),
        (lambda: dl.autograd.hvp(lambda x: x.sum(), x, (x, x)), ShapeError, r"\[hvp\] expected directions"),
        (
            lambda: dl.autograd.vjp(lambda x: 3, x),
            ArgumentError,
            r"\[vjp\] the function must return a tensor",
        ),
        (
            lambda: dl.autograd.jacobian(lambda x: x, 3),
            ArgumentError,
            r"\[jacobian\] expected tensors, got int",
        ),
        (lambda: dl.autograd.hessian(lambda x: x, (x, x)), ArgumentError, r"\[hessian\] expected one tensor"),
        (lambda: dl.autograd.hessian(lambda x: x, x), GradientError, "element"),
        (lambda: dl.vmap(dl.dot)(x, x[:2]), ArgumentError, r"\[vmap\] .* got \[2, 3\]"),
        (lambda: dl.vmap(dl.dot, (0,))(x, x), ArgumentError, r"\[vmap\] in_dims has 1 entries for 2"),
    ):
        with pytest.raises(error, match=text):
            call()
