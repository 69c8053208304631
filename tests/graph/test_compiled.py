"""A compiled function never gives another result than the function, whatever changes between its calls.

Each test describes a story, which is played twice: with the function as it is, and compiled.
"""

from __future__ import annotations

import copy
import gc
import pickle
import random
import threading
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.errors import Dl4allError
from dl4all.graph.run.compiled import MOST_SPECIALIZATIONS, CompileWarning
from tests.support.compiled_stories import CALLS, Wrap, on_each_device, play


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What cannot be replayed warns; tests of warnings say so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompileWarning)
        yield


# Python's state


def _with(names: dict[str, Any], source: str) -> Any:
    """A function `f` of a module of a user's."""
    names["__name__"] = "a_users_module"
    exec(source, names)
    return names["f"]


def _of_module(value: float) -> tuple[Any, Callable[[float], None]]:
    module = types.ModuleType("settings")
    vars(module)["scale"] = value
    function = _with({"settings": module}, "def f(x): return x * settings.scale")
    return function, lambda new: setattr(module, "scale", new)


def _of_class(value: float) -> tuple[Any, Callable[[float], None]]:
    class Scaled(nn.Module):
        scale = value

        def forward(self, x: dl.Tensor) -> dl.Tensor:
            return x * self.scale

    return Scaled(), lambda new: setattr(Scaled, "scale", new)


def _of_slots(value: float) -> tuple[Any, Callable[[float], None]]:
    class Options:
        __slots__ = ("scale",)
        scale: float

    options = Options()
    options.scale = value
    return lambda x: x * options.scale, lambda new: setattr(options, "scale", new)


def _of_property(value: float) -> tuple[Any, Callable[[float], None]]:
    source = """class Options:
    @property
    def scale(self): return SCALE
    @staticmethod
    def one(): return SCALE
"""
    names: dict[str, Any] = {"SCALE": value}
    function = _with(
        names, source + "options = Options()\ndef f(x): return x * options.scale + options.one()"
    )
    return function, lambda new: names.__setitem__("SCALE", new)


def _of_queue(value: float) -> tuple[Any, Callable[[float], None]]:
    queue = deque([value])
    return lambda x: x * queue[0], lambda new: queue.__setitem__(0, new)


def _of_closure(value: float) -> tuple[Any, Callable[[float], None]]:
    scale = value

    def change(new: float) -> None:
        nonlocal scale
        scale = new

    return lambda x: x.true_divide(scale), change


def _of_default(value: float) -> tuple[Any, Callable[[float], None]]:
    def function(x: dl.Tensor, scale: float = value) -> dl.Tensor:
        return x * scale

    return function, lambda new: setattr(function, "__defaults__", (new,))


def _of_attribute(value: float) -> tuple[Any, Callable[[float], None]]:
    def function(x: dl.Tensor) -> dl.Tensor:
        scale: float = vars(function)["scale"]
        return x * scale

    vars(function)["scale"] = value
    return function, lambda new: vars(function).update(scale=new)


def _of_code(value: float) -> tuple[Any, Callable[[float], None]]:
    def inner(x: dl.Tensor) -> dl.Tensor:
        return x * 2.0

    def other(x: dl.Tensor) -> dl.Tensor:
        return x * 5.0

    return lambda x: inner(x), lambda new: setattr(inner, "__code__", other.__code__)


def _of_array(value: float) -> tuple[Any, Callable[[float], None]]:
    array = np.array([value, 1.0, 3.0], np.float32)
    return lambda x: x * dl.tensor(array, device=x.device), lambda new: array.put(0, new)


def _of_list(value: float) -> tuple[Any, Callable[[float], None]]:
    values = [value, 1.0, 3.0]
    return lambda x: x * dl.tensor(values, device=x.device), lambda new: values.__setitem__(0, new)


PLACES = (
    _of_module, _of_class, _of_slots, _of_property, _of_queue, _of_closure, _of_default, _of_attribute,
    _of_code, _of_array, _of_list,
)  # fmt: skip


@on_each_device
@pytest.mark.parametrize("place", PLACES)
def test_numbers_that_change(place: Callable[..., Any], device: str) -> None:
    def story(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
        function, change = place(2.0)
        called = wrap(function)
        results = [called(tensor(3)) for _ in range(CALLS)]
        change(7.0)
        return results + [called(tensor(3)) for _ in range(CALLS)]

    play(story, device)


@on_each_device
def test_equal_numbers_of_other_types_and_signs(device: str) -> None:
    def story(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
        times = wrap(lambda x, k: x * k)
        ints = dl.tensor([1, 2, 3], device=device)
        results = [times(ints, k) for k in (1, 1, 1, 1.0, 1.0, 1.0, True)]
        inverse = wrap(lambda x, k: dl.true_divide(1.0, x * k))
        return results + [inverse(tensor(3), k).sign() for k in (0.0, 0.0, 0.0, -0.0)]

    play(story, device)


class Counting(nn.Module):
    """Changes an attribute in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        self.calls += 1
        return x * 2 if self.calls < 5 else x * 3


def _drawn_by(draw: Callable[[], float]) -> Callable[[dl.Tensor], dl.Tensor]:
    return lambda x: x * 2 if draw() < 0.7 else x * 3


def _keeping(kept: list[dl.Tensor]) -> Callable[[dl.Tensor], dl.Tensor]:
    def call(x: dl.Tensor) -> dl.Tensor:
        kept.append(x)
        return x * len(kept)

    return call


REFUSED: dict[str, Callable[[], Callable[[dl.Tensor], Any]]] = {
    "reads elements": lambda: lambda x: x * 2 if x.sum().item() > 4 else x * 3,
    "changes the state of random": lambda: _drawn_by(random.random),
    "changes the state of numpy.random": lambda: _drawn_by(np.random.rand),
    "changes the state of draw": lambda: _drawn_by(np.random.default_rng(3).random),
    "sees the iterator it": lambda: (lambda it: lambda x: x * 2 if next(it) else x * 3)(
        iter([0, 0, 1, 0, 1] * 9)
    ),
    "self.calls": Counting,
    "changes kept": lambda: _keeping([]),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_replayed_warns_once(why: str) -> None:
    def story(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
        called = wrap(REFUSED[why]())
        return [called(tensor(3)) for _ in range(20)]

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", CompileWarning)
        play(story, "cpu", compiles=False)
    told = [str(w.message) for w in seen if issubclass(w.category, CompileWarning)]
    assert len(told) == 1
    assert why.replace("self.", "") in told[0]
    assert [w.filename for w in seen if issubclass(w.category, CompileWarning)] == [__file__]


def test_too_many_kinds_of_arguments_warn_where_the_call_is() -> None:
    double = dl.compile(lambda x: x * 2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", CompileWarning)
        for n in range(MOST_SPECIALIZATIONS + 1):
            for _ in range(2):
                x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
                np.testing.assert_array_equal(double(dl.tensor(x, device="cpu")).numpy(), 2 * x)
    assert [w.filename for w in seen] == [__file__]
    assert f"{MOST_SPECIALIZATIONS} ways already" in str(seen[0].message)
    assert sum(map(len, double.specializations.values())) == MOST_SPECIALIZATIONS


# Memory


@on_each_device
def test_an_argument_of_another_device_that_is_only_passed_on(device: str) -> None:
    other = dl.tensor(np.random.default_rng(3).standard_normal(5).astype(np.float32), device="null:0")

    def story(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
        called, results = wrap(lambda x, y: (x * 3 - 1, y)), []
        for _ in range(CALLS):
            result, passed = called(tensor(7), other)
            assert passed is other
            results.append(result)
        return results

    play(story, device)


@on_each_device
def test_arguments_that_are_captured_too(device: str) -> None:
    def story(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
        p = tensor(3)

        def call(x: dl.Tensor) -> dl.Tensor:
            before = x * 2
            p.add_(1.0)
            return before + x * 3

        called, plain = wrap(call), wrap(lambda x: x * p + 1)
        given = [tensor(3) for _ in range(CALLS)]
        return [f(x) for f in (called, plain) for x in (*([p] * CALLS), *given, *([p] * CALLS))]

    play(story, device)


@on_each_device
def test_arguments_that_share_memory(device: str) -> None:
    def story(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
        def call(x: dl.Tensor, y: dl.Tensor) -> dl.Tensor:
            before = x * 2
            y.add_(1.0)
            return before + x

        called, results = wrap(call), []
        for start in (0, 2, 4):
            for _ in range(CALLS):
                whole = tensor(8)
                results.append(called(whole[:4], whole[start : start + 4]))
        return results + [called(tensor(4), tensor(4)) for _ in range(CALLS)]

    play(story, device)


@on_each_device
def test_results_stay_when_others_are_computed(device: str) -> None:
    def story(wrap: Wrap, tensor: Callable[..., dl.Tensor]) -> list[Any]:
        called = wrap(lambda x: ((x * 2).relu() + 1, x.exp().sum()))
        results = [part for _ in range(8) for part in called(tensor(4))]
        for result in results[:6]:
            result.mul_(3)
        return results

    play(story, device)


def test_traces_hold_no_results() -> None:
    device = dl.device("cpu")
    called = dl.compile(lambda x: (x * 2).relu())
    gc.collect()
    before = device.pool.stats.allocated
    for rows in range(1, 40):
        called(dl.ones(rows, 1024, device=device))
    assert device.pool.stats.allocated == before


@on_each_device
def test_what_was_compiled_gives_its_memory_back(device: str) -> None:
    def live() -> int:
        module = nn.Linear(16, 16).to(device)
        called = dl.compile(lambda x: (module(x) * 2).relu().sum())
        for _ in range(6):
            called(dl.ones(4, 16, device=device)).backward()
        assert called.specializations
        return dl.device(device).pool.stats.allocated

    gc.collect()
    before = dl.device(device).pool.stats.allocated
    assert live() > before
    gc.collect()
    assert dl.device(device).pool.stats.allocated == before


# What a compiled module is


def test_copies_and_attributes() -> None:
    module = nn.Linear(4, 4)
    called = dl.compile(module)
    x = dl.tensor(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4))
    for _ in range(CALLS):
        called(x)
    other = copy.deepcopy(called)
    other.weight.detach().zero_()
    np.testing.assert_allclose(
        other(x).numpy(), np.broadcast_to(other.bias.detach().numpy(), (2, 4)), rtol=1e-6
    )
    np.testing.assert_allclose(pickle.loads(pickle.dumps(called))(x).numpy(), module(x).numpy(), rtol=1e-6)
    called.bias = None
    assert module.bias is None
    np.testing.assert_allclose(called(x).numpy(), module(x).numpy(), rtol=1e-6)


@on_each_device
def test_threads(device: str) -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
    called = dl.compile(module)
    inputs = [dl.tensor(np.full((4, 8), number, np.float32), device=device) for number in range(1, 4)]

    def gradients(function: Any, x: dl.Tensor) -> tuple[Any, Any]:
        result = function(x)
        return result.detach().numpy(), dl.grad(result.sum(), [module[0].weight])[0].numpy()

    expected = [gradients(module, x) for x in inputs]
    problems: list[Exception] = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                for found, other in zip(gradients(called, inputs[number]), expected[number], strict=True):
                    np.testing.assert_allclose(found, other, rtol=1e-5, atol=1e-6)
        except (AssertionError, Dl4allError, KeyError, TypeError) as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_recordings_of_what_is_gone_are_released() -> None:
    device = dl.device("null:0")
    x = dl.ones(3, device=device)
    before = len(device._backend.recordings)  # type: ignore[attr-defined]
    for shift in range(5):
        compiled = dl.compile(lambda x, shift=shift: (x * 2 + shift).exp())
        for _ in range(4):
            compiled(x)
        assert compiled.specializations
        del compiled
        gc.collect()
    assert len(device._backend.recordings) <= before + 2  # type: ignore[attr-defined]


step = np.zeros(1 << 20)  # a global with the name of a method that the function below calls


def test_attributes_are_not_taken_for_globals() -> None:
    weight = dl.ones(3).requires_grad_()
    optimizer = dl.optim.SGD([weight], lr=0.5)

    @dl.compile
    def update(x: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(6):
        update(dl.ones(3))
    assert update.specializations
    assert weight.tolist() == [-2.0] * 3
