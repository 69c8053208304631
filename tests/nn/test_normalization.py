"""Normalisation layers beside PyTorch's: state, training over several batches, inference."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from dl4all.graph.ir.graph import BoundFill
from dl4all.graph.tracing.trace import Tracer, run
from dl4all.scheduler.listeners import capture

torch = pytest.importorskip("torch", reason="layers are compared with PyTorch's")

LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("BatchNorm1d", (5,), {}, (7, 5)),
    ("BatchNorm1d", (5,), {"momentum": None}, (3, 5, 11)),
    ("BatchNorm2d", (5, 0.1, 0.3), {}, (3, 5, 7, 2)),
    ("BatchNorm2d", (5,), {"affine": False}, (3, 5, 7, 2)),
    ("BatchNorm2d", (5,), {"track_running_stats": False}, (3, 5, 7, 2)),
    ("BatchNorm2d", (5,), {"bias": False}, (3, 5, 7, 2)),
    ("BatchNorm3d", (3,), {}, (2, 3, 2, 5, 3)),
    ("InstanceNorm1d", (5,), {}, (3, 5, 7)),
    ("InstanceNorm1d", (5,), {"affine": True}, (5, 7)),
    ("InstanceNorm2d", (5,), {"affine": True, "track_running_stats": True}, (3, 5, 7, 2)),
    ("InstanceNorm2d", (5,), {"track_running_stats": True, "momentum": 0.5}, (5, 7, 2)),
    ("InstanceNorm3d", (2,), {}, (2, 2, 3, 5, 2)),
    ("GroupNorm", (3, 6), {}, (2, 6, 5)),
    ("GroupNorm", (2, 6, 0.1), {"affine": False}, (2, 6, 5, 3)),
    ("LayerNorm", (5,), {}, (3, 5)),
    ("LayerNorm", ((3, 5),), {"bias": False}, (2, 3, 5)),
    ("LayerNorm", ([5], 0.1, False), {}, (2, 3, 5)),
    ("RMSNorm", (5,), {}, (3, 5)),
    ("RMSNorm", ((3, 5), 0.1, False), {}, (2, 3, 5)),
]
every_layer = pytest.mark.parametrize(("name", "args", "kwargs", "shape"), LAYERS)


def pair(name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Our layer and PyTorch's with the same random state."""
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for tensor in theirs.state_dict().values():
            if tensor.shape:
                tensor.copy_(torch.tensor(rng.uniform(0.5, 2, tensor.shape)))
    ours = getattr(dl.nn, name)(*args, **kwargs)
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    return ours, theirs


def assert_close(got: Any, expected: Any) -> None:
    expected = expected.detach().numpy()
    assert got.shape == expected.shape
    assert (
        np.abs(got.numpy() - expected).max() <= 2e-5 * np.abs(expected).max()
    )  # see tests/support/operands.py


@every_layer
def test_state_and_text(name: str, args: Any, kwargs: Any, shape: Any) -> None:
    ours, theirs = getattr(dl.nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs)
    state, expected = ours.state_dict(), theirs.state_dict()
    assert list(state) == list(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(state[key].numpy(), value.numpy())
        assert f"torch.{state[key].dtype}" == str(value.dtype)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert repr(ours) == repr(theirs)


@every_layer
def test_training_and_inference(name: str, args: Any, kwargs: Any, shape: Any, device: str) -> None:
    ours, theirs = pair(name, args, kwargs)
    ours.to(device)
    rng = np.random.default_rng(1)
    for training in (True, True, False, True):
        ours.train(training)
        theirs.train(training)
        x = rng.uniform(-2, 2, shape).astype(np.float32)
        given = dl.tensor(x, device=device).requires_grad_()
        exact = torch.from_numpy(x).requires_grad_()
        got, expected = ours(given), theirs(exact)
        assert_close(got, expected)
        got.backward(dl.tensor(x * x, device=device))
        expected.backward(torch.from_numpy(x * x))
        assert_close(given.grad, exact.grad)
        for key, value in theirs.state_dict().items():
            assert_close(ours.state_dict()[key], value)


def test_batches_are_counted_on_from_a_loaded_state(device: str) -> None:
    layer = dl.nn.BatchNorm1d(2).to(device)
    x = dl.rand(3, 2, device=device)
    layer(x)
    layer(x)
    assert layer.num_batches_tracked.item() == 2
    state = {key: value.numpy() for key, value in layer.state_dict().items()}
    layer.load_state_dict({**state, "num_batches_tracked": np.array(40)})
    layer(x)
    assert layer.num_batches_tracked.item() == 41
    layer.num_batches_tracked.zero_()
    layer(x)
    assert layer.num_batches_tracked.item() == 1
    layer.eval()(x)
    assert layer.num_batches_tracked.item() == 1


def test_a_copy_counts_for_itself() -> None:
    layer = dl.nn.BatchNorm1d(2)
    counter = layer._batches
    counter.next(layer.num_batches_tracked)
    again = copy.deepcopy(counter)
    assert again._written is None
    assert again.next(layer.num_batches_tracked) == 2


def test_a_replay_counts_batches() -> None:
    layer = dl.nn.BatchNorm1d(2).to("vulkan:0")
    x = dl.rand(3, 2, device="vulkan:0")
    tracer = Tracer(x.device)
    with capture.lock, dl.no_grad():
        run(tracer, lambda: layer(x))
    assert not tracer.refusal
    assert not any(isinstance(command, BoundFill) for node in tracer.nodes for command in node.commands)
    assert layer.num_batches_tracked.item() == 1
    for again in tracer.again:
        again()
    layer(x)
    assert layer.num_batches_tracked.item() == 3


def test_memory_of_a_count_is_given_back() -> None:
    layer = dl.nn.BatchNorm1d(2).to("vulkan:0")
    layer(dl.rand(3, 2, device="vulkan:0"))
    memory = weakref.ref(layer.num_batches_tracked.storage)
    gc.disable()
    try:
        del layer
        assert memory() is None
    finally:
        gc.enable()


def test_running_statistics_are_not_counted_as_parameters() -> None:
    layer = dl.nn.BatchNorm2d(3)
    assert [name for name, _ in layer.named_buffers()] == [
        "running_mean", "running_var", "num_batches_tracked",
    ]  # fmt: skip


def test_who_holds_running_statistics_sees_them_move(device: str) -> None:
    layer = dl.nn.BatchNorm1d(2).to(device)
    held = layer.state_dict()["running_mean"]
    part = held[1:]
    layer(dl.tensor([[1.0, 2.0], [3.0, 6.0]], device=device))
    np.testing.assert_allclose(held.numpy(), [0.2, 0.4], rtol=1e-6)
    np.testing.assert_allclose(part.numpy(), [0.4], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: dl.nn.BatchNorm1d(3)(dl.rand(2, 3, 4, 5)), ShapeError, r"\[BatchNorm1d\] expected .* 2 or"),
        (lambda: dl.nn.BatchNorm2d(3)(dl.rand(2, 3)), ShapeError, r"\[BatchNorm2d\] expected .* 4 axes"),
        (lambda: dl.nn.InstanceNorm2d(3)(dl.rand(2, 3)), ShapeError, r"\[InstanceNorm2d\] expected .* 3 or"),
        (lambda: dl.nn.BatchNorm2d(-1), ArgumentError, r"\[BatchNorm2d\] cannot have -1 channels"),
        (lambda: dl.nn.GroupNorm(4, 6), ArgumentError, r"\[GroupNorm\] 6 channels do not split into 4"),
    ],
)  # fmt: skip
def test_refusals(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
