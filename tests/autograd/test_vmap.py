"""``vmap`` beside PyTorch's and beside a loop over the samples, and which ops take all samples at once."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, GradientError, ShapeError
from dl4all.nn import functional as F
from dl4all.ops import batched
from dl4all.runtime.profiler import recorder

rng = np.random.default_rng(7)
N = 5
PLACES = ("cpu", pytest.param("vulkan:0", marks=pytest.mark.vulkan))


def array(*shape: int) -> Any:
    """Positive and negative, none of them near 0."""
    numbers = rng.uniform(0.3, 1.7, shape) * rng.choice([-1.0, 1.0], shape)
    return numbers.astype(np.float32)


def looped(function: Callable[..., Any], in_dims: Any = 0, out_dims: int = 0) -> Callable[..., Any]:
    """The function for each sample, one after the other."""

    def called(*operands: Any) -> Any:
        dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(operands)
        count = next(o.shape[d] for o, d in zip(operands, dims, strict=True) if d is not None)
        samples = [
            [o if d is None else o.select(d, i) for o, d in zip(operands, dims, strict=True)]
            for i in range(count)
        ]
        results = [function(*sample) for sample in samples]
        if isinstance(results[0], tuple):
            return tuple(dl.stack(parts, out_dims) for parts in zip(*results, strict=True))
        return dl.stack(results, out_dims)

    return called


def listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def same(ours: Any, theirs: Any) -> None:
    for one, other in zip(listed(ours), listed(theirs), strict=True):
        expected = other.detach().numpy()
        assert one.detach().numpy().dtype == expected.dtype
        np.testing.assert_allclose(one.detach().numpy(), expected, rtol=3e-5, atol=3e-5)


X, Y = array(N, 3, 7), array(N, 3, 7)
W, B = array(11, 7), array(11)
SHARES = array(N)  # of the samples in a loss
IMAGES, FILTERS = array(N, 2, 4, 8, 9), array(6, 2, 3, 3)

# Functions of (library, its functional module), the operands, and in_dims.
BOTH: dict[str, tuple[Callable[[Any, Any], Any], tuple[Any, ...], Any]] = {
    "elementwise": (lambda lib, f: lambda a, b: (a * 2 + b.sin()) / (1 + b * b), (X, Y), 0),
    "of other axes": (lambda lib, f: lambda a, b: a * b + b.exp(), (X, array(N, 7)), 0),
    "numbers first": (lambda lib, f: lambda a: 2.0 - a, (X,), 0),
    "where": (lambda lib, f: lambda a, b: lib.where(a > b, a, b * 2), (X, Y), 0),
    "shared first": (lambda lib, f: lambda a, b: a - b, (array(3, 1), X), (None, 0)),
    "scalars": (lambda lib, f: lambda a, b: a * b + 1, (array(N), X), 0),
    "sum": (lambda lib, f: lambda a: (a.sum(), a.sum(0), a.sum(-1, keepdim=True), a.sum((0, 1))), (X,), 0),
    "mean": (lambda lib, f: lambda a: (a.mean(), a.mean(1), a.var(0), a.std()), (X,), 0),
    "extremes": (lambda lib, f: lambda a: (a.amax(0), a.amin((0, 1)), a.argmax(), a.argmin(1)), (X,), 0),
    "prod": (lambda lib, f: lambda a: (a.prod(0), a.logsumexp(1), a.norm()), (X,), 0),
    "max with indices": (lambda lib, f: lambda a: tuple(a.max(1)), (X,), 0),
    "of no axes": (lambda lib, f: lambda a: (a.sum(), a.amax(), lib.softmax(a, 0)), (array(N),), 0),
    "matmul": (lambda lib, f: lambda a, b: (a @ b.T, a @ b[0], a[0] @ b.T, lib.dot(a[0], b[1])), (X, Y), 0),
    "matmul of a shared": (lambda lib, f: lambda a, w: (a @ w.T, w @ a.T, w @ a[0]), (X, W), (0, None)),
    "batched matmul": (lambda lib, f: lambda a, b: a @ b, (array(N, 2, 3, 7), array(N, 7, 4)), 0),
    "linear": (lambda lib, f: f.linear, (X, W, B), (0, None, None)),
    "linear of each": (lambda lib, f: f.linear, (X, array(N, 11, 7), array(N, 11)), 0),
    "linear of one row": (lambda lib, f: f.linear, (array(7, N), W, B), (1, None, None)),
    "einsum": (lambda lib, f: lambda a, b: lib.einsum("ij,kj->ik", a, b), (X, Y), 0),
    "reshape": (lambda lib, f: lambda a: (a.reshape(7, 3), a.flatten(), a.T.reshape(-1)), (X,), 0),
    "transpose": (lambda lib, f: lambda a: (a.T, a.permute(1, 0), a.transpose(0, 1).sin()), (X,), 0),
    "expand": (lambda lib, f: lambda a: (a.unsqueeze(0).expand(2, 3, 7), a[:1].expand(4, -1)), (X,), 0),
    "squeeze": (lambda lib, f: lambda a: (a[:1].squeeze(), a.unsqueeze(1).squeeze(1)), (X,), 0),
    "index": (lambda lib, f: lambda a: (a[1], a[:, 2:5], a[-1, ::2], a[..., None], a[[2, 0], 1:]), (X,), 0),
    "cat": (
        lambda lib, f: lambda a, b: (lib.cat([a, b], 1), lib.stack([a, b]), lib.cat([a[:1], b])), (X, Y), 0,
    ),
    "cat with a shared": (lambda lib, f: lambda a, w: lib.cat([w, a]), (X, W), (0, None)),
    "split": (lambda lib, f: lambda a: a.split(3, 1), (X,), 0),
    "flip and roll": (lambda lib, f: lambda a: (a.flip(0), a.roll(2, 1), lib.tril(a)), (X,), 0),
    "pad": (lambda lib, f: lambda a: f.pad(a, (1, 2), value=3.0), (X,), 0),
    "softmax": (lambda lib, f: lambda a: (a.softmax(0), a.log_softmax(-1), a.softmax(1)), (X,), 0),
    "cumsum": (lambda lib, f: lambda a: (a.cumsum(0), a.cumprod(1)), (X,), 0),
    "layer_norm": (lambda lib, f: lambda a, w: f.layer_norm(a, (7,), w), (X, array(7)), (0, None)),
    "layer_norm of each": (
        lambda lib, f: lambda a, w, b: f.layer_norm(a, (7,), w, b), (X, *array(2, N, 7)), 0,
    ),
    "group_norm": (lambda lib, f: lambda a: f.group_norm(a, 2), (IMAGES,), 0),
    "batch_norm": (
        lambda lib, f: lambda a, m, v: f.batch_norm(a, m, v),
        (IMAGES, array(4), np.abs(array(4))), (0, None, None),
    ),
    "batch_norm in training": (
        lambda lib, f: lambda a, w, b: f.batch_norm(a, None, None, w, b, training=True),
        (IMAGES, array(4), array(4)),
        (0, None, None),
    ),
    "batch_norm of each": (
        lambda lib, f: lambda a, w, b: f.batch_norm(a, None, None, w, b, training=True),
        (IMAGES, array(N, 4), array(N, 4)),
        0,
    ),
    "conv2d": (lambda lib, f: lambda x, w: f.conv2d(x, w, padding=1, groups=2), (IMAGES, FILTERS), (0, None)),
    "conv2d of each": (
        lambda lib, f: lambda x, w, b: f.conv2d(x, w, b, stride=2),
        (IMAGES, array(N, 6, 4, 3, 3), array(N, 6)), 0,
    ),
    "conv2d of one image": (
        lambda lib, f: lambda w, x: f.conv2d(x, w), (array(N, 6, 4, 3, 3), IMAGES[0]), (0, None),
    ),
    "conv1d": (
        lambda lib, f: lambda x, w: f.conv1d(x, w, dilation=2),
        (array(N, 2, 4, 9), array(5, 4, 3)), (0, None),
    ),
    "conv3d": (
        lambda lib, f: lambda x, w: f.conv3d(x, w),
        (array(N, 1, 2, 3, 4, 5), array(3, 2, 2, 2, 2)), (0, None),
    ),
    "pooling": (
        lambda lib, f: lambda x: (f.max_pool2d(x, 2), f.avg_pool2d(x, 3, 2), f.adaptive_avg_pool2d(x, 2)),
        (IMAGES,), 0,
    ),
    "mse": (lambda lib, f: f.mse_loss, (X, Y), 0),
    "smooth_l1": (lambda lib, f: f.smooth_l1_loss, (X, Y), 0),
    "gelu": (lambda lib, f: lambda a: (f.gelu(a), f.silu(a), a.relu(), f.elu(a), a.tanh()), (X,), 0),
    "attention": (
        lambda lib, f: lambda q, k: f.scaled_dot_product_attention(q, k, k), (array(N, 2, 3, 4),) * 2, 0,
    ),
    "attention with a mask": (
        lambda lib, f: lambda q, k, m: f.scaled_dot_product_attention(q, k, k, m > 0),
        (array(N, 2, 3, 4), array(N, 2, 6, 4), array(N, 3, 6)), 0,
    ),
    "attention of shared keys": (
        lambda lib, f: lambda q, k, m: f.scaled_dot_product_attention(q, k, k, abs(m) > 0.4),
        (array(N, 2, 3, 4), array(2, 6, 4), array(2, 1, 6)), (0, None, None),
    ),
    "other axes": (lambda lib, f: lambda a, b: a * b, (X, array(3, 7, N)), (0, -1)),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", BOTH)
def test_what_it_computes(name: str, place: str) -> None:
    torch = pytest.importorskip("torch")
    make, arrays, in_dims = BOTH[name]
    operands = [dl.tensor(a, device=place) for a in arrays]
    ours = dl.vmap(make(dl, F), in_dims)(*operands)
    same(ours, looped(make(dl, F), in_dims)(*operands))
    theirs = torch.func.vmap(make(torch, torch.nn.functional), in_dims)(*map(torch.tensor, arrays))
    same(ours, theirs)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", BOTH)
def test_gradients_through_it_and_within(name: str, place: str) -> None:
    make, arrays, in_dims = BOTH[name]
    function = make(dl, F)

    def scalar(*operands: Any) -> Any:
        parts = [part for part in listed(function(*operands)) if part.dtype.kind == "f"]
        return sum(((part * part).sum() + part.sum() for part in parts[1:]), parts[0].sin().sum())

    def slopes(*operands: Any) -> Any:
        return dl.autograd.vjp(scalar, operands)[1]

    def curvatures(*operands: Any) -> Any:
        return dl.autograd.hvp(scalar, operands, [o * 0.5 for o in operands])[1]

    found: list[tuple[Any, ...]] = []
    for way in (dl.vmap, looped):
        leaves = [dl.tensor(a, device=place).requires_grad_() for a in arrays]
        (way(scalar, in_dims)(*leaves) * dl.tensor(SHARES, device=place)).sum().backward()
        through = [leaf.grad for leaf in leaves]
        within = way(slopes, in_dims)(*leaves)
        found.append((through, within))
        if place == "cpu":
            found[-1] += (way(curvatures, in_dims)(*leaves),)
    for ours, theirs in zip(*found, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                scale = max(float(np.abs(other.numpy()).max()), 1.0)
                np.testing.assert_allclose(one.numpy() / scale, other.numpy() / scale, atol=3e-5)


def calls(function: Callable[[], Any]) -> int:
    with dl.profile() as profile:
        function()
    return len([event for event in profile.events if event.kind == "op"])


@pytest.mark.parametrize("name", sorted(BOTH))
def test_ops_run_once(name: str) -> None:
    """As many calls for few samples as for more, with gradients too."""
    make, arrays, in_dims = BOTH[name]
    dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(arrays)
    function = make(dl, F)

    def slopes(*operands: Any) -> Any:
        def scalar(*given: Any) -> Any:
            parts = [part for part in listed(function(*given)) if part.dtype.kind == "f"]
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
    monkeypatch.delitem(batched.RULES, "softmax")
    with dl.profile() as profile:
        found = dl.vmap(lambda a: a.softmax(1).exp())(x)
    names = [event.name for event in profile.events if event.kind == "op"]
    assert (names.count("softmax"), names.count("exp")) == (N, 1)
    same(found, expected)


LABELS = rng.integers(0, 7, (N, 3))
PICKED = {
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


@pytest.mark.parametrize("name", PICKED)
def test_what_tensors_of_integers_pick(name: str, device: str, caplog: pytest.LogCaptureFixture) -> None:
    function = PICKED[name]
    found = []
    for way in (dl.vmap, looped):
        x = dl.tensor(X, device=device).requires_grad_()
        with caplog.at_level(logging.WARNING, "dl4all"):
            results = listed(way(function)(x, dl.tensor(LABELS, device=device)))
        sum((r.sin().sum() for r in results if r.dtype.kind == "f"), x.sum()).backward()
        found.append([*results, x.grad])
    same(*found)
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

    found = dl.vmap(lambda x, y: dl.grad(loss(x, y), parameters))(x, y)
    for i in range(N):
        for one, other in zip(found, dl.grad(loss(x[i], y[i]), parameters), strict=True):
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
    for one, (name, _) in zip(found, net.named_parameters(), strict=True):
        np.testing.assert_allclose(one.numpy(), expected[name].numpy(), rtol=2e-4, atol=2e-6)


def test_gradients_outside_are_sums_over_the_samples(device: str) -> None:
    found = []
    for way in (dl.vmap, looped):
        w = dl.tensor(W * 0.1, device=device).requires_grad_()
        x = dl.tensor(X, device=device).requires_grad_()
        made = w * 2  # shared by all samples, and not a leaf
        kept: list[Any] = []
        w.register_hook(kept.append)
        y = way(lambda a, made=made: dl.cat([made, a])[2] @ made.T + F.linear(a, made).mean())(x * 0.1)
        (first,) = dl.grad(y.sin().sum(), w, create_graph=True)
        first.sin().sum().backward()
        found.append([y, first, w.grad, x.grad, *kept])
    same(*found)


def test_backward_within_adds_up(device: str) -> None:
    found = []
    for way in (dl.vmap, looped):
        w = dl.tensor(W, device=device).requires_grad_()

        def step(a: Any, w: Any = w) -> Any:
            loss = F.linear(a, w).sin().sum()
            loss.backward()
            return loss.detach()

        losses = way(step)(dl.tensor(X, device=device))
        found.append([losses, w.grad])
    same(*found)


def test_the_gradient_for_all_samples_within_one(device: str) -> None:
    x = dl.tensor(X, device=device).requires_grad_()
    functions = (lambda a: dl.grad((a * a).sum(), x)[0], lambda a: dl.grad(a.sin().sum(), a)[0])
    for function in functions:
        same(dl.vmap(function)(x), looped(function)(x))


@pytest.mark.parametrize("place", PLACES)
def test_nested(place: str) -> None:
    x, y, w = (dl.tensor(a, device=place) for a in (X, Y, W))
    same(dl.vmap(dl.vmap(dl.dot))(x, y), looped(looped(dl.dot))(x, y))

    def pairs(way: Any) -> Any:
        return way(lambda a, b: way(lambda r: way(lambda s: (r * s).sum() + b.sum())(b))(a))(x, y)

    same(pairs(dl.vmap), pairs(looped))

    def inner(way: Any) -> Any:
        return way(lambda a: way(lambda row: F.linear(a, w).sin() * row.sum(), 1, 1)(a), out_dims=2)(x)

    same(inner(dl.vmap), inner(looped))
    images, filters = dl.tensor(IMAGES, device=place), dl.tensor(array(3, 6, 4, 3, 3), device=place)

    def convolved(way: Any) -> Any:
        return way(lambda i: way(lambda f: F.conv2d(i, f))(filters))(images)

    same(convolved(dl.vmap), convolved(looped))

    def gradients(way: Any) -> Any:
        z = dl.tensor(X, device=place).requires_grad_()
        shared = dl.tensor(W, device=place).requires_grad_()

        def outer(a: Any) -> Any:
            rows = way(lambda row: dl.grad((F.linear(row, shared) * a.mean()).sin().sum(), shared)[0])(a)
            return dl.grad(way(lambda row: (row * a).sin().sum())(a).sum(), a, create_graph=True)[0], rows

        first, rows = way(outer)(z)
        (first * first).sum().backward()
        return first, rows, z.grad

    same(gradients(dl.vmap), gradients(looped))


def test_forms_of_operands_and_results() -> None:
    x, y = dl.tensor(X, device="cpu"), dl.tensor(Y, device="cpu")
    pair = dl.vmap(lambda p: {"sum": p["a"] + p["b"][0], "rest": [p["a"] * 2]})({"a": x, "b": (y,)})
    same([pair["sum"], *pair["rest"]], [x + y, x * 2])
    one, other = dl.vmap(lambda a, p: (a * p[0], p[1] * 3), (0, (1, None)), (1, 0))(
        x, (x.transpose(0, 1), y[0])
    )
    same([one, other], [(x * x).transpose(0, 1), dl.stack([y[0] * 3] * N)])
    assert dl.vmap(lambda a, k: a * k, (0, None))(x, 3).tolist() == (x * 3).tolist()
    same(dl.vmap(lambda a: y[0], out_dims=1)(x), dl.stack([y[0]] * N, 1))


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
    whole = dl.tensor(rng.integers(1, 9, (N, 3)), device=device)
    half = dl.tensor(X, device=device).to("float16")
    for function, operand in (
        (lambda a: (a + 1, a * 0.5, a.sum(), a > 3, a.float().mean(), (a > 2).any()), whole),
        (lambda a: (a * 2, a.sum(0), a.softmax(1), a.to("float32")), half),
    ):
        ours, theirs = dl.vmap(function)(operand), looped(function)(operand)
        for one, other in zip(ours, theirs, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one.numpy().astype(float), other.numpy().astype(float), rtol=2e-3)


def test_changes_in_place(device: str) -> None:
    def change(a: Any, b: Any) -> Any:
        c = a.clone()
        c.add_(1).mul_(b).clamp_(-1, 1)
        c[1] = b[0] * 2
        c[:, 0] = 5.0
        c[[0, 2], 1] = b[0, :2]
        c[0].copy_(b[2])
        c[2].fill_(0.25)
        return c, dl.zeros_like(b).sub_(1.0)

    x, y = dl.tensor(X, device=device), dl.tensor(Y, device=device)
    same(dl.vmap(change)(x, y), looped(change)(x, y))
    same(x, dl.tensor(X))
    dl.vmap(lambda a: a.mul_(2).sum())(x)
    same(x, dl.tensor(X * 2))

    def recorded(a: Any) -> Any:
        c = a * 2
        c.mul_(a).add_(a[0])
        c[1] = a[0].sin()
        return c.sum()

    found = []
    for way in (dl.vmap, looped):
        leaf = dl.tensor(X, device=device).requires_grad_()
        way(recorded)(leaf).sin().sum().backward()
        found.append(leaf.grad)
    same(*found)


def test_changes_that_are_refused(device: str) -> None:
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


def test_what_reads_elements_elsewhere_runs_for_each_sample(caplog: pytest.LogCaptureFixture) -> None:
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


def test_random_numbers_are_each_samples_own(device: str) -> None:
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
    ):
        found = dl.vmap(draw)(ones).numpy()
        assert len(np.unique(found, axis=0)) == N
        again = dl.vmap(draw)(ones).numpy()
        assert (found != again).any(axis=1).all()


def test_dropout_and_its_gradient(device: str) -> None:
    x = dl.tensor(array(N, 40), device=device).requires_grad_()
    w = dl.tensor(array(40), device=device)
    y = dl.vmap(lambda a: F.dropout(a, 0.25) * w)(x)
    kept = y.numpy() != 0
    assert 0.5 < kept.mean() < 0.95
    np.testing.assert_allclose(y.numpy(), np.where(kept, x.numpy() * w.numpy() / 0.75, 0), rtol=1e-5)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.where(kept, w.numpy() / 0.75, 0), rtol=1e-5)


def test_a_function_of_ones_own_and_a_checkpoint() -> None:
    class Cube(dl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

    found = []
    for way in (dl.vmap, looped):
        x = dl.tensor(X, device="cpu").requires_grad_()
        way(lambda a: Cube.apply(a).sum() + dl.autograd.checkpoint(lambda z: z.sin().sum(), a))(
            x
        ).sum().backward()
        found.append(x.grad)
    same(*found)


def test_nobody_watches_afterwards() -> None:
    x, before = dl.tensor(X, device="cpu").requires_grad_(), set(recorder.watching)
    y = dl.vmap(lambda a: (a * a).sum())(x)
    assert recorder.watching > before
    y.sum().backward()
    del y
    assert recorder.watching == before


def test_what_escapes_says_so() -> None:
    kept = []

    def keep(a: Any) -> Any:
        kept.append(a)
        return a * 2

    dl.vmap(keep)(dl.tensor(X, device="cpu"))
    with pytest.raises(ArgumentError, match=r"\[vmap\] .*differs from sample to sample"):
        kept[0].numpy()


def test_refusals() -> None:
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
