"""Values and gradients of losses, compared with PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core.dtypes import kind_of
from tests.support.numpy_bodies import device as device
from tests.support.operands import close, generator, numbers

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")
ours: Any = dl.nn.functional  # also called with operands of wrong types
theirs = torch.nn.functional

TOLERANCE = 1e-5  # two float32 results, each off by what tests/support/operands.py explains
REDUCTIONS = ["mean", "sum", "none"]
every_reduction = pytest.mark.parametrize("reduction", REDUCTIONS)


def check(device: str, name: str, *given: Any, **arguments: Any) -> None:
    """Raise unless the value and the gradients of all float operands are PyTorch's, computed in float64."""
    values = [*given, *arguments.values()]
    floats = [isinstance(v, np.ndarray) and kind_of(v.dtype) == "f" for v in values]
    mine, exact = list[Any](), list[Any]()
    for value, wanted in zip(values, floats, strict=True):
        array = isinstance(value, np.ndarray)
        mine.append(dl.tensor(value, device=device) if array else value)
        exact.append(torch.from_numpy(value.astype(np.float64) if wanted else value) if array else value)
    # PyTorch has no gradients for weights, so only the first two may want one.
    leaves = [i for i in (0, 1) if i < len(given) and floats[i]]
    for i in leaves:
        mine[i].requires_grad_()
        exact[i].requires_grad_()
    count = len(given)
    result = getattr(ours, name)(*mine[:count], **dict(zip(arguments, mine[count:], strict=True)))
    expected = getattr(theirs, name)(*exact[:count], **dict(zip(arguments, exact[count:], strict=True)))
    assert result.dtype == np.float32
    close(result.numpy().astype(np.float64), expected.detach().numpy(), TOLERANCE)
    weight = numbers(generator(name, result.shape), result.shape)
    result.backward(dl.tensor(weight, device=device))
    expected.backward(torch.from_numpy(weight.astype(np.float64)))
    for i in leaves:
        got, gradient = mine[i].grad, exact[i].grad
        assert (got is None) == (gradient is None)
        if got is not None:
            close(got.numpy().astype(np.float64), gradient.numpy(), 2 * TOLERANCE)


# Classes

SCORES = [(5,), (7, 5), (3, 1009), (2, 5, 3), (2, 3, 5, 7), (67, 131), (1, 1)]


def scores(shape: tuple[int, ...], spread: float = 1.0) -> tuple[Any, Any]:
    rng = generator(shape, spread)
    axis = 1 if len(shape) > 1 else 0
    classes = shape[axis]
    x = (rng.uniform(-1, 1, shape) * spread).astype(np.float32)
    return x, rng.integers(0, classes, shape[:axis] + shape[axis + 1 :])


@every_reduction
@pytest.mark.parametrize("shape", SCORES, ids=str)
def test_cross_entropy(shape: tuple[int, ...], reduction: str, device: str) -> None:
    x, target = scores(shape)
    weight = abs(numbers(generator(shape), (shape[1 if len(shape) > 1 else 0],)))
    check(device, "cross_entropy", x, target, reduction=reduction)
    check(device, "cross_entropy", x, target, weight, reduction=reduction)
    check(device, "cross_entropy", x, target, reduction=reduction, label_smoothing=0.1)
    check(device, "cross_entropy", x, target, weight, reduction=reduction, label_smoothing=0.3)


@every_reduction
@pytest.mark.parametrize("ignored", [-100, 2])
def test_ignore_index(ignored: int, reduction: str, device: str) -> None:
    x, target = scores((11, 5))
    target[[0, 3, 10]] = ignored
    weight = abs(numbers(generator(ignored), (5,)))
    given = {"reduction": reduction, "ignore_index": ignored}
    check(device, "cross_entropy", x, target, **given)
    check(device, "cross_entropy", x, target, weight, label_smoothing=0.2, **given)
    check(device, "nll_loss", x, target, weight, **given)


@pytest.mark.parametrize("spread", [1e4, 80.0])
def test_cross_entropy_of_large_scores(spread: float, device: str) -> None:
    x, target = scores((13, 17), spread)
    check(device, "cross_entropy", x, target, reduction="none")
    check(device, "cross_entropy", x, target, reduction="none", label_smoothing=0.1)


@pytest.mark.parametrize("offset", [1e5, -1e7, 1e20])
@pytest.mark.parametrize("classes", [12, 67, 1000])  # in fours, one by one, with long rows
def test_cross_entropy_far_from_zero(offset: float, classes: int, device: str) -> None:
    """The logarithm of a sum of exponentials is small, and must not be rounded as the scores are."""
    rng = generator(offset, classes)
    x = (numbers(rng, (5, classes)) + np.float32(offset)).astype(np.float32)
    target, weight = rng.integers(0, classes, 5), np.abs(numbers(rng, (classes,)))
    weight[target[0]] = 0
    for arguments in ({}, {"label_smoothing": 0.1}, {"weight": weight, "label_smoothing": 0.3}):
        check(device, "cross_entropy", x, target, reduction="none", **arguments)


def test_cross_entropy_of_a_class_without_weight(device: str) -> None:
    """Where a weight is 0, a score of minus infinity costs nothing."""
    scores, weight = np.array([[1.0, -np.inf, 2.0, 0.5]], np.float32), np.array([1, 0, 2, 1], np.float32)
    x, w = dl.tensor(scores, device=device), dl.tensor(weight, device=device)
    assert ours.cross_entropy(x, dl.tensor([1]), w, reduction="sum").item() == 0
    smoothed = ours.cross_entropy(x, dl.tensor([1]), w, reduction="sum", label_smoothing=0.4).item()
    losses = np.log(np.exp(scores[0]).sum()) - scores[0, [0, 2, 3]]
    np.testing.assert_allclose(smoothed, (losses * weight[[0, 2, 3]]).sum() * 0.4 / 4, rtol=1e-5)


def test_cross_entropy_of_extremes(device: str) -> None:
    inf = np.inf
    rows = [[-inf, 1, 2], [1, -inf, 2], [-inf, -inf, -inf], [inf, 1, 2], [np.nan, 1, 2], [np.nan, 1, 2]]
    x, target = np.array(rows, np.float32), np.array([0, 0, 1, 0, 1, -100])
    got = ours.cross_entropy(dl.tensor(x, device=device), dl.tensor(target), reduction="none").numpy()
    expected = theirs.cross_entropy(torch.from_numpy(x), torch.from_numpy(target), reduction="none").numpy()
    close(got.astype(np.float64), expected.astype(np.float64), TOLERANCE)


def test_all_targets_ignored(device: str) -> None:
    x = dl.rand(3, 5, device=device).requires_grad_()
    loss = ours.cross_entropy(x, dl.tensor([-100] * 3))
    assert np.isnan(loss.item())  # as PyTorch: a mean of nothing
    assert ours.cross_entropy(x, dl.tensor([-100] * 3), reduction="sum").item() == 0


@every_reduction
@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 5, 3)], ids=str)
def test_cross_entropy_of_probabilities(shape: tuple[int, ...], reduction: str, device: str) -> None:
    rng = generator(shape)
    axis = 1 if len(shape) > 1 else 0
    x, target = numbers(rng, shape), rng.uniform(0, 1, shape).astype(np.float32)
    weight = abs(numbers(rng, (shape[axis],)))
    check(device, "cross_entropy", x, target, reduction=reduction)
    check(device, "cross_entropy", x, target, weight, reduction=reduction, label_smoothing=0.2)


@every_reduction
@pytest.mark.parametrize("shape", SCORES, ids=str)
def test_nll_loss(shape: tuple[int, ...], reduction: str, device: str) -> None:
    x, target = scores(shape)
    weight = abs(numbers(generator(shape), (shape[1 if len(shape) > 1 else 0],)))
    check(device, "nll_loss", x, target, reduction=reduction)
    check(device, "nll_loss", x, target, weight, reduction=reduction)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_target_dtypes(dtype: str, device: str) -> None:
    x, target = scores((7, 5))
    expected = ours.cross_entropy(dl.tensor(x, device=device), dl.tensor(target, device=device)).item()
    for place in ("cpu", device):
        given = dl.tensor(np.repeat(target, 2).astype(dtype), device=place)[::2]
        assert ours.cross_entropy(dl.tensor(x, device=device), given).item() == expected


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_second_derivatives(name: str) -> None:
    x = dl.tensor(numbers(generator(name), (3, 5, 2), "float64"), device="cpu").requires_grad_()
    target = dl.tensor([[0, 4], [-100, 2], [3, 3]], device="cpu")
    weight = dl.tensor(abs(numbers(generator("weight"), (5,), "float64")), device="cpu")
    assert dl.autograd.gradcheck(lambda x: getattr(ours, name)(x, target, weight), (x,))
    assert dl.autograd.gradgradcheck(lambda x: getattr(ours, name)(x, target, weight), (x,))


# Distances


@every_reduction
@pytest.mark.parametrize("shape", [(7, 5), (), (2, 3, 1, 67), (1031,)], ids=str)
def test_losses_of_differences(shape: tuple[int, ...], reduction: str, device: str) -> None:
    rng = generator(shape)
    x, target = numbers(rng, shape), numbers(rng, shape)
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        check(device, name, x, target, reduction=reduction)
    check(device, "smooth_l1_loss", x, target, reduction=reduction, beta=0.3)
    check(device, "smooth_l1_loss", x, target, reduction=reduction, beta=0.0)
    check(device, "huber_loss", x, target, reduction=reduction, delta=2.5)


def test_broadcasting_warns(device: str) -> None:
    x, y = dl.ones(3, 1, device=device), dl.zeros(3, device=device)
    with pytest.warns(UserWarning, match=r"\[mse_loss\] .* \(3, 1\) .* \(3,\) differ"):
        assert ours.mse_loss(x, y, reduction="none").shape == (3, 3)


# Probabilities


@every_reduction
@pytest.mark.parametrize("shape", [(7, 5), (), (2, 3, 67)], ids=str)
def test_binary_cross_entropy(shape: tuple[int, ...], reduction: str, device: str) -> None:
    rng = generator(shape)
    x, target = (np.asarray(rng.uniform(0.01, 0.99, shape), np.float32) for _ in range(2))
    weight = np.asarray(abs(numbers(rng, shape)))
    check(device, "binary_cross_entropy", x, target, reduction=reduction)
    check(device, "binary_cross_entropy", x, target, weight, reduction=reduction)
    given = {"reduction": reduction}
    scores = np.asarray(numbers(rng, shape) * 3, np.float32)
    check(device, "binary_cross_entropy_with_logits", scores, target, **given)
    check(device, "binary_cross_entropy_with_logits", scores, target, weight, **given)
    positive = np.asarray(abs(numbers(rng, shape[-1:])))
    check(device, "binary_cross_entropy_with_logits", scores, target, weight, **given, pos_weight=positive)


@pytest.mark.parametrize("positive", [None, 3.0])
def test_binary_cross_entropy_of_extremes(positive: float | None, device: str) -> None:
    x = np.array([1e4, -1e4, 1e4, -1e4, 20, -20, 0, 88, -88, 3e38], np.float32)
    target = np.array([1, 0, 0, 1, 1, 0, 0.5, 0.25, 0.75, 1], np.float32)
    extra = {} if positive is None else {"pos_weight": np.array([positive], np.float32)}
    check(device, "binary_cross_entropy_with_logits", x[:9], target[:9], reduction="none", **extra)
    certain = ours.binary_cross_entropy_with_logits(
        dl.tensor(x, device=device), dl.tensor(target, device=device), reduction="none"
    ).numpy()
    assert certain[[0, 1, 9]].tolist() == [0, 0, 0]
    np.testing.assert_allclose(certain[[4, 5]], np.exp(-20.0), rtol=1e-5)  # not lost beside 1
    edge = np.array([0.0, 1.0, 0.0, 1.0], np.float32), np.array([1.0, 0.0, 0.0, 1.0], np.float32)
    got = ours.binary_cross_entropy(*(dl.tensor(a, device=device) for a in edge), reduction="none")
    assert got.tolist() == [100, 100, 0, 0]


@pytest.mark.filterwarnings("ignore:reduction")  # PyTorch says that its mean is not the mathematical one
@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
def test_kl_div(reduction: str, device: str) -> None:
    rng = generator(reduction)
    x = np.log(rng.uniform(0.1, 1, (7, 5))).astype(np.float32)
    target = rng.uniform(0.1, 1, (7, 5)).astype(np.float32)
    check(device, "kl_div", x, target, reduction=reduction)
    check(device, "kl_div", x, np.log(target), reduction=reduction, log_target=True)
    target[0] = 0
    got = ours.kl_div(dl.tensor(x, device=device), dl.tensor(target, device=device), reduction=reduction)
    expected = theirs.kl_div(torch.from_numpy(x), torch.from_numpy(target), reduction=reduction)
    close(got.numpy().astype(np.float64), expected.numpy().astype(np.float64), TOLERANCE)


# Pairs


@pytest.mark.parametrize(
    ("left", "right", "dim"),
    [((7, 5), (7, 5), 1), ((7, 5), (7, 5), 0), ((3, 1, 67), (5, 67), -1), ((5,), (5,), 0)],
    ids=str,
)
def test_cosine_similarity(left: Any, right: Any, dim: int, device: str) -> None:
    rng = generator(left, right)
    check(device, "cosine_similarity", numbers(rng, left), numbers(rng, right), dim=dim)


def test_cosine_similarity_of_zero_vectors(device: str) -> None:
    x = dl.zeros(2, 3, device=device).requires_grad_()
    y = ours.cosine_similarity(x, dl.ones(2, 3, device=device))
    y.backward(dl.ones(2, device=device))
    assert y.tolist() == [0, 0]
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, np.inf])
@pytest.mark.parametrize("dim", [1, 0, -1])
def test_normalize(p: float, dim: int, device: str) -> None:
    check(device, "normalize", numbers(generator(p, dim), (3, 7, 5)), p=p, dim=dim)
    zeros = dl.zeros(2, 3, device=device)
    assert ours.normalize(zeros, p=p).tolist() == zeros.tolist()


@every_reduction
def test_losses_of_pairs(reduction: str, device: str) -> None:
    rng = generator(reduction)
    x, y = numbers(rng, (11, 5)), numbers(rng, (11, 5))
    sign = rng.choice((-1, 1), (11,))
    for margin in (0.0, 0.4):
        check(device, "cosine_embedding_loss", x, y, sign, margin=margin, reduction=reduction)
        check(device, "margin_ranking_loss", x[:, 0], y[:, 0], sign, margin=margin, reduction=reduction)
        check(device, "hinge_embedding_loss", x[:, 0], sign, margin=margin + 1, reduction=reduction)


# Refusals

X, T = (2, 5), [0, 1]


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize(
    ("shape", "target", "arguments", "error", "message"),
    [
        (X, [0, 5], {}, ArgumentError, r"target 5 is not one of 5 classes"),
        (X, [-1, 0], {}, ArgumentError, r"target -1 is not one of 5 classes"),
        (X, [-100, 7], {"ignore_index": 3}, ArgumentError, r"target -100 is not one of 5 classes"),
        (X, [[0, 1]], {}, ShapeError, r"expected targets of shape \(2,\), got \(1, 2\)"),
        (X, T, {"reduction": "max"}, ArgumentError, r"reduction must be one of none, mean, sum, got 'max'"),
        ((), T, {}, ShapeError, r"expected an input of shape \(C,\) or"),
    ],
)
def test_refusals_of_classes(
    name: str, shape: Any, target: Any, arguments: Any, error: Any, message: str, device: str
) -> None:
    with pytest.raises(error, match=rf"\[{name}\] {message}"):
        getattr(ours, name)(dl.rand(*shape, device=device), dl.tensor(target), **arguments)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, t: ours.cross_entropy(x, t, x[0, :2]), ShapeError, r"\[cross_entropy\] weight must have"),
        (lambda x, t: ours.cross_entropy(x, x[0]), ShapeError, r"\[cross_entropy\] probabilities must"),
        (lambda x, t: ours.cross_entropy(x, t, label_smoothing=2), ArgumentError, r"label_smoothing must"),
        (lambda x, t: ours.cross_entropy([1.0], t), DTypeError, r"\[cross_entropy\] expected a tensor"),
        (lambda x, t: ours.cross_entropy(t, t), DTypeError, r"\[cross_entropy\] expected floats"),
        (lambda x, t: ours.nll_loss(x, x), DTypeError, r"\[nll_loss\] expected indices of integers"),
        (lambda x, t: ours.mse_loss(x, 1.0), DTypeError, r"\[mse_loss\] expected a tensor, got float"),
        (lambda x, t: ours.huber_loss(x, x, delta=0), ArgumentError, r"\[huber_loss\] delta must"),
        (lambda x, t: ours.smooth_l1_loss(x, x, beta=-1), ArgumentError, r"beta must not be negative"),
        (lambda x, t: ours.binary_cross_entropy(x, x[0]), ShapeError, r"\[binary_cross_entropy\] expected"),
        (lambda x, t: ours.kl_div(x, x, reduction="batch"), ArgumentError, r"\[kl_div\] reduction must be"),
        (lambda x, t: ours.cosine_embedding_loss(x, x, x), ShapeError, r"\[cosine_embedding_loss\] expected"),
    ],
)  # fmt: skip
def test_refusals(call: Any, error: type[Exception], message: str, device: str) -> None:
    with pytest.raises(error, match=message):
        call(dl.rand(2, 5, device=device), dl.tensor([0, 1], device=device))
