"""Values, gradients and running statistics of normalisation, compared with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from tests.support.numpy_bodies import device as device
from tests.support.operands import NDArray, close, generator, numbers

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")
ours: Any = dl.nn.functional  # also called with operands of wrong types
theirs = torch.nn.functional

# Two float32 results, each off by what tests/support/operands.py explains; a gradient takes two sums more.
TOLERANCE = 1e-5
GRADIENT = 3e-5


def check(device: str, name: str, *given: Any, copies: tuple[int, ...] = (), **arguments: Any) -> None:
    """Raise unless values, gradients and operands changed in place equal those of PyTorch.

    Arrays among `given` want gradients, but for those at `copies`, which may be changed in place.
    """
    mine, other = list[Any](), list[Any]()
    for place, value in enumerate(given):
        array = isinstance(value, np.ndarray)
        mine.append(dl.tensor(value, device=device).requires_grad_(place not in copies) if array else value)
        exact = torch.from_numpy(value.astype(np.float64)) if array else value
        other.append(exact.requires_grad_(place not in copies) if array else value)
    result = getattr(ours, name)(*mine, **arguments)
    expected = getattr(theirs, name)(*other, **arguments)
    close(result.numpy().astype(np.float64), expected.detach().numpy(), TOLERANCE)
    weight = numbers(generator(name, result.shape), result.shape)
    result.backward(dl.tensor(weight, device=device))
    expected.backward(torch.from_numpy(weight.astype(np.float64)))
    for place, (left, right) in enumerate(zip(mine, other, strict=True)):
        if not isinstance(left, dl.Tensor):
            continue
        if place in copies:
            close(left.numpy().astype(np.float64), right.numpy(), TOLERANCE)
        else:
            close(left.grad.numpy().astype(np.float64), right.grad.numpy(), GRADIENT)


# Batches

SHAPES = [(7, 5), (4, 3, 11), (2, 5, 7, 3), (2, 3, 2, 5, 3), (4099, 3), (3, 2, 1499), (1, 37, 67)]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm(shape: tuple[int, ...], affine: bool, training: bool, device: str) -> None:
    rng = generator(shape, affine)
    channels = shape[1:2]
    x, mean, var = numbers(rng, shape), numbers(rng, channels), abs(numbers(rng, channels))
    weight, bias = (numbers(rng, channels), numbers(rng, channels)) if affine else (None, None)
    given = (x, mean, var, weight, bias)
    check(device, "batch_norm", *given, copies=(1, 2), training=training, momentum=0.3, eps=1e-3)


@pytest.mark.parametrize("weight", [True, False])
def test_batch_norm_with_weight_or_bias_alone(weight: bool, device: str) -> None:
    rng = generator(weight)
    x, one = numbers(rng, (3, 5, 7)), numbers(rng, (5,))
    pair = (one, None) if weight else (None, one)
    check(device, "batch_norm", x, None, None, *pair, training=True)


def test_batch_norm_of_numbers_far_from_zero(device: str) -> None:
    """E[x^2] - E[x]^2 would have no digit left."""
    x = (generator("far").uniform(-1, 1, (64, 3, 5, 5)) + 1000).astype(np.float32)
    result = ours.batch_norm(dl.tensor(x, device=device), training=True)
    exact = theirs.batch_norm(torch.from_numpy(x.astype(np.float64)), None, None, training=True)
    # The mean itself is a float32: half a unit in its last place is 3e-5 of these numbers' spread.
    close(result.numpy().astype(np.float64), exact.numpy(), 1e-4)


def test_running_statistics_change_in_place(device: str) -> None:
    mean, var = dl.zeros(3, device=device), dl.ones(3, device=device)
    x = dl.tensor(numbers(generator("place"), (5, 3)), device=device).requires_grad_()
    ours.batch_norm(x, mean, var, training=True, momentum=1.0)
    np.testing.assert_allclose(mean.numpy(), x.detach().numpy().mean(0), atol=1e-6)
    np.testing.assert_allclose(var.numpy(), x.detach().numpy().var(0, ddof=1), rtol=1e-5)
    assert not mean.requires_grad


@pytest.mark.parametrize(
    "make",
    [
        lambda x, w, b: ours.batch_norm(x, None, None, w, b, training=True),
        lambda x, w, b: ours.batch_norm(x, b, w * w, w, b),
        lambda x, w, b: ours.instance_norm(x, None, None, w, b),
        lambda x, w, b: ours.group_norm(x, 2, w, b),
        lambda x, w, b: ours.layer_norm(x, (5,), None, None),
        lambda x, w, b: ours.rms_norm(x, (4, 5)),
    ],
    ids=["batch", "batch in inference", "instance", "group", "layer", "rms"],
)
def test_second_derivatives(make: Callable[..., Any]) -> None:
    rng = generator("second")
    x, w, b = (
        dl.tensor(numbers(rng, shape, "float64"), device="cpu").requires_grad_()
        for shape in ((2, 4, 5), (4,), (4,))
    )
    assert dl.autograd.gradcheck(make, (x, w, b))
    assert dl.autograd.gradgradcheck(make, (x, w, b))


# Samples


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("shape", [(3, 5, 11), (2, 3, 7, 5), (1, 2, 40, 41)], ids=str)
def test_instance_norm(shape: tuple[int, ...], running: bool, device: str) -> None:
    rng = generator(shape)
    x, weight, bias = numbers(rng, shape), numbers(rng, shape[1:2]), numbers(rng, shape[1:2])
    stats = (numbers(rng, shape[1:2]), abs(numbers(rng, shape[1:2]))) if running else (None, None)
    check(device, "instance_norm", x, *stats, weight, bias, copies=(1, 2), momentum=0.2)
    if running:
        check(device, "instance_norm", x, *stats, weight, bias, copies=(1, 2), use_input_stats=False)


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("shape", [(3, 6, 5), (2, 6, 5, 3), (2, 6, 29, 31)], ids=str)
def test_group_norm(shape: tuple[int, ...], groups: int, device: str) -> None:
    rng = generator(shape, groups)
    check(device, "group_norm", numbers(rng, shape), groups, numbers(rng, (6,)), numbers(rng, (6,)), eps=1e-3)
    check(device, "group_norm", numbers(rng, shape), groups)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((7, 5), (5,)), ((2, 3, 5), (3, 5)), ((13,), (13,)), ((2, 7, 768), (768,)), ((1031, 33), (33,))],
    ids=str,
)
def test_layer_norm_and_rms_norm(shape: tuple[int, ...], sizes: tuple[int, ...], device: str) -> None:
    rng = generator(shape)
    x, weight, bias = numbers(rng, shape), numbers(rng, sizes), numbers(rng, sizes)
    check(device, "layer_norm", x, sizes, weight, bias)
    check(device, "layer_norm", x, sizes, weight)
    check(device, "layer_norm", x, sizes, None, bias, eps=0.1)
    check(device, "layer_norm", x, sizes)
    check(device, "rms_norm", x, sizes, weight)
    check(device, "rms_norm", x, sizes, eps=0.1)


def test_layer_norm_of_numbers_far_from_zero(device: str) -> None:
    x = (generator("far").uniform(-1, 1, (5, 1000)) + 1000).astype(np.float32)
    result = ours.layer_norm(dl.tensor(x, device=device), 1000)
    exact = theirs.layer_norm(torch.from_numpy(x.astype(np.float64)), (1000,))
    close(result.numpy().astype(np.float64), exact.numpy(), 1e-4)  # as above


@pytest.mark.parametrize("name", ["batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"])
def test_operands_of_any_layout(name: str, device: str) -> None:
    array = numbers(generator(name), (3, 4, 5))
    every: dict[str, dict[str, Any]] = {
        "batch_norm": {"training": True}, "layer_norm": {"normalized_shape": (4, 5)},
        "rms_norm": {"normalized_shape": 5}, "group_norm": {"num_groups": 2}, "instance_norm": {},
    }  # fmt: skip
    results: list[NDArray] = []
    for turned in (False, True):
        x = dl.tensor(array.T.copy() if turned else array, device=device).requires_grad_()
        y = getattr(ours, name)(x.T if turned else x, **every[name])
        y.backward(dl.tensor(array * array, device=device))
        results += [y.numpy(), x.grad.numpy().T if turned else x.grad.numpy()]
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])


# Refusals


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, c: ours.batch_norm(x), ArgumentError, r"\[batch_norm\] running_mean and running_var are"),
        (lambda x, c: ours.batch_norm(x, c), ArgumentError, r"\[batch_norm\] running_mean .* go together"),
        (lambda x, c: ours.batch_norm(x[:1, :, 0], training=True), ShapeError, r"\[batch_norm\] .* more"),
        (lambda x, c: ours.batch_norm(x, c[:1], c[:1]), ShapeError, r"\[batch_norm\] running_mean must have"),
        (lambda x, c: ours.batch_norm([1.0], c, c), DTypeError, r"\[batch_norm\] expected a tensor, got"),
        (lambda x, c: ours.instance_norm(x[:, :, :1]), ShapeError, r"\[instance_norm\] expected more than 1"),
        (lambda x, c: ours.group_norm(x, 2), ArgumentError, r"\[group_norm\] 3 channels do not split into 2"),
        (lambda x, c: ours.group_norm(x, 0), ArgumentError, r"\[group_norm\] 3 channels do not split into 0"),
        (lambda x, c: ours.group_norm(c, 1), ShapeError, r"\[group_norm\] expected an input of shape"),
        (lambda x, c: ours.layer_norm(x, 3), ShapeError, r"\[layer_norm\] expected an input of"),
        (lambda x, c: ours.layer_norm(x, ()), ShapeError, r"\[layer_norm\] expected an input of shape"),
        (lambda x, c: ours.layer_norm(c, (2, 3, 5, 3)), ShapeError, r"\[layer_norm\] expected an input"),
        (lambda x, c: ours.layer_norm(x, 5, c), ShapeError, r"\[layer_norm\] weight must have shape \(5,\)"),
        (lambda x, c: ours.layer_norm(x.to("int32"), 5), DTypeError, r"\[layer_norm\] expected floats"),
        (lambda x, c: ours.rms_norm(x.to("int32"), 5), DTypeError, r"\[rms_norm\] expected floats"),
        (lambda x, c: ours.rms_norm(None, 5), DTypeError, r"\[rms_norm\] expected a tensor, got NoneType"),
    ],
)  # fmt: skip
def test_refusals(call: Any, error: type[Exception], message: str, device: str) -> None:
    with pytest.raises(error, match=message):
        call(dl.rand(2, 3, 5, device=device), dl.rand(3, device=device))
