"""Compares ``vmap`` with PyTorch's and with a loop over samples; checks which ops take all at once."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.nn import functional as F
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.vmap import batched_tensor
from tests.support.vmap_cases import (
    DEVICE_NAMES,
    IMAGES,
    LOSS_WEIGHTS,
    VMAP_CASES,
    N,
    W,
    X,
    Y,
    array,
    listed,
    loop,
    same,
)


@pytest.mark.parametrize("device_name", DEVICE_NAMES)
@pytest.mark.parametrize("name", VMAP_CASES)
def test_results_against_loop_and_torch(name: str, device_name: str) -> None:
    torch = pytest.importorskip("torch")
    make, arrays, in_dims = VMAP_CASES[name]
    operands = [dl.tensor(a, device=device_name) for a in arrays]
    ours = dl.vmap(make(dl, F), in_dims)(*operands)
    same(ours, loop(make(dl, F), in_dims)(*operands))
    theirs = torch.func.vmap(make(torch, torch.nn.functional), in_dims)(*map(torch.tensor, arrays))
    same(ours, theirs)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device_name", DEVICE_NAMES)
@pytest.mark.parametrize("name", VMAP_CASES)
def test_gradients_outside_and_within(name: str, device_name: str) -> None:
    make, arrays, in_dims = VMAP_CASES[name]
    function = make(dl, F)

    def scalar(*operands: Any) -> Any:
        parts = [part for part in listed(function(*operands)) if kind_of(part.dtype) == "f"]
        return sum(((part * part).sum() + part.sum() for part in parts[1:]), parts[0].sin().sum())

    def slopes(*operands: Any) -> Any:
        return dl.autograd.vjp(scalar, operands)[1]

    def curvatures(*operands: Any) -> Any:
        return dl.autograd.hvp(scalar, operands, [o * 0.5 for o in operands])[1]

    outcomes: list[tuple[Any, ...]] = []
    for vmap in (dl.vmap, loop):
        leaves = [dl.tensor(a, device=device_name).requires_grad_() for a in arrays]
        (vmap(scalar, in_dims)(*leaves) * dl.tensor(LOSS_WEIGHTS, device=device_name)).sum().backward()
        through = [leaf.grad for leaf in leaves]
        within = vmap(slopes, in_dims)(*leaves)
        outcomes.append((through, within))
        if device_name == "cpu":
            outcomes[-1] += (vmap(curvatures, in_dims)(*leaves),)
    for ours, theirs in zip(*outcomes, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                same(one, other)


def calls(function: Callable[[], Any]) -> int:
    with dl.profile() as profile:
        function()
    return len([event for event in profile.events if event.kind == "op"])


@pytest.mark.parametrize("name", sorted(VMAP_CASES))
def test_ops_run_once(name: str) -> None:
    """As many calls for few samples as for more, with gradients too."""
    make, arrays, in_dims = VMAP_CASES[name]
    dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(arrays)
    function = make(dl, F)

    def slopes(*operands: Any) -> Any:
        def scalar(*given: Any) -> Any:
            parts = [part for part in listed(function(*given)) if kind_of(part.dtype) == "f"]
            return sum((part.sin().sum() for part in parts[1:]), parts[0].sin().sum())

        return dl.autograd.vjp(scalar, operands)[1]

    counted = []
    for count in (2, N):
        given = [
            dl.tensor(a if d is None else np.take(a, range(count), d), device="cpu")
            for a, d in zip(arrays, dims, strict=True)
        ]
        counted.append(calls(functools.partial(dl.vmap(slopes, in_dims), *given)))
    assert counted[0] == counted[1]


def test_an_op_without_a_rule_runs_for_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    x = dl.tensor(X, device="cpu")
    expected = dl.vmap(lambda a: a.softmax(1).exp())(x)
    monkeypatch.delitem(batched_tensor.RULES, "softmax")
    with dl.profile() as profile:
        outcomes = dl.vmap(lambda a: a.softmax(1).exp())(x)
    names = [event.name for event in profile.events if event.kind == "op"]
    assert (names.count("softmax"), names.count("exp")) == (N, 1)
    same(outcomes, expected)


LABELS = np.random.default_rng(3).integers(0, 7, (N, 3))
INDEXED_CASES = {
    "cross_entropy": lambda a, i: F.cross_entropy(a, i),
    "cross_entropy of one row": lambda a, i: F.cross_entropy(a[0], i[0]),
    "cross_entropy, smooth": lambda a, i: F.cross_entropy(a, i, label_smoothing=0.2, reduction="sum"),
    "cross_entropy, weights": lambda a, i: F.cross_entropy(a, i, a[0].detach().abs(), ignore_index=2),
    "cross_entropy, all": lambda a, i: F.cross_entropy(a, i, ignore_index=3, reduction="none"),
    "nll": lambda a, i: F.nll_loss(a.log_softmax(1), i, a[0].detach().abs()),
    "gather": lambda a, i: a.gather(1, i[:, None]),
    "getitem": lambda a, i: (a[:, i[0]], a[[0, 1, 2], i]),
    "index_select": lambda a, i: a.index_select(1, i),
    "embedding": lambda a, i: F.embedding(i % 3, a),
    "scatter": lambda a, i: a.scatter(1, i[:, None], 5.0),
    "sort": lambda a, i: tuple(a.sort(1)),
    "topk": lambda a, i: a.topk(2, 1)[0],
    "median": lambda a, i: a.median(1)[0],
    "one_hot": lambda a, i: F.one_hot(i, 7) * a,
    "masked_fill": lambda a, i: a.masked_fill(a > 0.5, 2.0),
}


@pytest.mark.parametrize("name", INDEXED_CASES)
def test_indexing_by_integer_tensors(name: str, device: str, caplog: pytest.LogCaptureFixture) -> None:
    function = INDEXED_CASES[name]
    outcomes = []
    for vmap in (dl.vmap, loop):
        x = dl.tensor(X, device=device).requires_grad_()
        with caplog.at_level(logging.WARNING, "dl4all"):
            results = listed(vmap(function)(x, dl.tensor(LABELS, device=device)))
        sum((r.sin().sum() for r in results if kind_of(r.dtype) == "f"), x.sum()).backward()
        outcomes.append([*results, x.grad])
    same(*outcomes)
    assert "it is called for each" not in caplog.text


def test_a_class_that_does_not_exist() -> None:
    x, labels = dl.tensor(X[:, 0], device="cpu"), dl.tensor([0, 1, 7, 2, 3], device="cpu")
    with pytest.raises(ArgumentError, match=r"\[cross_entropy\] target 7 is not one of 7 classes"):
        dl.vmap(F.cross_entropy)(x, labels)


def test_gradients_of_each_sample_for_the_parameters_of_a_network(device: str) -> None:
    torch = pytest.importorskip("torch")
    net = dl.nn.Sequential(dl.nn.Linear(7, 5), dl.nn.Tanh(), dl.nn.LayerNorm(5), dl.nn.Linear(5, 7)).to(
        device
    )
    parameters = list(net.parameters())
    x, y = dl.tensor(X[:, 0], device=device), dl.tensor(LABELS[:, 0], device=device)

    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(net(x.unsqueeze(0)), y.unsqueeze(0))

    outcomes = dl.vmap(lambda x, y: dl.grad(loss(x, y), parameters))(x, y)
    for i in range(N):
        for one, other in zip(outcomes, dl.grad(loss(x[i], y[i]), parameters), strict=True):
            np.testing.assert_allclose(one[i].numpy(), other.numpy(), rtol=1e-4, atol=1e-6)
    given = {n: torch.tensor(p.detach().numpy()) for n, p in net.named_parameters()}
    theirs = torch.nn.Sequential(
        torch.nn.Linear(7, 5), torch.nn.Tanh(), torch.nn.LayerNorm(5), torch.nn.Linear(5, 7)
    )

    def their_loss(parameters: Any, x: Any, y: Any) -> Any:
        scores = torch.func.functional_call(theirs, parameters, (x.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(scores, y.unsqueeze(0))

    expected = torch.func.vmap(torch.func.grad(their_loss), (None, 0, 0))(
        given, torch.tensor(X[:, 0]), torch.tensor(LABELS[:, 0])
    )
    for one, (name, _) in zip(outcomes, net.named_parameters(), strict=True):
        np.testing.assert_allclose(one.numpy(), expected[name].numpy(), rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("device_name", DEVICE_NAMES)
@pytest.mark.parametrize("kind", ["lstm", "gru", "transformer", "convolutions", "tagger"])
def test_layers(kind: str, device_name: str) -> None:
    nn = dl.nn
    made: dict[str, tuple[Callable[[], Any], Any]] = {
        "lstm": (lambda: nn.LSTM(3, 5, batch_first=True), array(N, 2, 4, 3)),
        "gru": (lambda: nn.GRU(3, 5, num_layers=2, bidirectional=True), array(N, 4, 2, 3)),
        "transformer": (
            lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
            array(N, 2, 5, 8),
        ),
        "convolutions": (
            lambda: nn.Sequential(
                nn.Conv2d(4, 6, 3), nn.GroupNorm(2, 6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
            ),
            IMAGES,
        ),
        "tagger": (
            lambda: dl.models.LSTMTagger(11, 4, 6, 5),
            np.random.default_rng(3).integers(0, 11, (N, 2, 4)),
        ),
    }
    make, numbers = made[kind]
    net, x = make().to(device_name), dl.tensor(numbers, device=device_name)
    parameters = list(net.parameters())

    def loss(sample: Any) -> Any:
        result = net(sample)
        return (result[0] if isinstance(result, tuple) else result).sin().mean()

    outcomes = []
    for vmap in (dl.vmap, loop):
        within = vmap(lambda sample: dl.grad(loss(sample), parameters))(x)
        outcomes.append([*within, *dl.grad(vmap(loss)(x).sum(), parameters)])
    for ours, theirs in zip(*outcomes, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=2e-6)


def test_gradients_outside_are_sums_over_the_samples(device: str) -> None:
    outcomes = []
    for vmap in (dl.vmap, loop):
        w = dl.tensor(W * 0.1, device=device).requires_grad_()
        x = dl.tensor(X, device=device).requires_grad_()
        made = w * 2  # shared by all samples, and not a leaf
        kept: list[Any] = []
        w.register_hook(kept.append)
        y = vmap(lambda a, made=made: dl.cat([made, a])[2] @ made.T + F.linear(a, made).mean())(x * 0.1)
        (first,) = dl.grad(y.sin().sum(), w, create_graph=True)
        first.sin().sum().backward()
        outcomes.append([y, first, w.grad, x.grad, *kept])
    same(*outcomes)


@pytest.mark.parametrize(
    "name", ["linear", "linear of one row", "matmul of a shared", "conv2d", "conv1d", "conv3d"]
)
def test_gradient_of_a_shared_weight_is_computed_for_the_batch(name: str) -> None:
    """No product of the backward pass has a weight's shape for each sample."""
    make, arrays, in_dims = VMAP_CASES[name]
    weight = 0 if in_dims[0] is None else 1
    leaves = [dl.tensor(a, device="cpu").requires_grad_() for a in arrays]
    loss = sum(part.sin().sum() for part in listed(dl.vmap(make(dl, F), in_dims)(*leaves))[:1])
    with dl.profile() as profile:
        loss.backward()
    operands = {shape for event in profile.events if event.kind == "op" for shape in event.shapes}
    assert (N, *leaves[weight].shape) not in operands
    assert leaves[weight].grad is not None


def test_backward_within_accumulates_gradients(device: str) -> None:
    outcomes = []
    for vmap in (dl.vmap, loop):
        w = dl.tensor(W, device=device).requires_grad_()

        def step(a: Any, w: Any = w) -> Any:
            loss = F.linear(a, w).sin().sum()
            loss.backward()
            return loss.detach()

        losses = vmap(step)(dl.tensor(X, device=device))
        outcomes.append([losses, w.grad])
    same(*outcomes)


def test_the_gradient_for_all_samples_within_one(device: str) -> None:
    x = dl.tensor(X, device=device).requires_grad_()
    functions = (lambda a: dl.grad((a * a).sum(), x)[0], lambda a: dl.grad(a.sin().sum(), a)[0])
    for function in functions:
        same(dl.vmap(function)(x), loop(function)(x))


@pytest.mark.parametrize("device_name", DEVICE_NAMES)
def test_nested_vmap(device_name: str) -> None:
    x, y, w = (dl.tensor(a, device=device_name) for a in (X, Y, W))
    same(dl.vmap(dl.vmap(dl.dot))(x, y), loop(loop(dl.dot))(x, y))

    def pairs(vmap: Any) -> Any:
        return vmap(lambda a, b: vmap(lambda r: vmap(lambda s: (r * s).sum() + b.sum())(b))(a))(x, y)

    same(pairs(dl.vmap), pairs(loop))

    def inner(vmap: Any) -> Any:
        return vmap(lambda a: vmap(lambda row: F.linear(a, w).sin() * row.sum(), 1, 1)(a), out_dims=2)(x)

    same(inner(dl.vmap), inner(loop))
    images = dl.tensor(IMAGES, device=device_name)
    filters = dl.tensor(array(3, 6, 4, 3, 3), device=device_name)

    def convolved(vmap: Any) -> Any:
        return vmap(lambda i: vmap(lambda f: F.conv2d(i, f))(filters))(images)

    same(convolved(dl.vmap), convolved(loop))

    def gradients(vmap: Any) -> Any:
        z = dl.tensor(X, device=device_name).requires_grad_()
        shared = dl.tensor(W, device=device_name).requires_grad_()

        def outer(a: Any) -> Any:
            rows = vmap(lambda row: dl.grad((F.linear(row, shared) * a.mean()).sin().sum(), shared)[0])(a)
            return dl.grad(vmap(lambda row: (row * a).sin().sum())(a).sum(), a, create_graph=True)[0], rows

        first, rows = vmap(outer)(z)
        (first * first).sum().backward()
        return first, rows, z.grad

    same(gradients(dl.vmap), gradients(loop))
