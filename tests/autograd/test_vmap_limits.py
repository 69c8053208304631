"""Limits of ``vmap``: forms of operands, in-place changes, random numbers, reading elements."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.allocator.storage import Storage
from dl4all.errors import ArgumentError, GradientError, ShapeError
from dl4all.nn import functional as F
from dl4all.ops.core.vmap_hook import is_batching
from dl4all.ops.vmap.batched_tensor import PerSampleFallback
from tests.support.vmap_cases import (
    N,
    X,
    Y,
    array,
    loop,
    same,
)


def test_nested_operands_and_results() -> None:
    x, y = dl.tensor(X, device="cpu"), dl.tensor(Y, device="cpu")
    pair = dl.vmap(lambda p: {"sum": p["a"] + p["b"][0], "rest": [p["a"] * 2]})({"a": x, "b": (y,)})
    same([pair["sum"], *pair["rest"]], [x + y, x * 2])
    one, other = dl.vmap(lambda a, p: (a * p[0], p[1] * 3), (0, (1, None)), (1, 0))(
        x, (x.transpose(0, 1), y[0])
    )
    same([one, other], [(x * x).transpose(0, 1), dl.stack([y[0] * 3] * N)])
    assert dl.vmap(lambda a, k: a * k, (0, None))(x, 3).tolist() == (x * 3).tolist()
    same(dl.vmap(lambda a: y[0], out_dims=1)(x), dl.stack([y[0]] * N, 1))


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
def test_the_axis_of_samples_in_a_result(axis: int, device: str) -> None:
    """It counts among the axes with that of the samples, from the end as well."""
    a, b = (np.random.default_rng(i).standard_normal((N, 3, 5)).astype(np.float32) for i in range(2))
    x, y = dl.tensor(a, device=device), dl.tensor(b[0], device=device)
    double, same_for_all = dl.vmap(lambda v: (v * 2, y), out_dims=axis)(x)
    np.testing.assert_array_equal(double.numpy(), np.stack(list(a * 2), axis))
    np.testing.assert_array_equal(same_for_all.numpy(), np.stack([b[0]] * N, axis))


def test_results_have_memory_of_their_own(device: str) -> None:
    x, y = dl.tensor(X, device=device), dl.tensor(Y, device=device)
    for made in (dl.vmap(lambda a: a)(x), dl.vmap(lambda a: y[0])(x), dl.vmap(lambda a: a[:, :7])(x)):
        made.zero_()
    one, other = dl.vmap(lambda a: (a, a.reshape(-1)))(x * 1)
    one.zero_()
    np.testing.assert_array_equal(other.numpy(), X.reshape(N, -1))
    np.testing.assert_array_equal(x.numpy(), X)
    np.testing.assert_array_equal(y.numpy(), Y)


def test_dtypes(device: str) -> None:
    whole = dl.tensor(np.random.default_rng(3).integers(1, 9, (N, 3)), device=device)
    half = dl.tensor(X, device=device).to("float16")
    for function, operand in (
        (lambda a: (a + 1, a * 0.5, a.sum(), a > 3, a.float().mean(), (a > 2).any()), whole),
        (lambda a: (a * 2, a.sum(0), a.softmax(1), a.to("float32")), half),
    ):
        ours, theirs = dl.vmap(function)(operand), loop(function)(operand)
        for one, other in zip(ours, theirs, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one.numpy().astype(float), other.numpy().astype(float), rtol=2e-3)


def test_in_place_changes(device: str) -> None:
    shared = dl.zeros(3, 7, device=device)

    def change(a: Any, b: Any) -> Any:
        c = a.clone()
        c.add_(1).mul_(b).clamp_(-1, 1)
        c[1] = b[0] * 2
        c[:, 0] = 5.0
        c[[0, 2], 1] = b[0, :2]
        c[0].copy_(b[2])
        c[2].fill_(0.25)
        d = dl.zeros_like(b)
        d[1] = b[2]
        e = b.new_full((2, 3), 4.0).add_(b[:2, :3]) + dl.ones_like(b[:2, :3], requires_grad=True)
        return (
            c,
            d,
            e.detach(),
            dl.full_like(b, 2).mul_(a),
            dl.select_scatter(shared, b[0], 0, 1),
        )

    x, y = dl.tensor(X, device=device), dl.tensor(Y, device=device)
    same(dl.vmap(change)(x, y), loop(change)(x, y))
    same(x, dl.tensor(X))
    dl.vmap(lambda a: a.mul_(2).sum())(x)
    same(x, dl.tensor(X * 2))

    def recorded(a: Any) -> Any:
        c = a * 2
        c.mul_(a).add_(a[0])
        c[1] = a[0].sin()
        return c.sum()

    outcomes = []
    for vmap in (dl.vmap, loop):
        leaf = dl.tensor(X, device=device).requires_grad_()
        vmap(recorded)(leaf).sin().sum().backward()
        outcomes.append(leaf.grad)
    same(*outcomes)


def test_in_place_changes_of_shared_tensors_are_refused(device: str) -> None:
    x, shared = dl.tensor(X, device=device), dl.zeros(3, 7, device=device)
    for change, name in (
        (lambda a: shared.add_(a), "add_"),
        (lambda a: shared.copy_(a), "copy_"),
        (lambda a: shared.__setitem__(0, a[0]), "setitem"),
    ):
        with pytest.raises(
            ArgumentError, match=rf"\[{name}\] a tensor of shape .* same in all samples of vmap"
        ):
            dl.vmap(lambda a, change=change: change(a))(x)
    assert shared.numpy().any() == False  # noqa: E712
    with pytest.raises(GradientError, match=r"\[add_\] a view cannot be changed in place"):
        dl.vmap(lambda a: a.add_(1))(dl.tensor(X, device=device).requires_grad_() * 1)


@pytest.mark.parametrize(
    "read",
    [
        lambda a: a.sum().item(),
        lambda a: a if a.sum() > 0 else -a,
        lambda a: a.numpy(),
        lambda a: float(a[0, 0]),
        lambda a: a.tolist(),
        lambda a: np.asarray(a),
    ],
)
def test_numbers_cannot_be_read(read: Callable[[Any], Any], device: str) -> None:
    with pytest.raises(
        ArgumentError, match=r"\[vmap\] a tensor of shape .* differs from sample to sample.*where"
    ):
        dl.vmap(read)(dl.tensor(X, device=device))


def test_printing_within() -> None:
    seen = []

    def shown(a: Any) -> Any:
        seen.append(repr(a))
        return a

    dl.vmap(shown)(dl.tensor(X, device="cpu"))
    assert seen == ["<tensor of shape (3, 7) and dtype float32 in 5 samples>"]


def test_functions_that_read_elements_run_for_each_sample(caplog: pytest.LogCaptureFixture) -> None:
    x = dl.tensor(X, device="cpu")
    function = dl.vmap(lambda a: a * 2 if dl.allclose(a, a) else a)
    with caplog.at_level(logging.WARNING, "dl4all"):
        same(function(x), x * 2)
        same(function(x), x * 2)
    assert caplog.text.count("reads elements that differ from sample to sample; it is called for each") == 1
    with pytest.raises(
        ArgumentError, match=r"\[vmap\] the function reads .* after it has changed an operand"
    ):
        dl.vmap(lambda a: dl.allclose(a.add_(1), a))(x)


def test_random_numbers_differ_between_samples(device: str) -> None:
    ones = dl.ones(N, 1000, device=device)
    for draw in (
        lambda a: F.dropout(a, 0.5),
        lambda a: a.clone().uniform_(),
        lambda a: dl.zeros_like(a).normal_(),
        lambda a: a.clone().bernoulli_(0.5),
        lambda a: a.clone().bernoulli_(a * 0.5),
        lambda a: (a * 0.5).bernoulli(),
        lambda a: dl.randn(1000, device=device) * a,
        lambda a: F.alpha_dropout(a, 0.5, training=True),
        lambda a: a.clone().exponential_(),
        lambda a: dl.rand_like(a) + dl.randn_like(a),
    ):
        outcomes = dl.vmap(draw)(ones).numpy()
        assert len(np.unique(outcomes, axis=0)) == N
        again = dl.vmap(draw)(ones).numpy()
        assert (outcomes != again).any(axis=1).all()


def test_dropout_and_its_gradient(device: str) -> None:
    x = dl.tensor(array(N, 40), device=device).requires_grad_()
    w = dl.tensor(array(40), device=device)
    y = dl.vmap(lambda a: F.dropout(a, 0.25) * w)(x)
    kept = y.numpy() != 0
    assert 0.5 < kept.mean() < 0.95
    np.testing.assert_allclose(y.numpy(), np.where(kept, x.detach().numpy() * w.numpy() / 0.75, 0), rtol=1e-5)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.where(kept, w.numpy() / 0.75, 0), rtol=1e-5)


def test_custom_function_and_checkpoint() -> None:
    class Cube(dl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

    outcomes = []
    for vmap in (dl.vmap, loop):
        x = dl.tensor(X, device="cpu").requires_grad_()
        vmap(lambda a: Cube.apply(a).sum() + dl.autograd.checkpoint(lambda z: z.sin().sum(), a))(
            x
        ).sum().backward()
        outcomes.append(x.grad)
    same(*outcomes)


def test_only_its_function_and_backward_passes_through_it_look_for_samples() -> None:
    """A result that is kept does not take the launch plans from the calls of the process."""
    seen = []

    def function(a: Any) -> Any:
        seen.append(is_batching())
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(is_batching).result())
        return (a * a).sum()

    x = dl.tensor(X, device="cpu").requires_grad_()
    y = dl.vmap(function)(x)
    assert (seen, is_batching()) == ([True, False], False)
    x.register_hook(lambda gradient: seen.append(is_batching()))
    y.sum().backward()
    assert (seen[2:], is_batching()) == ([True], False)
    with pytest.raises(ZeroDivisionError):
        dl.vmap(lambda a: a / (1 // 0))(x)
    assert not is_batching()


def test_the_storage_of_a_batched_tensor_refuses_access() -> None:
    """Every attribute of a storage is either passed on or refused."""
    storages = []

    def keep(a: Any) -> Any:
        storages.append(a.storage)
        return a

    dl.vmap(keep)(dl.tensor(X, device="cpu"))
    for name in (name for name in dir(Storage) if not name.startswith("_")):
        if name in ("version", "history_version", "named_cpu"):
            assert isinstance(getattr(storages[0], name), int)
        else:
            with pytest.raises(PerSampleFallback):
                getattr(storages[0], name)(None)


def test_a_batched_tensor_cannot_be_read_outside() -> None:
    kept = []

    def keep(a: Any) -> Any:
        kept.append(a)
        return a * 2

    dl.vmap(keep)(dl.tensor(X, device="cpu"))
    with pytest.raises(ArgumentError, match=r"\[vmap\] .*differs from sample to sample"):
        kept[0].numpy()


def test_error_messages() -> None:
    x = dl.tensor(X, device="cpu")
    calls: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: dl.vmap(dl.dot)(x, x[:2]), r"\[vmap\] .* got \[2, 5\]"),
        (lambda: dl.vmap(dl.dot, (0,))(x, x), r"\[vmap\] in_dims has 1 entries for 2"),
        (lambda: dl.vmap(lambda a: a, None)(x), r"\[vmap\] expected operands with one number of samples"),
        (lambda: dl.vmap(lambda a: a)(x[:0]), r"\[vmap\] expected operands with one number of samples"),
        (lambda: dl.vmap(lambda a, b: a)(x, 3), r"\[vmap\] expected a tensor where in_dims is 0, got int"),
        (lambda: dl.vmap(lambda a: 3)(x), r"\[vmap\] expected a tensor where out_dims is 0, got int"),
        (lambda: dl.vmap(lambda a: (a, a), out_dims=(0,))(x), r"\[vmap\] out_dims has 1 entries for 2"),
        (lambda: dl.vmap(lambda a: a, 3)(x), r"\[vmap\] axis 3 is out of range"),
        (lambda: dl.vmap(lambda a: a @ a)(x), r"\[matmul\] inner sizes differ: \(3, 7\) @ \(3, 7\)"),
    )
    for call, text in calls:
        with pytest.raises(ArgumentError if "matmul" not in text else ShapeError, match=text):
            call()
