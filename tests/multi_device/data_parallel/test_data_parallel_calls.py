"""What a model on several devices may be called with, what it returns, and what it follows."""

from __future__ import annotations

import copy
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DeviceError, GradientError, ShapeError
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.streams.group import DeviceGroup
from tests.support.parallel_training import TIMEOUT, Counting, allocated, convolutions, images, tiny, vectors
from tests.support.parallel_training import evenly as evenly

pytestmark = pytest.mark.usefixtures("deadline")


@pytest.fixture
def group() -> Iterator[DeviceGroup]:
    with DeviceGroup(["cpu", "cpu#1", "cpu#2"], timeout=TIMEOUT) as made:
        yield made


def numbers(*shape: int, seed: int = 0, grad: bool = False) -> dl.Tensor:
    array = np.random.default_rng(seed).standard_normal(shape).astype("f")
    return dl.from_numpy(array, "cpu").requires_grad_(grad)


def close(actual: Any, expected: Any) -> None:
    assert actual is not None
    assert expected is not None
    expected = np.array(expected.numpy())
    assert np.ptp(expected) > 0 or expected.size == 1
    assert np.any(expected)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


class Function(dl.nn.Module):
    """A parameter, and any function of it and of the arguments."""

    def __init__(self, function: Callable[..., Any], width: int = 3) -> None:
        super().__init__()
        self.weight = dl.nn.Parameter(numbers(width, seed=9))
        self.function = function

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return self.function(self.weight, *inputs, **options)


def compare(
    group: DeviceGroup,
    function: Callable[..., Any],
    make: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]],
    loss: Callable[[Any], dl.Tensor],
) -> Any:
    """Outputs, and gradients of the parameter and of all inputs, beside those of one device."""
    results = []
    for parallel in (False, True):
        model = Function(function)
        network = dl.parallel(model, group) if parallel else model
        inputs, options = make()
        outputs = network(*inputs, **options)
        value = loss(outputs)
        value.backward()
        leaves = [t for t in [*inputs, *options.values()] if isinstance(t, dl.Tensor) and t.requires_grad]
        results.append((outputs, value, model.weight, leaves))
    (_, expected, weight, leaves), (outputs, got, own, others) = results
    close(got, expected)
    close(own.grad, weight.grad)
    for leaf, other in zip(leaves, others, strict=True):
        assert (leaf.grad is None) == (other.grad is None)
        if leaf.grad is not None:
            close(other.grad, leaf.grad)
    return outputs


class Pair(NamedTuple):
    first: dl.Tensor
    second: Any


# Inputs


def test_gradients_of_inputs(group: DeviceGroup) -> None:
    compare(
        group,
        lambda w, x: (x * w).tanh(),
        lambda: ((numbers(7, 3, grad=True),), {}),
        lambda y: y.square().mean(),
    )


def test_tensors_without_a_batch_are_given_to_all(group: DeviceGroup) -> None:
    """A matrix, and a number without axes; their gradients are sums over the devices."""
    compare(
        group,
        lambda w, x, matrix, scale: ((x * w) @ matrix) * scale,
        lambda: ((numbers(7, 3), numbers(3, 4, seed=1, grad=True), dl.tensor(2.5).requires_grad_()), {}),
        lambda y: y.square().mean(),
    )


def test_keyword_arguments_and_numbers(group: DeviceGroup) -> None:
    seen: list[Any] = []

    def function(w: dl.Tensor, x: dl.Tensor, *, mask: dl.Tensor, name: str, power: int) -> dl.Tensor:
        seen.append((name, power, mask.shape[0] == x.shape[0]))
        return (x * w * mask) ** power

    compare(
        group,
        function,
        lambda: (
            (numbers(7, 3, grad=True),),
            {"mask": numbers(7, 1, seed=2, grad=True), "name": "a", "power": 2},
        ),
        lambda y: y.mean(),
    )
    assert set(seen) == {("a", 2, True)}
    assert len(seen) > 2


def test_numpy_arrays_are_left_alone(group: DeviceGroup) -> None:
    array = np.arange(3.0, dtype="f")
    seen: list[Any] = []

    def function(w: dl.Tensor, x: dl.Tensor, given: Any) -> dl.Tensor:
        seen.append(given)
        return x * w + dl.from_numpy(given, x.device)

    compare(group, function, lambda: ((numbers(7, 3), array), {}), lambda y: y.square().mean())
    assert all(given is array for given in seen)


def test_an_input_that_is_not_used(group: DeviceGroup) -> None:
    compare(
        group,
        lambda w, x, unused: x * w,
        lambda: ((numbers(7, 3), numbers(7, 3, seed=1, grad=True)), {}),
        lambda y: y.square().mean(),
    )


def test_an_input_that_one_device_alone_uses(group: DeviceGroup) -> None:
    """The others' part of its gradient is zeros."""
    x, other = numbers(12, 3), numbers(12, 3, seed=1, grad=True)
    function = lambda w, x, y: x * w + (y * 3.0 if str(x.device) == "cpu#1" else 0.0)  # noqa: E731
    network = dl.parallel(Function(function), group)
    network(x, other).sum().backward()
    used = [3.0 if other.grad[row, 0].item() else 0.0 for row in range(12)]
    np.testing.assert_array_equal(other.grad.numpy(), np.repeat(np.array(used, "f")[:, None], 3, axis=1))
    assert 0 < sum(used) < 36


def test_one_tensor_given_twice(group: DeviceGroup) -> None:
    def make() -> tuple[tuple[Any, ...], dict[str, Any]]:
        x = numbers(7, 3, grad=True)
        return (x, x), {"third": x}

    compare(
        group,
        lambda w, x, y, third: x * w + y.square() * third,
        make,
        lambda y: y.square().mean(),
    )


def test_views_of_a_batch(group: DeviceGroup) -> None:
    """Inputs whose memory is in another order, or begins elsewhere."""
    compare(
        group,
        lambda w, x, y: x * w * y,
        lambda: ((numbers(3, 7).T, numbers(9, 3, seed=1)[2:]), {}),
        lambda y: y.square().mean(),
    )


def test_inputs_on_any_device(group: DeviceGroup) -> None:
    model = Function(lambda w, x: x * w)
    expected = model(numbers(7, 3))
    outputs = dl.parallel(model, group)(numbers(7, 3).to("cpu#2"))
    assert str(outputs.device) == "cpu"
    close(outputs, expected)


def test_gradients_flow_on_through_inputs(group: DeviceGroup) -> None:
    """What comes before and behind is of one device, and the same tensor takes another way, too."""
    results = []
    for parallel in (False, True):
        model, before, after = (
            Function(lambda w, x: (x * w).tanh()),
            numbers(4, 3, seed=3),
            numbers(3, 1, seed=4),
        )
        before.requires_grad_()
        network = dl.parallel(model, group) if parallel else model
        x = numbers(7, 4) @ before
        ((network(x) @ after).square().mean() + x.mean()).backward()
        results.append((before.grad, model.weight.grad))
    for expected, actual in zip(*results, strict=True):
        close(actual, expected)


# Outputs


def test_structures_of_outputs(group: DeviceGroup) -> None:
    outputs = compare(
        group,
        lambda w, x: {"a": (x * w, [x.exp()]), "b": Pair(x.sum(1), {"c": (x * w).square().mean()}), "n": 5},
        lambda: ((numbers(7, 3, grad=True),), {}),
        lambda y: y["a"][0].square().mean() + y["a"][1][0].mean() + y["b"].first.mean() * y["b"].second["c"],
    )
    assert isinstance(outputs["a"], tuple)
    assert isinstance(outputs["b"], Pair)
    assert outputs["a"][0].shape == (7, 3)
    assert outputs["b"].first.shape == (7,)
    assert outputs["b"].second["c"].shape == ()
    assert outputs["n"] == 5


def test_a_mean_over_the_batch_is_one_number(group: DeviceGroup) -> None:
    compare(
        group,
        lambda w, x: (x * w).square().mean(),
        lambda: ((numbers(8, 3, grad=True),), {}),
        lambda y: y * 3,
    )


def test_outputs_that_are_not_used(group: DeviceGroup) -> None:
    """One gets no gradient, one has none, and one is an integer."""
    outputs = compare(
        group,
        lambda w, x: (x * w, x.exp() * w, x.detach(), x.argmax(1)),
        lambda: ((numbers(7, 3),), {}),
        lambda y: y[1].square().mean(),
    )
    assert [output.requires_grad for output in outputs] == [True, True, False, False]


def test_an_input_as_an_output(group: DeviceGroup) -> None:
    outputs = compare(
        group,
        lambda w, x: (x, x * w),
        lambda: ((numbers(7, 3, grad=True),), {}),
        lambda y: y[1].square().mean() + y[0].mean(),
    )
    outputs[0].detach().fill_(5.0)


@pytest.mark.usefixtures("evenly")
def test_outputs_are_memory_of_their_own() -> None:
    with DeviceGroup(["cpu", "cpu#1"], timeout=TIMEOUT) as group:
        x = numbers(8, 3)
        before = x.numpy().copy()
        model = Function(lambda w, x: x)
        output = dl.parallel(model, group)(x)
        output.detach().mul_(2.0)
        np.testing.assert_array_equal(x.numpy(), before)


def test_the_wrong_number_of_rows_is_named(group: DeviceGroup) -> None:
    network = dl.parallel(Function(lambda w, x: (x * w).T), group)
    with pytest.raises(ArgumentError, match=r"\[parallel\] an output has the shape \(3, \d\) for \d rows"):
        network(numbers(17, 3))


# Modes


def test_inference() -> None:
    """Without gradients, with running statistics; those and the random numbers stay as they are."""
    with DeviceGroup(["cpu", "cpu#1", "cpu#2"], timeout=TIMEOUT) as group:
        model = convolutions()
        network = dl.parallel(model, group)
        network(dl.from_numpy(images(13, 1), "cpu")).mean().backward()
        network.eval()
        assert not model.training
        x = dl.from_numpy(images(13, 0), "cpu")
        state = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
        with dl.no_grad():
            expected, actual = model(x), network(x)
        assert not actual.requires_grad
        close(actual, expected)
        assert network(x).requires_grad
        for name, tensor in model.state_dict().items():
            np.testing.assert_array_equal(tensor.numpy(), state[name])


@pytest.mark.usefixtures("evenly")
def test_changes_between_calls_are_followed(group: DeviceGroup) -> None:
    """Of attributes, parameters, types, modes and modules."""
    model = convolutions()
    network = dl.parallel(model, group)
    calls: list[int] = []

    def doubled(module: dl.nn.Module, inputs: Any, output: dl.Tensor) -> dl.Tensor:
        calls.append(1)
        return output * 2

    def check(dtype: str = "float32") -> None:
        x = dl.from_numpy(images(13, 0), "cpu").to(dtype=dtype)
        alone = copy.deepcopy(model)
        results = []
        for one in (alone, network):
            dl.manual_seed(1)
            one.zero_grad()
            output = one(x)
            output.to(dtype="float32").square().mean().backward()
            results.append(output)
        np.testing.assert_allclose(
            results[1].numpy(), results[0].numpy(), rtol=2e-2 if dtype == "float16" else 2e-5, atol=1e-4
        )
        # Of the largest gradient: those of the convolution's bias are 0 but for roundings.
        scale = 1e-5 * max(np.abs(p.grad.numpy()).max() for p in alone.parameters() if p.grad is not None)
        assert scale > 1e-7
        for own, other in zip(model.parameters(), alone.parameters(), strict=True):
            assert (own.grad is None) == (other.grad is None)
            if own.grad is not None and dtype != "float16":
                np.testing.assert_allclose(own.grad.numpy(), other.grad.numpy(), rtol=1e-4, atol=scale)

    check()
    model[3].p = 0.7
    check()
    handle = model[5].register_forward_hook(doubled)
    check()
    assert len(calls) >= 3
    handle()
    model.load_state_dict(
        {
            name: dl.randn(t.shape, device="cpu").abs()
            for name, t in model.state_dict().items()
            if "num" not in name
        },
        strict=False,
    )
    check()
    model[0].weight.requires_grad_(False)
    check()
    model[0].weight.requires_grad_(True)
    check()
    model.to(dtype="float64")
    check("float64")
    model.to(dtype="float16")
    check("float16")
    model.to(dtype="float32")
    check()
    setattr(model, "5", dl.nn.Linear(8 * 36, 4))
    check()
    model.eval()
    check()


def test_changes_in_place_of_parameters_are_followed(group: DeviceGroup) -> None:
    model = tiny().eval()
    network = dl.parallel(model, group)
    x = dl.from_numpy(vectors(9, 0), "cpu")
    seen = []
    with dl.no_grad():
        for change in range(3):
            model[0].weight.mul_(1.5)
            model[3].bias[1:3].add_(change)
            close(network(x), model(x))
            seen.append(network(x).numpy().copy())
    assert np.abs(seen[0] - seen[1]).max() > 0.1


class Tied(dl.nn.Module):
    """A layer used twice, and a parameter that two layers have."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (dl.nn.Linear(4, 4) for _ in range(3))
        self.b.weight = self.a.weight

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        return self.c(self.c(self.b(self.a(x).tanh()).tanh()))  # type: ignore[no-any-return]


class Checkpointed(dl.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = tiny()

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        return dl.autograd.checkpoint(self.layers, x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [Tied, Checkpointed])
def test_modules_of_other_forms(kind: Callable[[], dl.nn.Module], group: DeviceGroup) -> None:
    gradients = []
    for parallel in (False, True):
        dl.manual_seed(6)
        model = kind()
        network = dl.parallel(model, group) if parallel else model
        dl.manual_seed(7)
        network(dl.from_numpy(vectors(12, 0), "cpu")).square().mean().backward()
        gradients.append([p.grad for p in model.parameters()])
    for expected, actual in zip(*gradients, strict=True):
        close(actual, expected)


def test_buffers_change_once_a_call(group: DeviceGroup) -> None:
    model = Counting()
    network = dl.parallel(model, group)
    for count in range(1, 4):
        network(dl.from_numpy(vectors(9, 0), "cpu"))
        assert model.calls.tolist() == [count]


def test_hooks_of_parameters_see_the_whole_gradient_once(group: DeviceGroup) -> None:
    model = tiny().eval()
    network = dl.parallel(model, group)
    seen: list[npt.NDArray[Any]] = []
    model[0].weight.register_hook(lambda gradient: seen.append(gradient.numpy().copy()))
    network(dl.from_numpy(vectors(9, 0), "cpu")).square().mean().backward()
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0], model[0].weight.grad.numpy())


# Errors


def test_what_is_no_module(group: DeviceGroup) -> None:
    function: Any = len
    with pytest.raises(
        ArgumentError, match=r"\[parallel\] expected a module, got builtin_function_or_method"
    ):
        dl.parallel(function, group)


def test_calls_without_rows(group: DeviceGroup) -> None:
    network = dl.parallel(tiny(), group)
    for inputs in ((), (3,), (dl.tensor(1.0, device="cpu"),)):
        with pytest.raises(ArgumentError, match=r"\[parallel\] expected tensors with the rows of a batch"):
            network(*inputs)


def test_a_second_backward_is_refused(group: DeviceGroup) -> None:
    loss = dl.parallel(tiny(), group)(dl.from_numpy(vectors(9, 0), "cpu")).mean()
    loss.backward(retain_graph=True)
    with pytest.raises(GradientError, match=r"\[parallel\] a second backward needs another forward"):
        loss.backward()


def test_gradients_of_gradients_are_refused(group: DeviceGroup) -> None:
    x = numbers(9, 4, grad=True)
    loss = dl.parallel(tiny(), group)(x).square().mean()
    with pytest.raises(GradientError, match=r"\[parallel\] gradients of gradients are not computed"):
        dl.autograd.grad(loss, x, create_graph=True)


def test_parameters_changed_before_backward_are_refused(group: DeviceGroup) -> None:
    model = tiny()
    loss = dl.parallel(model, group)(dl.from_numpy(vectors(9, 0), "cpu")).mean()
    with dl.no_grad():
        model[0].weight.mul_(2.0)
    with pytest.raises(GradientError, match=r"\[parallel\] parameters were changed between"):
        loss.backward()


def test_errors_of_a_model_keep_their_type(group: DeviceGroup) -> None:
    """And the network works on afterwards, with the random numbers as if that call had not been."""
    network = dl.parallel(tiny(), group)
    dl.manual_seed(2)
    expected = network(dl.from_numpy(vectors(9, 0), "cpu")).numpy().copy()
    dl.manual_seed(2)
    with pytest.raises(ShapeError) as caught:
        network(numbers(9, 5))
    assert "[Linear]" in str(caught.value) or "[linear]" in str(caught.value).lower()
    np.testing.assert_array_equal(network(dl.from_numpy(vectors(9, 0), "cpu")).numpy(), expected)
    assert not group.retired


def test_an_error_of_one_device_alone_ends_the_call(group: DeviceGroup) -> None:
    """While the others wait for it in a batch normalization."""

    def function(w: dl.Tensor, x: dl.Tensor) -> dl.Tensor:
        if str(x.device) == "cpu#1":
            raise ValueError("my own error")
        return x * w

    model = dl.nn.Sequential(Function(function), dl.nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match="my own error"):
        dl.parallel(model, group)(numbers(12, 3))
    assert not group.retired


def test_an_error_in_backward_keeps_its_type(group: DeviceGroup) -> None:
    class Broken(dl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: dl.Tensor) -> dl.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            raise ValueError("my own error")

    network = dl.parallel(Function(lambda w, x: Broken.apply(x * w)), group)
    with pytest.raises(ValueError, match="my own error"):
        network(numbers(12, 3)).mean().backward()
    assert not group.retired
    assert threading.active_count() < 20


# Memory and threads


def test_nothing_is_left_of_a_step() -> None:
    devices = [simulated_device(gflops=speed) for speed in (0.2, 0.1)]
    group = DeviceGroup(devices, timeout=TIMEOUT)
    model = convolutions()
    network = dl.parallel(model, group)

    def step(network: dl.nn.Module) -> None:
        output = network(dl.from_numpy(images(13, 0), "cpu"))
        output.square().mean().backward()
        model.zero_grad()

    for _ in range(2):
        step(network)
    gc.collect()
    before = allocated(group)
    for _ in range(4):
        step(network)
    gc.collect()
    assert allocated(group) == before
    replicas = [weakref.ref(replica.module) for replica in network._replicas.values()]
    assert len(replicas) == 2
    del network
    gc.collect()
    assert allocated(group)[1] == 0
    assert not any(replica() for replica in replicas)
    group.close()


def test_threads_end_with_the_group() -> None:
    before = set(threading.enumerate())
    group = DeviceGroup(["cpu", "cpu#1", "cpu#2"], timeout=TIMEOUT)
    dl.parallel(tiny(), group)(dl.from_numpy(vectors(12, 0), "cpu")).mean().backward()
    new = set(threading.enumerate()) - before
    assert len([thread for thread in new if "of a group" in thread.name]) == 3
    group.close()
    for thread in new:
        if "of a group" in thread.name:
            thread.join(TIMEOUT)
            assert not thread.is_alive()


def test_a_device_with_little_memory_gets_fewer_rows() -> None:
    devices = [simulated_device(gflops=0.1), simulated_device(gflops=0.1, memory=110_000)]
    with DeviceGroup(devices, timeout=TIMEOUT) as group:
        model = convolutions()
        network = dl.parallel(model, group)
        x = dl.from_numpy(images(64, 0), "cpu")
        alone = convolutions()
        dl.manual_seed(1)
        expected = alone(x)
        dl.manual_seed(1)
        close(network(x), expected)
        given = [network.balance.estimates[device].given for device in devices]
        assert sum(given) == 64
        assert given[1] < 32
        assert not group.retired


@pytest.mark.usefixtures("split_by_speed")
def test_streams_that_are_closed_meanwhile(group: DeviceGroup) -> None:
    """A part that was cancelled is not taken for one that is computed."""
    go_on = threading.Event()
    net = dl.parallel(dl.nn.Linear(3, 2), group)
    net(dl.ones(8, 3, device="cpu"))
    stream = group.stream(group.devices[1])

    stream.submit(go_on.wait, 10)
    waiting = len(stream)

    def close() -> None:
        end = time.monotonic() + 10
        while len(stream) == waiting and time.monotonic() < end:
            time.sleep(0.001)
        stream.close()
        go_on.set()

    threading.Thread(target=close).start()
    with pytest.raises(DeviceError, match="its stream was closed meanwhile"):
        net(dl.ones(8, 3, device="cpu"))
