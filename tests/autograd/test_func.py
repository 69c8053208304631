"""``dl.func`` beside ``torch.func``, nested transforms and structures of tensors included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError

torch = pytest.importorskip("torch", reason="compared with torch.func")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning"),
]

RNG = np.random.default_rng(7)
A, B = RNG.standard_normal((3, 4)).astype(np.float32), RNG.standard_normal((4, 5)).astype(np.float32)
V = RNG.standard_normal(5).astype(np.float32)


def loss(x: Any, w: Any) -> Any:
    return ((x @ w).tanh() ** 2).sum()


def nested(parameters: Any, x: Any) -> Any:
    return ((x @ parameters["w"] + parameters["b"][0]).sigmoid()).sum()


def output(x: Any) -> Any:
    return (x * x).sum(0).sin() * x[0]


def pair(x: Any) -> Any:
    return x.sin(), {"double": x * 2}


CASES: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "grad": lambda f, t: f.func.grad(loss)(t(A), t(B)),
    "of the second": lambda f, t: f.func.grad(loss, argnums=1)(t(A), t(B)),
    "of both": lambda f, t: f.func.grad(loss, argnums=(0, 1))(t(A), t(B)),
    "value": lambda f, t: f.func.grad_and_value(loss)(t(A), t(B)),
    "aux": lambda f, t: f.func.grad(lambda x: ((x * x).sum(), x * 3), has_aux=True)(t(A)),
    "nested arguments": lambda f, t: f.func.grad(nested)({"w": t(B), "b": [t(V)]}, t(A)),
    "twice": lambda f, t: f.func.grad(lambda x: f.func.grad(lambda y: (y**3).sum())(x).sin().sum())(t(V)),
    "each sample's": lambda f, t: f.vmap(f.func.grad(loss, argnums=1), in_dims=(0, None))(t(A), t(B)),
    "jacrev": lambda f, t: f.func.jacrev(output)(t(A)),
    "jacfwd": lambda f, t: f.func.jacfwd(output)(t(A)),
    "of a pair": lambda f, t: f.func.jacrev(pair)(t(V)),
    "hessian": lambda f, t: f.func.hessian(lambda x: (x.sin() * x**2).sum())(t(V)),
    "mapped jacobians": lambda f, t: f.vmap(f.func.jacrev(lambda x: x.sin() * x.sum()))(t(A)),
    "vjp": lambda f, t: f.func.vjp(loss, t(A), t(B))[1](t(np.float32(2.0).reshape(()))),
    "vjp of a pair": lambda f, t: f.func.vjp(pair, t(V))[1]((t(V), {"double": t(V * 2)})),
    "jvp": lambda f, t: f.func.jvp(output, (t(A),), (t(A[::-1].copy()),)),
    "linearize": lambda f, t: f.func.linearize(output, t(A))[1](t(A[::-1].copy())),
}


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [item for key in sorted(value) for item in flat(value[key])]
    if isinstance(value, (tuple, list)):
        return [item for part in value for item in flat(part)]
    return [value.detach().numpy()]


@pytest.mark.parametrize("case", CASES)
def test_transforms(case: str, device: str) -> None:
    found = flat(CASES[case](dl, lambda array: dl.tensor(array, device=device)))
    expected = flat(CASES[case](torch, torch.tensor))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def test_gradients_flow_through_a_gradient() -> None:
    x = dl.tensor(V, device="cpu").requires_grad_()
    dl.func.grad(lambda y: (y**3).sum())(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * V, rtol=1e-5)
    assert not dl.func.grad(lambda y: (y**3).sum())(dl.tensor(V)).requires_grad


def test_an_ensemble_by_stacked_state() -> None:
    models = [dl.nn.Sequential(dl.nn.Linear(4, 3), dl.nn.BatchNorm1d(3)).eval() for _ in range(3)]
    parameters, buffers = dl.func.stack_module_state(models)
    x = dl.tensor(A, device=parameters["0.weight"].device)

    def call(parameters: Any, buffers: Any, x: Any) -> Any:
        return dl.func.functional_call(models[0], (parameters, buffers), (x,))

    found = dl.vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
    expected = dl.stack([model(x) for model in models])
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    found.sum().backward()
    assert parameters["0.weight"].grad.shape == (3, 3, 4)


def test_functional_call_leaves_the_module_as_it_was() -> None:
    first, second = dl.nn.Linear(4, 4, bias=False), dl.nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    model = dl.nn.Sequential(first, second)
    x, w = dl.tensor(A), dl.tensor(np.eye(4, dtype=np.float32) * 2)
    assert dl.func.functional_call(model, {"0.weight": w}, x).tolist() == (x * 4).tolist()  # tied
    once = dl.func.functional_call(model, {"0.weight": w}, x, tie_weights=False)
    np.testing.assert_allclose(once.detach().numpy(), (second(x) * 2).detach().numpy(), rtol=1e-5)
    assert model[0].weight is first.weight is second.weight
    with pytest.raises(ArgumentError, match=r"no parameter or buffer '2\.weight'"):
        dl.func.functional_call(model, {"2.weight": w}, x)
    with pytest.raises(ArgumentError, match=r"nothing for '0\.weight'"):
        dl.func.functional_call(model, {}, x, strict=True)


def test_bad_use() -> None:
    x = dl.tensor(V)
    with pytest.raises(ShapeError, match=r"\[grad\] the function must return one element"):
        dl.func.grad(lambda y: y)(x)
    with pytest.raises(ArgumentError, match=r"argnums 1, but the function got 1"):
        dl.func.grad(loss, argnums=1)(x)
    with pytest.raises(ArgumentError, match="must return a pair"):
        dl.func.grad(lambda y: y.sum(), has_aux=True)(x)
    with pytest.raises(ArgumentError, match="nested containers of tensors"):
        dl.func.grad(lambda y: x.sum())(object())
    with pytest.raises(ShapeError, match="cotangents"):
        dl.func.vjp(lambda y: y * 2, x)[1](dl.ones(4))
    with pytest.raises(ArgumentError, match="models of one class"):
        dl.func.stack_module_state([])
