"""Parameters on the CPU that are updated together get what single updates give them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.optim import bundle
from dl4all.runtime.cpu.llvm import provider
from dl4all.scheduler.counters import forget_plans

SHAPES = [(3, 5), (), (7,), (1, 2, 3), (0, 4), (11,), (150, 70)]
MAKERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda params: dl.optim.SGD(params, lr=0.1, weight_decay=0.01),
    "momentum": lambda params: dl.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda params: dl.optim.Adam(params, lr=0.1, weight_decay=0.01, amsgrad=True),
    "AdamW": lambda params: dl.optim.AdamW(params, lr=0.1, maximize=True),
    "RMSprop": lambda params: dl.optim.RMSprop(params, lr=0.1, momentum=0.9, centered=True),
    "Adagrad": lambda params: dl.optim.Adagrad(params, lr=0.1, initial_accumulator_value=0.5),
    "Lion": lambda params: dl.optim.Lion(params, lr=0.1),
}


@pytest.fixture(autouse=True, params=[False, True], ids=["numpy", "compiled"])
def _kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundles serve where nothing is compiled; compiled steps must pass the same tests."""
    monkeypatch.setattr(provider, "enabled", request.param)
    forget_plans()


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(20)


def numbers(random: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return dl.tensor(random.standard_normal(shape).astype(dtype), device="cpu")


def parameters(random: np.random.Generator, dtypes: tuple[str, ...] = ("float32", "float64")) -> list[Any]:
    return [numbers(random, shape, dtype).requires_grad_() for dtype in dtypes for shape in SHAPES]


def twins(params: list[Any]) -> list[Any]:
    return [p.detach().clone().requires_grad_() for p in params]


def alone(make: Callable[[Any], Any], params: list[Any]) -> list[Any]:
    """An optimizer for each parameter: nothing is to be bundled."""
    return [make([p]) for p in params]


def step(
    random: np.random.Generator, optimizer: Any, params: list[Any], singles: list[Any], others: list[Any]
) -> None:
    """A step of both with the same gradients; those of every second parameter are not contiguous."""
    for i, (p, other) in enumerate(zip(params, others, strict=True)):
        gradient = numbers(random, p.shape[::-1], str(p.dtype)).permute(*reversed(range(p.ndim)))
        p.grad, other.grad = gradient if i % 2 else gradient.contiguous(), gradient.clone()
    optimizer.step()
    for single in singles:
        single.step()


def assert_equal(params: list[Any], others: list[Any]) -> None:
    for p, other in zip(params, others, strict=True):
        np.testing.assert_array_equal(p.numpy(), other.numpy())


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_equal_to_single_updates(make: Callable[[Any], Any], random: np.random.Generator) -> None:
    params = parameters(random)
    others = twins(params)
    optimizer, singles = make(params), alone(make, others)
    for _ in range(3):
        step(random, optimizer, params, singles, others)
    assert_equal(params, others)
    for p, other, single in zip(params, others, singles, strict=True):
        assert optimizer.state[p].keys() == single.state[other].keys()
        for name, value in optimizer.state[p].items():
            expected = single.state[other][name]
            np.testing.assert_array_equal(np.asarray(value), np.asarray(expected))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_other_parameters_get_gradients(make: Callable[[Any], Any], random: np.random.Generator) -> None:
    """A parameter may miss steps, so that the numbers of steps differ."""
    params = parameters(random)
    others = twins(params)
    optimizer, singles = make(params), alone(make, others)
    for missing in ((), (1, 3), (0,), (), ()):
        step(random, optimizer, params, singles, others)
        for i in missing:
            for p in (params[i], others[i]):
                p.grad = None
        optimizer.step()
        for single in singles:
            single.step()
    assert_equal(params, others)


def test_the_state_is_saved_and_loaded(random: np.random.Generator) -> None:
    make = MAKERS["Adam"]
    params = parameters(random)
    others = twins(params)
    optimizer, singles = make(params), alone(make, others)
    step(random, optimizer, params, singles, others)
    saved = copy.deepcopy(optimizer.state_dict())
    step(random, optimizer, params, singles, others)
    before = [p.numpy().copy() for p in params]
    gradients = [p.grad for p in params]

    optimizer.load_state_dict(saved)
    again = make(params)
    again.load_state_dict(saved)
    for one in (optimizer, again):
        assert one.state[params[0]]["step"] == 1
    for p, gradient, values in zip(params, gradients, before, strict=True):
        p.grad = gradient
        p.detach().copy_(dl.tensor(values, device="cpu"))
    optimizer.step()
    after = [p.numpy().copy() for p in params]
    for p, values in zip(params, before, strict=True):
        p.detach().copy_(dl.tensor(values, device="cpu"))
    again.step()
    for p, values in zip(params, after, strict=True):
        np.testing.assert_array_equal(p.numpy(), values)


def test_copies_have_memory_of_their_own(random: np.random.Generator) -> None:
    make = MAKERS["momentum"]
    params = parameters(random)
    others = twins(params)
    optimizer, singles = make(params), alone(make, others)
    step(random, optimizer, params, singles, others)
    kept = copy.deepcopy(optimizer)
    copied = [p for group in kept.param_groups for p in group["params"]]
    values = [p.numpy().copy() for p in params]
    for p, source in zip(copied, params, strict=True):
        p.grad = source.grad
    kept.step()
    for p, expected in zip(params, values, strict=True):
        np.testing.assert_array_equal(p.numpy(), expected)
    optimizer.step()
    assert_equal(params, copied)


def test_parameters_move_to_other_memory(random: np.random.Generator) -> None:
    """As ``Module.to`` and ``load_state_dict`` move them."""
    net = dl.nn.Sequential(dl.nn.Linear(5, 3), dl.nn.ReLU(), dl.nn.Linear(3, 2)).cpu()
    optimizer = dl.optim.SGD(net.parameters(), lr=0.5)

    def expected_step() -> list[Any]:
        gradients = [numbers(random, p.shape) for p in net.parameters()]
        values = []
        for p, gradient in zip(net.parameters(), gradients, strict=True):
            values.append(p.numpy() - 0.5 * gradient.numpy())
            p.grad = gradient.to(dtype=p.dtype)
        return values

    def reload() -> None:
        net.load_state_dict({name: random.standard_normal(t.shape) for name, t in net.state_dict().items()})

    for change in (lambda: None, reload, net.double):
        change()
        expected = expected_step()
        optimizer.step()
        for p, values in zip(net.parameters(), expected, strict=True):
            np.testing.assert_allclose(p.numpy(), values, rtol=1e-6, atol=1e-6)


def test_common_memory_is_left_alone(random: np.random.Generator) -> None:
    """Two views of one memory are updated one after the other, as PyTorch does."""
    memory = numbers(random, (6,))
    views = [memory[:4].detach().requires_grad_(), memory[2:].detach().requires_grad_()]
    gradients = [numbers(random, (4,)) for _ in views]
    expected = memory.numpy().copy()
    expected[:4] -= gradients[0].numpy()
    expected[2:] -= gradients[1].numpy()
    for view, gradient in zip(views, gradients, strict=True):
        view.grad = gradient
    dl.optim.SGD(views, lr=1.0).step()
    np.testing.assert_array_equal(memory.numpy(), expected)


def test_a_step_counts_as_a_change(random: np.random.Generator) -> None:
    params = parameters(random, ("float32",))
    for p in params:
        p.grad = numbers(random, p.shape)
    products = [(p * p).sum() for p in params]
    dl.optim.SGD(params, lr=0.1).step()
    for p, product in zip(params, products, strict=True):
        if p.numel():
            with pytest.raises(dl.errors.GradientError, match="changed in place"):
                product.backward()


def test_bundles_have_few_elements(monkeypatch: pytest.MonkeyPatch, random: np.random.Generator) -> None:
    monkeypatch.setattr(bundle, "BUNDLE_ELEMENTS", 20)
    params = parameters(random)
    bundles = bundle.Bundles().find(0, params)
    assert [b.positions for b in bundles] == [(0, 1), (2, 3, 4), (7, 8), (9, 10, 11)]
